//! A batch over the slots of a cluster, played on nodes that are tables in this process: whole, in pieces, and with faults.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use limiter_core::script::{Part, SLOTS, Spread, slot_of};
use limiter_core::{
    Algorithm, Backend, Batch, Check, Error, ErrorKind, Instant, Key, Limit, ManualClock, Memory, Op, Outcome, Request,
};
use proptest::prelude::*;

const T: u64 = 1_764_559_423_123_456;

/// Decides a batch; a table never waits.
fn decide(node: &impl Backend, batch: &Arc<Batch>) -> Vec<Outcome> {
    let mut answer = pin!(node.submit(Arc::clone(batch)));
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcomes) => outcomes,
        Poll::Pending => panic!("a table that waits"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// It is not applied, for certain.
    NotSent,
    /// It is applied, and nobody learns it.
    Lost,
    /// It is not applied, and nobody learns it.
    Vanished,
}

struct Nodes([Memory; 3]);

impl Nodes {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Memory::new()))
    }

    fn of(&self, slot: u16) -> &Memory {
        assert!(slot < SLOTS);
        &self.0[usize::from(slot) % 3]
    }

    /// Plays a batch; `fault` says what becomes of each part, and from which round on it is late.
    fn play(&self, batch: Batch, late: usize, mut fault: impl FnMut(&Part) -> Fault) -> (Vec<Outcome>, usize) {
        let mut spread = Spread::new("test", Arc::new(batch));
        for round in 0.. {
            assert!(round < 400, "it does not end");
            let parts = spread.next(round >= late);
            if parts.is_empty() {
                return (spread.outcomes(), round);
            }
            for part in parts {
                let keys = part.batch.requests.iter().flat_map(Request::checks);
                assert!(keys.map(|check| slot_of(&check.key)).all(|slot| slot == part.slot));
                let failed = |kind| {
                    let failure = || Error::new("test", kind, "a fault");
                    let outcome = || {
                        if failure().kind().is_certain() {
                            Outcome::NotSent(failure())
                        } else {
                            Outcome::Unknown(failure())
                        }
                    };
                    part.batch.requests.iter().map(|_| outcome()).collect()
                };
                let outcomes = match fault(&part) {
                    Fault::None => decide(self.of(part.slot), &part.batch),
                    Fault::NotSent => failed(ErrorKind::NotSent),
                    Fault::Vanished => failed(ErrorKind::Unknown { in_flight: true }),
                    Fault::Lost => {
                        decide(self.of(part.slot), &part.batch);
                        failed(ErrorKind::Unknown { in_flight: true })
                    }
                };
                spread.answer(&part, outcomes);
            }
        }
        unreachable!("the loop has no end of its own")
    }

    fn left(&self, check: &Check) -> u64 {
        let peek = Request::new(Op::Peek, [Check::new(check.key.clone(), check.limit, 0)]).unwrap();
        let batch = Arc::new(Batch { requests: vec![peek], at: Some(at(0)) });
        let outcomes = decide(self.of(slot_of(&check.key)), &batch);
        outcomes[0].decisions(&batch.requests[0]).unwrap().layers()[0].remaining
    }
}

fn at(micros: u64) -> Instant {
    Instant::from_micros(T + micros).unwrap()
}

const LIMITS: [&str; 5] = [
    "9/1h fixed-window",
    "7/1h sliding-log",
    "8/1h sliding-counter",
    "6/1h token-bucket burst=5",
    "5/1h leaky-bucket queue=4",
];

/// A check of one of ten keys in five scopes; each key has its limit.
fn check(number: usize, cost: u64) -> Check {
    let limit: Limit = LIMITS[number % 5].parse().unwrap();
    Check::new(Key::new(format!("scope-{}", number / 2), "rule", [number.to_string()]), limit, cost)
}

fn request(op: Op, checks: &[(usize, u64)]) -> Request {
    Request::new(op, checks.iter().map(|(number, cost)| check(*number, *cost))).unwrap()
}

fn requests() -> impl Strategy<Value = Request> {
    let checks = prop::collection::btree_map(0..10_usize, 0..4_u64, 1..4);
    let op = prop_oneof![8 => Just(Op::Take), 1 => Just(Op::Peek)];
    (op, checks).prop_map(|(op, checks)| request(op, &checks.into_iter().collect::<Vec<_>>()))
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![6 => Just(Fault::None), 1 => Just(Fault::NotSent), 1 => Just(Fault::Lost), 1 => Just(Fault::Vanished)]
}

proptest! {
    /// One request after the other gets the answers of a single server: all but the versions, since a charge and its refund are
    /// two writes.
    #[test]
    fn one_by_one_it_is_as_on_a_single_server(requests in prop::collection::vec((requests(), 0..900_000_000_u64), 1..40)) {
        let (nodes, single) = (Nodes::new(), Memory::new());
        let mut now = 0;
        for (request, step) in requests {
            now += step;
            let batch = Batch { requests: vec![request.clone()], at: Some(at(now)) };
            let due = decide(&single, &Arc::new(batch.clone())).remove(0);
            let (mut got, _) = nodes.play(batch, usize::MAX, |_| Fault::None);
            prop_assert_eq!(got.remove(0).decisions(&request).unwrap(), due.decisions(&request).unwrap());
        }
    }

    /// A batch whose requests each keep to a scope is decided as on a single server, whatever the slots.
    #[test]
    fn a_batch_of_single_scopes_is_exact(
        asked in prop::collection::vec((0..10_usize, 0..4_u64, 0..8_u8), 1..60),
    ) {
        let (nodes, single) = (Nodes::new(), Memory::new());
        let requests = asked.iter().map(|(key, cost, kind)| match kind {
            0 => request(Op::Peek, &[(*key, *cost)]),
            1 => request(Op::Reset, &[(*key, 0)]),
            2 => request(Op::Refund { taken: at(0) }, &[(*key, *cost)]),
            3 => request(Op::Take, &[(*key, *cost), (key ^ 1, 1)]),
            _ => request(Op::Take, &[(*key, *cost)]),
        });
        let requests: Vec<Request> = requests.collect();
        let batch = Batch { requests: requests.clone(), at: Some(at(0)) };
        let due = decide(&single, &Arc::new(batch.clone()));
        let (got, rounds) = nodes.play(batch, usize::MAX, |_| Fault::None);
        prop_assert_eq!(rounds, 1);
        // Not the versions: a table starts those of a key that was reset where it has to, not where another would.
        for (request, (got, due)) in requests.iter().zip(got.iter().zip(&due)) {
            prop_assert_eq!(got.decisions(request).unwrap(), due.decisions(request).unwrap());
        }
    }

    /// Whatever fails, and whenever time is up: what is told is what is stored, up to what is told to be unknown; and what was
    /// refused or not sent has left nothing.
    #[test]
    fn nothing_is_admitted_twice_and_nothing_refused_is_charged(
        batches in prop::collection::vec((prop::collection::vec(requests(), 1..12), 0..6_usize), 1..5),
        faults in prop::collection::vec(faults(), 0..60),
        quiet in any::<bool>(),
    ) {
        let nodes = Nodes::new();
        let mut faults = faults.into_iter();
        let mut told: HashMap<usize, (u64, u64)> = HashMap::new();
        for (requests, late) in batches {
            let batch = Batch { requests: requests.clone(), at: Some(at(0)) };
            let late = if quiet { usize::MAX } else { late };
            let (outcomes, _) = nodes.play(batch, late, |_| if quiet { Fault::None } else { faults.next().unwrap_or(Fault::None) });
            prop_assert_eq!(outcomes.len(), requests.len());
            for (request, outcome) in requests.iter().zip(&outcomes) {
                if let Ok(record) = outcome.record() {
                    prop_assert!(record.decisions(request).is_ok(), "{:?}", record);
                }
                prop_assert!(!(quiet && outcome.record().is_err()), "{:?}", outcome);
                if request.op() != Op::Take {
                    continue;
                }
                for number in 0..10 {
                    let cost: u64 = request.checks().iter().filter(|c| c.key == check(number, 0).key).map(|c| c.cost).sum();
                    let (allowed, unknown) = told.entry(number).or_default();
                    match outcome {
                        Outcome::Allowed(_) => *allowed += cost,
                        Outcome::Unknown(_) => *unknown += cost,
                        Outcome::Denied(_) | Outcome::NotSent(_) => {}
                    }
                }
            }
        }
        for (number, (allowed, unknown)) in told {
            let check = check(number, 0);
            let taken = check.limit.capacity() - nodes.left(&check);
            prop_assert!(allowed <= taken, "{}: {} allowed and {} taken", check.limit, allowed, taken);
            prop_assert!(taken <= allowed + unknown, "{}: {} allowed, {} unknown, {} taken", check.limit, allowed, unknown, taken);
        }
    }
}

proptest! {
    /// Each node has its own clock, and none is right: no answer is ever at odds with its views, and what is taken can be given
    /// back, by the one instant that the answer names. Only a window or a log to which that instant says another thing than the
    /// clock of its node did keeps what it took.
    #[test]
    fn clocks_that_differ_make_no_answer_wrong(
        skews in prop::array::uniform3(0..3_000_000_u64),
        asked in prop::collection::vec((requests(), 0..900_000_000_u64, any::<bool>()), 1..40),
    ) {
        let mut nodes = Skewed::new(skews);
        for (request, step, back) in asked {
            nodes.pass(step);
            let decided = nodes.play(&request).decisions(&request).unwrap();
            if back && decided.allowed && request.op() == Op::Take {
                let before = decided.layers();
                let refund = Request::new(Op::Refund { taken: decided.at }, request.checks().iter().cloned()).unwrap();
                let after = nodes.play(&refund).decisions(&refund).unwrap();
                for (check, (before, after)) in request.checks().iter().zip(before.iter().zip(after.layers())) {
                    let named = is_named(&check.limit, nodes.taken[&check.key], decided.at);
                    // A window may have rolled on in between; then all of it is there.
                    let due = before.remaining + if named { check.cost } else { 0 };
                    prop_assert!(after.remaining >= due, "{}: {} and then {}", check.limit, before.remaining, after.remaining);
                }
            }
        }
    }
}

fn period(limit: &Limit) -> u64 {
    u64::try_from(limit.period().as_micros()).unwrap()
}

/// Whether a refund that names `at` finds what was taken at `taken`.
fn is_named(limit: &Limit, taken: Instant, at: Instant) -> bool {
    let window = |instant: Instant| instant.micros() / period(limit);
    match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingCounter => window(taken) == window(at),
        Algorithm::SlidingLog => at <= taken,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => true,
    }
}

/// Nodes whose clocks differ.
struct Skewed {
    skews: [u64; 3],
    clocks: [ManualClock; 3],
    nodes: [Memory<ManualClock>; 3],
    passed: u64,
    /// When each key was last taken from, by the clock of its node.
    taken: HashMap<Key, Instant>,
}

impl Skewed {
    fn new(skews: [u64; 3]) -> Self {
        let clocks = skews.map(|skew| ManualClock::at(at(skew)));
        let nodes = std::array::from_fn(|node| Memory::builder().clock(clocks[node].clone()).build());
        Self { skews, clocks, nodes, passed: 0, taken: HashMap::new() }
    }

    fn pass(&mut self, micros: u64) {
        self.passed += micros;
        self.clocks.iter().zip(self.skews).for_each(|(clock, skew)| clock.set(at(skew + self.passed)));
    }

    fn play(&mut self, request: &Request) -> Outcome {
        let mut spread = Spread::new("test", Arc::new(Batch::of(request.clone())));
        loop {
            let parts = spread.next(false);
            if parts.is_empty() {
                return spread.outcomes().remove(0);
            }
            for part in parts {
                let outcomes = decide(&self.nodes[usize::from(part.slot) % 3], &part.batch);
                for (request, outcome) in part.batch.requests.iter().zip(&outcomes) {
                    if let (Op::Take, Outcome::Allowed(record)) = (request.op(), outcome) {
                        self.taken.extend(request.checks().iter().map(|check| (check.key.clone(), record.at)));
                    }
                }
                spread.answer(&part, outcomes);
            }
            // Between two rounds time goes by.
            self.pass(300);
        }
    }
}

/// The nodes' clocks lie on two sides of an hour's end: the instant told is that of the slow one, and to the window of the
/// other a refund of it comes too late. That keeps a unit for the rest of the window, and gives none twice.
#[test]
fn a_refund_across_a_windows_end_stays_on_the_safe_side() {
    let keys: Vec<Check> = (0..10).step_by(5).map(|number| check(number, 1)).collect();
    let node = |check: &Check| usize::from(slot_of(&check.key)) % 3;
    assert_ne!(node(&keys[0]), node(&keys[1]), "two nodes");
    let hour = period(&keys[0].limit);
    let mut skews = [0; 3];
    skews[node(&keys[1])] = 1_000_000;
    let mut nodes = Skewed::new(skews);
    nodes.pass(hour - at(0).micros() % hour - 500_000);
    let take = Request::new(Op::Take, keys.clone()).unwrap();
    let decided = nodes.play(&take).decisions(&take).unwrap();
    assert!(decided.allowed && nodes.taken[&keys[0].key] < nodes.taken[&keys[1].key]);
    let refund = Request::new(Op::Refund { taken: decided.at }, keys).unwrap();
    let after = nodes.play(&refund).decisions(&refund).unwrap();
    assert_eq!(after.layers().iter().map(|layer| layer.remaining).collect::<Vec<_>>(), [9, 8]);
}

/// Two keys in different slots, the first of which is narrower.
fn wide_and_narrow() -> (Check, Check) {
    let check = |scope: &str, limit: &str| Check::new(Key::new(scope, "r", ["k"]), limit.parse().unwrap(), 1);
    (check("everybody", "100/1h fixed-window"), check("tenant", "2/1h sliding-log"))
}

#[test]
fn a_refusal_is_mostly_found_by_asking() {
    let (wide, narrow) = wide_and_narrow();
    let take =
        || Batch { requests: vec![Request::new(Op::Take, [wide.clone(), narrow.clone()]).unwrap()], at: Some(at(0)) };
    let nodes = Nodes::new();
    for (allowed, due) in [(true, 2), (true, 2), (false, 1), (false, 1)] {
        let (outcomes, rounds) = nodes.play(take(), usize::MAX, |_| Fault::None);
        assert_eq!((outcomes[0].record().unwrap().allowed, rounds), (allowed, due));
    }
    assert_eq!((nodes.left(&wide), nodes.left(&narrow)), (98, 0));
    // The wide one refuses: it was only asked, and what the narrow one took is given back.
    let nodes = Nodes::new();
    let all = Request::new(Op::Take, [Check { cost: 100, ..wide.clone() }]).unwrap();
    nodes.play(Batch { requests: vec![all], at: Some(at(0)) }, usize::MAX, |_| Fault::None);
    let (outcomes, rounds) = nodes.play(take(), usize::MAX, |_| Fault::None);
    assert_eq!((outcomes[0].record().unwrap().allowed, rounds), (false, 2));
    assert_eq!((nodes.left(&wide), nodes.left(&narrow)), (0, 2));
}

#[test]
fn many_that_share_the_widest_take_two_rounds_together() {
    let (wide, _) = wide_and_narrow();
    let narrow = |tenant: u64| {
        Check::new(Key::new(format!("tenant-{tenant}"), "r", ["k"]), "2/1h sliding-log".parse().unwrap(), 1)
    };
    let requests: Vec<Request> =
        (0..120).map(|tenant| Request::new(Op::Take, [wide.clone(), narrow(tenant)]).unwrap()).collect();
    let nodes = Nodes::new();
    let (outcomes, rounds) = nodes.play(Batch { requests, at: Some(at(0)) }, usize::MAX, |_| Fault::None);
    let allowed: Vec<bool> = outcomes.iter().map(|outcome| outcome.record().unwrap().allowed).collect();
    assert_eq!(allowed, (0..120).map(|tenant| tenant < 100).collect::<Vec<_>>(), "the first hundred");
    assert_eq!(rounds, 3, "take the narrow, take the wide, refund");
    assert_eq!((nodes.left(&wide), nodes.left(&narrow(99)), nodes.left(&narrow(100))), (0, 1, 2));
}

#[test]
fn a_later_part_that_fails_gives_back_what_is_certain() {
    let (wide, narrow) = wide_and_narrow();
    let request = Request::new(Op::Take, [wide.clone(), narrow.clone()]).unwrap();
    let wide_slot = slot_of(&wide.key);
    for (fault, late, left) in [
        (Fault::NotSent, 9, (100, 2)),
        (Fault::Vanished, 9, (100, 2)),
        (Fault::Lost, 9, (99, 2)),
        (Fault::None, 1, (100, 2)),
    ] {
        let nodes = Nodes::new();
        let batch = Batch { requests: vec![request.clone()], at: Some(at(0)) };
        let (outcomes, _) = nodes.play(batch, late, |part| {
            let takes = part.batch.requests[0].op() == Op::Take;
            if part.slot == wide_slot && takes { fault } else { Fault::None }
        });
        let kind = outcomes[0].record().unwrap_err().kind();
        assert_eq!(kind.is_certain(), matches!(fault, Fault::NotSent | Fault::None), "{fault:?}: {kind:?}");
        assert_eq!((nodes.left(&wide), nodes.left(&narrow)), left, "{fault:?}");
    }
    // A refund that is not sent is tried again; one that is not known never is, and then the request is not known either.
    for (fault, sent, certain) in [(Fault::NotSent, 3, false), (Fault::Vanished, 1, false)] {
        let nodes = Nodes::new();
        let mut refunds = 0;
        let batch = Batch { requests: vec![request.clone()], at: Some(at(0)) };
        let (outcomes, _) = nodes.play(batch, 1, |part| {
            let refund = matches!(part.batch.requests[0].op(), Op::Refund { .. });
            refunds += usize::from(refund);
            if refund { fault } else { Fault::None }
        });
        assert_eq!((refunds, outcomes[0].record().unwrap_err().kind().is_certain()), (sent, certain));
    }
}
