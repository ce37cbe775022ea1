//! Whose word a record is, and that only what somebody counted has numbers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops on the first thing that is not as it should be"
)]

use limiter_core::{Cell, Check, Decisions, Instant, Key, Layer, Limit, Op, Record, Request, Source, View, decide};

const NOW: u64 = 1_764_559_423_000_000;

fn at(micros: u64) -> Instant {
    Instant::from_micros(micros).unwrap()
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn request(cost: u64) -> Request {
    let check = |name: &str, limit_text| Check::new(Key::new("t", name, ["k"]), limit(limit_text), cost);
    Request::new(Op::Take, [check("a", "10/1m token-bucket"), check("b", "20/1h fixed-window")]).unwrap()
}

/// What a store tells of a limit of which `used` units are taken.
fn told(limit: Limit, used: u64, cost: u64) -> Layer {
    let key = Key::new("t", "x", ["k"]);
    let mut cell = Cell::default();
    let _ = decide(&Request::take(key.clone(), limit, used).unwrap(), at(NOW), &mut cell);
    decide(&Request::take(key, limit, cost).unwrap(), at(NOW), &mut cell).layers()[0]
}

fn sources(decisions: &Decisions) -> Vec<Source> {
    decisions.layers().iter().map(|layer| layer.source).collect()
}

#[test]
fn an_engine_s_record_is_the_store_s_word() {
    let layers = [told(limit("10/1m token-bucket"), 3, 2), told(limit("20/1h fixed-window"), 3, 2)];
    let record = Record::new(true, at(NOW), layers);
    let decisions = record.decisions(&request(2)).unwrap();
    assert_eq!(
        (record.source(), decisions.source, sources(&decisions)),
        (Source::Store, Source::Store, vec![Source::Store; 2])
    );
    assert!(decisions.charged() && decisions.layers()[0].charged());
}

#[test]
fn a_remembered_refusal_tells_the_wait_from_now_and_nothing_of_what_was_not_asked() {
    let full = told(limit("10/1m token-bucket"), 10, 1);
    for second in [0, 1, 5] {
        let record = Record::from_cache(at(NOW + second * 1_000_000), [Some(full), None]);
        let decisions = record.decisions(&request(1)).unwrap();
        assert!(!decisions.allowed && !decisions.charged());
        assert_eq!((decisions.source, sources(&decisions)), (Source::Cache, vec![Source::Cache, Source::Unasked]));
        assert_eq!(decisions.retry_after.unwrap().as_secs(), 6 - second, "10 a minute");
        let unasked = decisions.layers()[1];
        assert!(unasked.allowed && !unasked.source.has_numbers() && unasked.remaining == 0);
    }
    let late = Record::from_cache(at(NOW + 6_000_000), [Some(full), None]);
    assert!(late.decisions(&request(1)).is_err(), "a refusal that no longer holds is no answer");
}

#[test]
fn a_fallback_is_told_by_its_share_and_what_nobody_counted_has_no_numbers() {
    let share = limit("3/1m token-bucket");
    let (half, full) = (told(share, 1, 1), told(share, 3, 1));
    let decisions = Record::from_fallback(true, at(NOW), [Some((half, share)), None]).decisions(&request(1)).unwrap();
    assert!(decisions.allowed && !decisions.charged(), "nothing that the store could give back");
    assert_eq!((decisions.source, sources(&decisions)), (Source::Open, vec![Source::Local, Source::Open]));
    let [local, open] = decisions.layers() else { unreachable!() };
    assert_eq!((local.limit, local.remaining), (3, 1));
    assert_eq!((open.limit, open.remaining, open.source.has_numbers()), (20, 0, false));

    let refused = Record::from_fallback(false, at(NOW), [Some((full, share)), None]);
    let decisions = refused.decisions(&request(1)).unwrap();
    assert!(!decisions.allowed && !decisions.layers()[0].allowed && decisions.layers()[1].allowed);
    assert_eq!(decisions.retry_after.unwrap().as_secs(), 20, "3 a minute");
    let all = Record::from_fallback(true, at(NOW), [Some((half, share)), Some((half, share))]);
    assert_eq!(all.source(), Source::Local);

    let wrong = Record::from_fallback(false, at(NOW), [Some((half, share)), None]);
    assert!(wrong.decisions(&request(1)).is_err(), "the core checks the fallback's verdict too");
}

#[test]
fn the_last_of_64_checks_can_be_left_unasked() {
    let checks = (0..64).map(|n: u32| Check::new(Key::new("t", "x", [n.to_string()]), limit("1/1h fixed-window"), 1));
    let request = Request::new(Op::Take, checks).unwrap();
    let full = told(limit("1/1h fixed-window"), 1, 1);
    let record = Record::from_cache(at(NOW), (0..64).map(|n| (n % 2 == 0).then_some(full)));
    let decisions = record.decisions(&request).unwrap();
    for (n, layer) in decisions.layers().iter().enumerate() {
        assert_eq!(layer.source, if n % 2 == 0 { Source::Cache } else { Source::Unasked });
    }
}

#[test]
fn views_are_where_they_were() {
    // A record's layers are what the checker of histories reads.
    let layer = told(limit("10/1m token-bucket"), 3, 2);
    assert!(matches!(layer.view, View::Bucket(_)));
    assert_eq!(Record::from_cache(at(NOW), [Some(layer)]).layers(), [layer]);
}
