//! The history checker: fast enough for a million calls, and blind to nothing that is done to a history.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "all of this is a test, the helpers too: it may stop on the first thing that is not as it should be"
)]

use std::collections::HashMap;
use std::time::{Duration, Instant as Time};

use limiter_conformance::history::{Answer, Asked, Call, History, Replay};
use limiter_conformance::{Numbering, Random};
use limiter_core::{Cell, Cells, Check, Instant, Key, Limit, Op, Request, decide};

/// A store whose calls are recorded as they are decided.
struct Recorder {
    history: History,
    cells: HashMap<usize, Cell>,
    now: u64,
}

struct Loaded(Vec<Cell>);

impl Cells for Loaded {
    fn cell(&mut self, index: usize) -> &mut Cell {
        &mut self.0[index]
    }
}

impl Recorder {
    fn new(limits: &[&str]) -> Self {
        let keys = (0..limits.len()).map(|index| Key::new("t", "key", [index.to_string()])).collect();
        let limits = limits.iter().map(|text| text.parse::<Limit>().unwrap()).collect();
        Self { history: History::new(keys, limits), cells: HashMap::new(), now: 1_764_559_423_123_456 }
    }

    /// Decides a call on keys that have the limits of the same index. Calls overlap: each lasts 20 µs.
    fn call(&mut self, op: Op, costs: &[(usize, u64)]) -> bool {
        let id = u64::try_from(self.history.calls.len()).unwrap();
        let checks: Vec<Asked> = costs.iter().map(|&(key, cost)| Asked { key, limit: key, cost }).collect();
        let request = Request::new(
            op,
            checks.iter().map(|asked| {
                Check::new(self.history.keys[asked.key].clone(), self.history.limits[asked.limit], asked.cost)
            }),
        );
        let cells = costs.iter().map(|(key, _)| self.cells.get(key).cloned().unwrap_or_default()).collect();
        let mut loaded = Loaded(cells);
        let at = Instant::from_micros(self.now).unwrap();
        let record = decide(&request.unwrap(), at, &mut loaded);
        for ((key, _), cell) in costs.iter().zip(loaded.0) {
            self.cells.insert(*key, cell);
        }
        let (process, task) = (u32::try_from(id % 3).unwrap(), u32::try_from(id % 8).unwrap());
        let answer = Answer::Decided { allowed: record.allowed, at, layers: record.layers().to_vec() };
        let (invoked, returned) = (self.now - 10, self.now + 10);
        self.history.calls.push(Call { process, task, id, op, checks, invoked, returned, answer });
        record.allowed
    }
}

/// A hot key, 16 warm keys and a layered set under all five algorithms, so many calls, 10 µs apart.
fn recorded(calls: usize) -> History {
    let mut limits = vec![
        "3000/100ms token-bucket burst=2000",
        "6000/100ms fixed-window",
        "5000/100ms sliding-counter",
        "4000/100ms sliding-log",
        "3000/100ms leaky-bucket queue=2000",
    ];
    limits.extend(
        ["150/100ms sliding-log", "150/100ms token-bucket", "100/50ms fixed-window", "90/70ms sliding-counter"]
            .repeat(4),
    );
    let mut recorder = Recorder::new(&limits);
    let mut random = Random::new(7);
    for _ in 0..calls {
        recorder.now += random.below(20);
        let cost = random.below(2) + 1;
        let warm = usize::try_from(random.below(16)).unwrap() + 5;
        match random.below(10) {
            0..5 => recorder.call(Op::Take, &[(0, cost)]),
            5..8 => recorder.call(Op::Take, &[(warm, cost)]),
            8 => recorder.call(Op::Take, &[(1, 1), (2, 1), (3, 1), (warm, cost), (4, 1)]),
            _ => recorder.call(Op::Peek, &[(0, cost), (warm, cost)]),
        };
    }
    recorder.history
}

/// One key under one limit, asked so often, with cost 1 and 1 ms apart.
fn one_key(limit: &str, calls: usize) -> History {
    let mut recorder = Recorder::new(&[limit]);
    for _ in 0..calls {
        recorder.now += 1_000;
        recorder.call(Op::Take, &[(0, 1)]);
    }
    recorder.history
}

fn replay(history: &History) -> Replay {
    history.replay(Numbering::Dense)
}

fn layer(call: &mut Call) -> (&mut bool, &mut Instant, &mut limiter_core::Layer) {
    match &mut call.answer {
        Answer::Decided { allowed, at, layers } => (allowed, at, &mut layers[0]),
        other => panic!("not decided: {other:?}"),
    }
}

#[test]
fn a_million_calls_are_checked_in_under_ten_seconds() {
    let history = recorded(1_000_000);
    let started = Time::now();
    let found = replay(&history);
    let took = started.elapsed();
    assert!(found.is_exact(), "{found}");
    assert!(found.admitted > 300_000 && found.denied > 300_000, "too easy: {found}");
    let windows = Time::now();
    for window in history.windows() {
        assert!(window.most <= window.bound, "{window:?}");
    }
    let windows = windows.elapsed();
    println!("{found}\nreplayed in {took:?}, windows counted in {windows:?}");
    // The promise is for what ships; without optimisation it may take longer.
    let bound = if cfg!(debug_assertions) { 60 } else { 10 };
    assert!(took + windows < Duration::from_secs(bound), "{took:?} and {windows:?}");
}

#[test]
fn calls_may_come_in_any_order() {
    let mut history = recorded(20_000);
    let mut random = Random::new(3);
    for index in (1..history.calls.len()).rev() {
        history.calls.swap(index, usize::try_from(random.below(u64::try_from(index).unwrap() + 1)).unwrap());
    }
    assert!(replay(&history).is_exact());
}

#[test]
fn a_wrong_verdict_is_a_difference() {
    for limit in
        ["5/1s sliding-log", "5/1s token-bucket", "5/1s fixed-window", "5/1s sliding-counter", "5/1s leaky-bucket"]
    {
        let mut history = one_key(limit, 8);
        let (allowed, _, layer) = layer(&mut history.calls[7]);
        assert!(!*allowed, "{limit}");
        // Admitted in excess, on a state that would have let it pass.
        *allowed = true;
        layer.version += 1;
        assert!(replay(&history).differences > 0, "{limit}: an excess call was not seen");
    }
}

#[test]
fn an_answer_from_another_state_is_a_difference() {
    for limit in ["50/1s sliding-log", "50/1s token-bucket", "50/1s fixed-window", "50/1s sliding-counter"] {
        let mut history = one_key(limit, 20);
        let (_, _, before) = layer(&mut history.calls[10]);
        let view = before.view;
        let (_, _, after) = layer(&mut history.calls[11]);
        after.view = view;
        let found = replay(&history);
        assert_eq!(found.differences, 1, "{limit}: {found}");
    }
}

#[test]
fn a_call_that_nobody_tells_of_is_a_difference() {
    let mut history = one_key("50/1s sliding-log", 30);
    history.calls.remove(10);
    assert!(replay(&history).differences > 0);
}

#[test]
fn an_unknown_call_explains_a_missing_version() {
    for limit in [
        "50/1s fixed-window",
        "50/1s token-bucket",
        "50/1s sliding-counter",
        "50/1s leaky-bucket",
        "50/10ms sliding-log",
    ] {
        let mut history = one_key(limit, 60);
        history.calls[10].answer = Answer::Unknown;
        let found = replay(&history);
        assert!(found.is_exact() && found.missing == 1 && found.unknown == 1, "{limit}: {found}");
        let ledger = history.ledger(0);
        assert!(ledger.explains(ledger.admitted, 1) && ledger.explains(ledger.admitted + 1, 1));
        assert!(!ledger.explains(ledger.admitted + 2, 1), "one unknown call of cost 1, sent once, is not two units");
    }
}

#[test]
fn an_unknown_call_that_was_not_applied_explains_itself() {
    let mut history = one_key("50/1s token-bucket", 10);
    let mut lost = history.calls[5].clone();
    lost.answer = Answer::Unknown;
    history.calls.push(lost);
    let found = replay(&history);
    assert!(found.is_exact() && found.missing == 0, "{found}");
}

/// A store that collects what has expired, and clients of whom some are never told what became of their call: whichever those are,
/// and whether they made a key, prolonged it or came last, the rest is explained.
#[test]
fn any_calls_may_be_unknown_and_the_rest_is_explained() {
    for (seed, limit) in (0..40).flat_map(|seed| {
        let limits = ["5/50ms fixed-window", "5/50ms sliding-log", "5/50ms sliding-counter", "5/50ms token-bucket"];
        limits.map(|limit| (seed, limit))
    }) {
        let (mut recorder, mut random) = (Recorder::new(&[limit]), Random::new(seed));
        let parsed: Limit = limit.parse().unwrap();
        for _ in 0..400 {
            recorder.now += if random.below(10) == 0 { random.below(200_000) } else { random.below(12_000) };
            let gone =
                |cell: &Cell| cell.state.as_ref().is_some_and(|state| state.reset_at(&parsed).micros() <= recorder.now);
            if recorder.cells.get(&0).is_some_and(gone) && random.below(2) == 0 {
                recorder.cells.clear();
            }
            recorder.call(if random.below(4) == 0 { Op::Peek } else { Op::Take }, &[(0, random.below(2) + 1)]);
            if random.below(5) == 0 {
                recorder.history.calls.last_mut().unwrap().answer = Answer::Unknown;
            }
        }
        let replay = replay(&recorder.history);
        assert!(replay.is_exact(), "{limit}, seed {seed}: {replay}");
        assert!(replay.missing > 0, "{limit}, seed {seed}: {replay}");
    }
}

#[test]
fn versions_that_go_down_are_lost_writes() {
    let limit = "20/1s sliding-log";
    let mut recorder = Recorder::new(&[limit]);
    let call = |recorder: &mut Recorder| {
        recorder.now += 1_000;
        recorder.call(Op::Take, &[(0, 2)])
    };
    for _ in 0..4 {
        call(&mut recorder);
    }
    let saved = recorder.cells.clone();
    for _ in 0..3 {
        call(&mut recorder);
    }
    // The store falls back by three writes, and goes on from there.
    recorder.cells = saved;
    for _ in 0..8 {
        call(&mut recorder);
    }
    let found = replay(&recorder.history);
    assert_eq!(found.differences, 0, "{found}");
    let [lost] = found.lost.as_slice() else { panic!("{found}") };
    assert_eq!(lost.cost, 6, "three writes of 2 units: {lost:?}");
    // Extra is at most what was lost: the log let 20 pass, and 6 more.
    assert_eq!(recorder.history.ledger(0).admitted, 26);
}

/// Of two calls that overlap, the one that began first may be decided last: then the lower version shows how far the store fell.
#[test]
fn a_fall_is_as_deep_as_the_lowest_version_after_it() {
    let mut recorder = Recorder::new(&["1000/1h sliding-log"]);
    let mut kept = None;
    for call in 0..30 {
        recorder.now += 1_000;
        if call == 10 {
            kept = Some(recorder.cells.clone());
        }
        if call == 20 {
            recorder.cells = kept.take().unwrap();
        }
        recorder.call(Op::Take, &[(0, 1 + call % 3)]);
    }
    let calls = &mut recorder.history.calls;
    calls[21].invoked = calls[20].invoked - 5;
    // And one that only looked began before both, and was decided after them.
    recorder.call(Op::Peek, &[(0, 1)]);
    let calls = &mut recorder.history.calls;
    calls[30].invoked = calls[20].invoked - 7;
    let replay = replay(&recorder.history);
    assert_eq!((replay.differences, replay.lost.len()), (0, 1), "{replay}");
    assert_eq!(replay.lost[0].cost, (10..20).map(|call| 1 + call % 3).sum::<u64>());
}

#[test]
fn a_store_that_forgets_everything_has_lost_what_was_live() {
    let mut recorder = Recorder::new(&["10/1m sliding-log"]);
    for _ in 0..7 {
        recorder.now += 1_000;
        recorder.call(Op::Take, &[(0, 1)]);
    }
    recorder.cells.clear();
    for _ in 0..12 {
        recorder.now += 1_000;
        recorder.call(Op::Take, &[(0, 1)]);
    }
    let found = replay(&recorder.history);
    assert!(!found.is_exact() && found.differences == 0, "{found}");
    assert_eq!(found.lost.iter().map(|lost| lost.cost).sum::<u64>(), 7, "{found}");
}

#[test]
fn a_key_that_was_collected_has_lost_nothing() {
    let mut recorder = Recorder::new(&["3/10ms sliding-log"]);
    for round in 0..50 {
        recorder.now += 20_000;
        if round % 3 == 0 {
            recorder.cells.clear();
        }
        recorder.call(Op::Take, &[(0, 2)]);
        recorder.call(Op::Take, &[(0, 2)]);
    }
    let found = replay(&recorder.history);
    assert!(found.is_exact(), "{found}");
}

#[test]
fn an_early_instant_shows() {
    let mut history = one_key("50/1s fixed-window", 10);
    let (_, at, _) = layer(&mut history.calls[5]);
    *at = Instant::from_micros(at.micros() - 5_000).unwrap();
    assert_eq!(replay(&history).backward, 4_000);
}

#[test]
fn the_window_check_needs_no_versions() {
    // Two nodes of an engine that counts for each process let twice the limit pass, and each history by itself is exact.
    let mut history = one_key("50/1s sliding-log", 60);
    let other = history.calls.clone();
    history.calls.extend(other);
    let [window] = history.windows().try_into().unwrap();
    assert_eq!((window.most, window.bound), (100, 50));
}

#[test]
fn a_layer_that_was_charged_for_a_refusal_is_a_difference() {
    let mut recorder = Recorder::new(&["2/1m sliding-log", "10/1m sliding-log"]);
    for _ in 0..6 {
        recorder.now += 1_000;
        if !recorder.call(Op::Take, &[(0, 1), (1, 1)]) {
            // The outer layer is charged all the same.
            recorder.call(Op::Take, &[(1, 1)]);
            recorder.history.calls.pop();
        }
    }
    assert!(!replay(&recorder.history).is_exact());
}

#[test]
fn numbers_may_only_grow_where_they_are_a_stores_revision() {
    let mut history = one_key("50/1s sliding-log", 30);
    for call in &mut history.calls {
        let (_, _, layer) = layer(call);
        layer.version = layer.version * 7 + 3;
    }
    assert!(history.replay(Numbering::Growing).is_exact());
    assert!(!history.replay(Numbering::Dense).is_exact());
}

#[test]
fn a_history_that_names_what_it_has_not_is_told_so() {
    let mut history = one_key("50/1s sliding-log", 3);
    history.calls[1].checks[0].key = 7;
    assert!(replay(&history).differences > 0);
}
