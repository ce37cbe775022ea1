//! The memory engine: exact across threads, bounded, and garbage that decides nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use limiter_core::{
    Algorithm, Check, CheckError, ErrorKind, Instant, Key, Limit, ManualClock, Memory, Op, Outcome, Record, Request,
};
use proptest::collection::vec;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn at(micros: u64) -> Instant {
    Instant::from_micros(micros).unwrap()
}

fn key(name: impl AsRef<[u8]>) -> Key {
    Key::new("scope", "rule", [name])
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// An engine with room for so many keys and log entries, on a clock that the test holds.
fn table(max_keys: usize, max_log_entries: usize) -> (Memory<ManualClock>, ManualClock) {
    let clock = ManualClock::at(at(START));
    let memory = Memory::builder().max_keys(max_keys).max_log_entries(max_log_entries).clock(clock.clone()).build();
    (memory, clock)
}

fn record(outcome: &Outcome) -> Record {
    outcome.record().unwrap().clone()
}

fn kind<T: std::fmt::Debug>(result: Result<T, CheckError>) -> ErrorKind {
    match result.unwrap_err() {
        CheckError::NotSent(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

fn layered(checks: &[(&str, &str)]) -> Request {
    Request::new(Op::Take, checks.iter().map(|(name, text)| Check::new(key(name), limit(text), 1))).unwrap()
}

#[test]
fn eight_threads_at_one_key_and_instant_are_admitted_exactly_the_limit() {
    for algorithm in Algorithm::ALL {
        let (memory, _) = table(1 << 20, 1 << 20);
        let (limit, key, admitted) = (limit(&format!("1000/1h {algorithm}")), key("hot"), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let verdict = memory.take(&key, &limit, 1).unwrap();
                        admitted.fetch_add(u64::from(verdict.allowed()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1_000, "{algorithm}");
    }
}

#[test]
fn a_refused_layer_leaves_the_other_uncharged_whoever_else_is_at_it() {
    let (memory, _) = table(1 << 20, 1 << 20);
    let forth = layered(&[("narrow", "100/1h sliding-log"), ("wide", "1000/1h token-bucket")]);
    let back = layered(&[("wide", "1000/1h token-bucket"), ("narrow", "100/1h sliding-log")]);
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for request in [&forth, &back, &forth, &back] {
            let (memory, admitted) = (&memory, &admitted);
            scope.spawn(move || {
                for _ in 0..500 {
                    admitted.fetch_add(u64::from(record(&memory.decide(request, None)).allowed), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 100);
    let peek = Request::new(Op::Peek, forth.checks().iter().cloned()).unwrap();
    let decisions = memory.decide(&peek, None).decisions(&peek).unwrap();
    let remaining: Vec<_> = decisions.layers().iter().map(|layer| layer.remaining).collect();
    assert_eq!(remaining, [0, 900]);
}

#[test]
fn a_full_table_drops_what_has_expired_first_and_a_live_debt_never() {
    let (memory, clock) = table(3, 100);
    let (short, long) = (limit("1/1s fixed-window"), limit("1/1h sliding-log"));
    assert!(memory.take(&key("long"), &long, 1).unwrap().allowed());
    assert!(memory.take(&key("short 1"), &short, 1).unwrap().allowed());
    assert!(memory.take(&key("short 2"), &short, 1).unwrap().allowed());

    assert_eq!(kind(memory.take(&key("new"), &short, 1)), ErrorKind::Full, "all three are live");
    assert!(!memory.take(&key("long"), &long, 1).unwrap().allowed(), "a known key goes on");

    clock.set(at(START + SECOND));
    assert!(memory.take(&key("new 1"), &short, 1).unwrap().allowed());
    assert!(memory.take(&key("new 2"), &short, 1).unwrap().allowed());
    assert_eq!(kind(memory.take(&key("new 3"), &short, 1)), ErrorKind::Full);
    assert!(!memory.take(&key("long"), &long, 1).unwrap().allowed(), "its debt was not forgotten");
    assert_eq!(memory.len(), 3);
}

#[test]
fn a_full_table_still_denies_what_a_limit_denies() {
    let (memory, _) = table(1, 100);
    assert!(memory.take(&key("known"), &limit("1/1h sliding-log"), 1).unwrap().allowed());
    let refused =
        record(&memory.decide(&layered(&[("known", "1/1h sliding-log"), ("new", "9/1h token-bucket")]), None));
    assert!(!refused.allowed);
    let full = memory.decide(&layered(&[("known", "2/1h sliding-log"), ("new", "9/1h token-bucket")]), None);
    assert!(matches!(full, Outcome::NotSent(error) if error.kind() == ErrorKind::Full));
    // And the known key was not charged for the request that had no room.
    assert_eq!(memory.take(&key("known"), &limit("2/1h sliding-log"), 0).unwrap().decision().remaining, 1);
}

#[test]
fn what_makes_room_may_be_one_of_the_requests_own_keys() {
    let (memory, clock) = table(2, 100);
    let text = "1/1s fixed-window";
    assert!(record(&memory.decide(&layered(&[("a", text), ("b", text)]), None)).allowed);
    clock.set(at(START + SECOND));
    assert!(record(&memory.decide(&layered(&[("c", text), ("a", text)]), None)).allowed);
    assert_eq!(memory.len(), 2);
    assert!(!memory.take(&key("a"), &limit(text), 1).unwrap().allowed());
    assert!(!memory.take(&key("c"), &limit(text), 1).unwrap().allowed());
}

#[test]
fn the_entries_of_all_logs_are_bounded_too() {
    let (memory, clock) = table(100, 5);
    let (log, bucket) = (limit("10/1s sliding-log"), limit("10/1s token-bucket"));
    for step in 0..5 {
        clock.set(at(START + step));
        assert!(memory.take(&key("log"), &log, 1).unwrap().allowed());
    }
    clock.set(at(START + 5));
    assert_eq!(kind(memory.take(&key("log"), &log, 1)), ErrorKind::Full);
    assert_eq!(kind(memory.take(&key("other"), &log, 1)), ErrorKind::Full);
    assert!(memory.take(&key("bucket"), &bucket, 1).unwrap().allowed(), "other states need none");
    clock.set(at(START + SECOND + 1));
    assert!(memory.take(&key("log"), &log, 1).unwrap().allowed(), "in the place of the two that have expired");
    assert!(memory.take(&key("log"), &log, 1).unwrap().allowed(), "in the same place");
    clock.set(at(START + 2 * SECOND + 1));
    assert!(memory.take(&key("other"), &log, 1).unwrap().allowed(), "the first log has expired");
}

#[test]
fn the_longest_log_fits_a_table_of_the_usual_size() {
    let clock = ManualClock::at(at(START));
    let memory = Memory::builder().clock(clock.clone()).build();
    let (limit, key) = (limit("100000/1d sliding-log"), key("long"));
    for step in 0..100_000 {
        clock.set(at(START + step));
        assert!(memory.take(&key, &limit, 1).unwrap().allowed(), "{step}");
    }
    assert!(!memory.take(&key, &limit, 1).unwrap().allowed());
}

#[test]
fn a_look_under_a_shorter_limit_shortens_no_life() {
    let (memory, clock) = table(1, 100);
    let (long, short) = (limit("1/1h fixed-window"), limit("1/1s fixed-window"));
    assert!(memory.take(&key("a"), &long, 1).unwrap().allowed());
    assert!(memory.take(&key("a"), &short, 0).unwrap().allowed());
    let peek = Request::new(Op::Peek, [Check::new(key("a"), short, 0)]).unwrap();
    assert!(record(&memory.decide(&peek, None)).allowed);
    clock.set(at(START + 2 * SECOND));
    assert_eq!(kind(memory.take(&key("b"), &short, 1)), ErrorKind::Full, "the hour's debt is still there");
    assert!(!memory.take(&key("a"), &long, 1).unwrap().allowed());
}

proptest! {
    #[test]
    fn the_synchronous_path_decides_as_a_request_does(
        algorithms in vec(0..5_usize, 1..3),
        checks in vec((0..3_usize, -3_000_000..3_000_000_i64, 0..4_u64), 1..60),
    ) {
        let ((left, left_clock), (right, right_clock)) = (table(100, 1_000), table(100, 1_000));
        let mut now = START;
        for (index, (name, step, cost)) in checks.into_iter().enumerate() {
            now = now.saturating_add_signed(step / 8);
            left_clock.set(at(now));
            right_clock.set(at(now));
            let algorithm = Algorithm::ALL[algorithms[index % algorithms.len()]];
            let (limit, key) = (limit(&format!("4/1s {algorithm}")), key(["a", "b", "c"][name]));
            let one = left.take(&key, &limit, cost).map(|verdict| verdict.decision());
            let request = Request::take(key, limit, cost).unwrap();
            let other = right.decide(&request, None).decisions(&request).map(|decisions| decisions.layers()[0]);
            prop_assert_eq!(one.map_err(|error| error.to_string()), other.map_err(|error| error.to_string()));
            prop_assert_eq!(left.len(), right.len());
        }
    }
}

#[test]
fn a_key_comes_and_goes_without_leaving_anything() {
    let (memory, clock) = table(1 << 20, 1 << 20);
    let (limit, mut now) = (limit("5/1s token-bucket"), START);
    for client in 0..300_000_u64 {
        now += 1_000;
        clock.set(at(now));
        assert!(memory.take(&key(client.to_string()), &limit, 1).unwrap().allowed());
    }
    // Some 200 are live at any time, and the rest is kept for a minute of grace.
    assert!(memory.len() < 61_000, "{} keys", memory.len());
}

#[test]
fn refunds_and_new_limits_leave_no_leftovers_in_the_way() {
    let (memory, clock) = table(4, 100);
    let (hours, seconds) = (limit("10/1h token-bucket"), limit("10/1s token-bucket"));
    let refund = |taken| Request::new(Op::Refund { taken }, [Check::new(key("a"), hours, 10)]).unwrap();
    let mut now = START;
    for _ in 0..10_000 {
        now += 10;
        clock.set(at(now));
        let taken = memory.take(&key("a"), &hours, 10).unwrap();
        assert!(taken.allowed());
        assert!(record(&memory.decide(&refund(taken.decision().at), None)).allowed);
    }
    // Live for an hour under one limit, and under the next for a second only: it then makes room at once.
    for name in ["b", "c", "d"] {
        assert!(memory.take(&key(name), &hours, 10).unwrap().allowed());
        assert!(!memory.take(&key(name), &seconds, 10).unwrap().allowed());
    }
    clock.set(at(now + SECOND));
    for name in ["b", "c", "d"] {
        assert!(memory.take(&key(name), &seconds, 10).unwrap().allowed(), "{name}");
    }
    clock.set(at(now + 3 * SECOND));
    for name in ["e", "f", "g", "h"] {
        assert!(memory.take(&key(name), &seconds, 1).unwrap().allowed(), "{name}");
    }
}

#[test]
fn a_clock_that_steps_back_finds_what_it_left() {
    let (memory, clock) = table(1 << 20, 1 << 20);
    let limit = limit("1/1s fixed-window");
    clock.set(at(START + 10 * SECOND));
    assert!(memory.take(&key("a"), &limit, 1).unwrap().allowed());
    // Others come, well after it has expired; then the clock is set back.
    clock.set(at(START + 40 * SECOND));
    for client in 0..1_000_u64 {
        assert!(memory.take(&key(client.to_string()), &limit, 1).unwrap().allowed());
    }
    clock.set(at(START + 10 * SECOND));
    assert!(!memory.take(&key("a"), &limit, 1).unwrap().allowed());
}

#[test]
fn each_write_adds_one_to_the_version_and_a_key_that_comes_back_goes_on_above() {
    let (memory, clock) = table(1, 100);
    let take = |name: &str, micros: u64| {
        clock.set(at(micros));
        let request = Request::take(key(name), limit("2/1s fixed-window"), 1).unwrap();
        let record = record(&memory.decide(&request, None));
        (record.allowed, record.layers().first().unwrap().version)
    };
    assert_eq!(take("a", START), (true, START), "a fresh key starts from its instant");
    assert_eq!(take("a", START), (true, START + 1));
    assert_eq!(take("a", START), (false, START + 1), "a denial writes nothing");
    // It expires, makes room for another, and comes back on a clock that has been set back.
    assert_eq!(take("b", START + SECOND), (true, START + SECOND));
    clock.set(at(START + 2 * SECOND));
    assert_eq!(take("a", START + 2 * SECOND), (true, START + 2 * SECOND));
    let reset = Request::new(Op::Reset, [Check::new(key("a"), limit("2/1s fixed-window"), 0)]).unwrap();
    assert!(record(&memory.decide(&reset, None)).allowed);
    assert!(memory.is_empty());
    assert_eq!(take("a", START), (true, START + 2 * SECOND + 1), "never below what it had");
}
