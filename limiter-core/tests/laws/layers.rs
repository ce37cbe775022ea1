//! Several checks in one request, and several requests in one batch.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use limiter_core::{
    Backend, Batch, Cell, Cells, Check, Decisions, Instant, Key, Limit, ManualClock, Memory, Op, Outcome, Request,
    decide,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::trace::{cases, limits};

/// The core with a map for a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Map(BTreeMap<Key, Cell>);

struct Of<'a>(&'a mut Map, &'a Request);

impl Cells for Of<'_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        self.0.0.entry(self.1.checks()[index].key.clone()).or_default()
    }
}

impl Map {
    fn submit(&mut self, request: &Request, at: Instant) -> Decisions {
        let record = decide(request, at, &mut Of(self, request));
        record.decisions(request).unwrap()
    }

    fn state(&self, key: &Key) -> Option<&Cell> {
        self.0.get(key).filter(|cell| cell.state.is_some())
    }

    /// The states, without those that a look has made room for.
    fn states(&self) -> BTreeMap<&Key, &Cell> {
        self.0.iter().filter(|(_, cell)| cell.state.is_some()).collect()
    }
}

/// Requests over four keys, each with a limit of its own, so that requests share some of their checks and not others.
fn scenes() -> impl Strategy<Value = Vec<(u64, Request)>> {
    let limits = prop::collection::vec(limits(), 4);
    let step = (
        prop::sample::subsequence(vec![0_usize, 1, 2, 3], 1..=4).prop_shuffle(),
        any::<u8>(),
        select(vec![0, 0, 1, 1_000, 100_000, 7_000_000, 60_000_000]),
        select(vec![Op::Take, Op::Take, Op::Take, Op::Take, Op::Peek, Op::Reset, Op::Refund { taken: Instant::EPOCH }]),
    );
    (limits, prop::collection::vec(step, 1..16)).prop_map(|(limits, steps)| {
        let mut now = 1_764_559_423_123_456;
        steps
            .into_iter()
            .map(|(keys, part, wait, op)| {
                now += wait;
                let taken = Instant::from_micros(now).unwrap();
                let op = if matches!(op, Op::Refund { .. }) { Op::Refund { taken } } else { op };
                let checks = keys.iter().map(|&index| check(index, limits[index], part));
                (now, Request::new(op, checks).unwrap())
            })
            .collect()
    })
}

fn check(index: usize, limit: Limit, part: u8) -> Check {
    // The small costs and the large ones.
    let cost = if part < 128 { u64::from(part % 4) } else { limit.capacity() / 255 * u64::from(part) };
    Check::new(Key::new("", "layers", [index.to_string()]), limit, cost.min(limit.capacity()))
}

fn submit(engine: &impl Backend, requests: Vec<Request>, at: Instant) -> Vec<Outcome> {
    let mut submitted = pin!(engine.submit(Arc::new(Batch { requests, at: Some(at) })));
    match submitted.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcomes) => outcomes,
        Poll::Pending => unreachable!("memory has nothing to wait for"),
    }
}

fn decisions(outcomes: &[Outcome], requests: &[Request]) -> Vec<Decisions> {
    assert_eq!(outcomes.len(), requests.len());
    outcomes.iter().zip(requests).map(|(outcome, request)| outcome.decisions(request).unwrap()).collect()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_request_charges_all_its_layers_or_none(scene in scenes()) {
        let mut store = Map::default();
        for (now, request) in scene {
            let at = Instant::from_micros(now).unwrap();
            let before = store.clone();
            // Each check by itself, as if it were alone.
            let alone: Vec<(Map, Decisions)> = request.checks().iter().map(|check| {
                let mut store = before.clone();
                let told = store.submit(&Request::new(request.op(), [check.clone()]).unwrap(), at);
                (store, told)
            }).collect();
            let told = store.submit(&request, at);
            prop_assert_eq!(told.allowed, alone.iter().all(|(_, alone)| alone.allowed));
            for (check, (alone, _)) in request.checks().iter().zip(&alone) {
                let expected = if told.allowed { alone } else { &before };
                prop_assert_eq!(store.state(&check.key), expected.state(&check.key));
            }
            if !told.allowed {
                prop_assert_eq!(store.states(), before.states());
                let waits = alone.iter().filter_map(|(_, alone)| alone.retry_after);
                prop_assert_eq!(told.retry_after, waits.max());
                prop_assert!(told.delay.is_zero());
            } else if request.op() == Op::Take {
                prop_assert_eq!(told.delay, alone.iter().map(|(_, alone)| alone.delay).max().unwrap());
            }
        }
    }

    #[test]
    fn the_order_of_the_layers_makes_no_difference(scene in scenes(), seed in any::<u64>()) {
        let (mut store, mut other) = (Map::default(), Map::default());
        for (now, request) in scene {
            let at = Instant::from_micros(now).unwrap();
            let mut checks = request.checks().to_vec();
            let by = usize::try_from(seed % 4).unwrap() % checks.len();
            checks.rotate_left(by);
            let turned = Request::new(request.op(), checks).unwrap();
            let told = store.submit(&request, at);
            let again = other.submit(&turned, at);
            prop_assert_eq!((told.allowed, told.retry_after, told.delay), (again.allowed, again.retry_after, again.delay));
            let mut layers = again.layers().to_vec();
            layers.rotate_right(by);
            prop_assert_eq!(told.layers(), &layers[..]);
            prop_assert_eq!(store.states(), other.states());
        }
    }

    #[test]
    fn a_batch_decides_as_one_by_one(scene in scenes(), sizes in prop::collection::vec(1..6_usize, 16)) {
        let memory = || Memory::builder().clock(ManualClock::default()).build();
        let (together, single) = (memory(), memory());
        let mut core = Map::default();
        let mut rest = &scene[..];
        for size in sizes {
            if rest.is_empty() {
                break;
            }
            let (batch, later) = rest.split_at(size.min(rest.len()));
            rest = later;
            // All of a batch are at one instant.
            let at = Instant::from_micros(batch[0].0).unwrap();
            let requests: Vec<Request> = batch.iter().map(|(_, request)| request.clone()).collect();
            let told = decisions(&submit(&together, requests.clone(), at), &requests);
            for (request, told) in requests.iter().zip(&told) {
                let alone = submit(&single, vec![request.clone()], at);
                prop_assert_eq!(&decisions(&alone, std::slice::from_ref(request))[0], told);
                prop_assert_eq!(&core.submit(request, at), told);
            }
        }
    }
}
