//! The memory engine's concurrent path under a scheduler that tries its interleavings.
//!
//! Run by `RUSTFLAGS="--cfg shuttle" cargo test --release -p limiter-core --test shuttle`, as `scripts/test` does: the engine's locks
//! are then the scheduler's. A failure prints its schedule.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test stops on the first thing that is not as it should be")]

use std::sync::Arc;

use limiter_core::{Check, Instant, Key, Limit, ManualClock, Memory, Op, Outcome, Request};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 20_000;

/// Random schedules, and such as switch only at a few points, where the rare orders hide.
fn check(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let random = Arc::clone(&test);
    shuttle::check_random(move || random(), SCHEDULES);
    shuttle::check_pct(move || test(), SCHEDULES, 3);
}

fn at(micros: u64) -> Instant {
    Instant::from_micros(micros).unwrap()
}

fn key(name: &str) -> Key {
    Key::new("scope", "rule", [name])
}

fn request(op: Op, checks: &[(&str, &str, u64)]) -> Request {
    Request::new(op, checks.iter().map(|(name, limit, cost)| Check::new(key(name), limit.parse().unwrap(), *cost)))
        .unwrap()
}

fn table(max_keys: usize) -> Arc<Memory<ManualClock>> {
    Arc::new(Memory::builder().max_keys(max_keys).clock(ManualClock::at(at(1_000_000))).build())
}

/// Each closure in a thread of its own; the sum of what they return.
fn together(threads: impl IntoIterator<Item = impl FnOnce() -> u64 + Send + 'static>) -> u64 {
    let sum = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = threads
        .into_iter()
        .map(|run| {
            let sum = Arc::clone(&sum);
            thread::spawn(move || sum.fetch_add(run(), Ordering::SeqCst))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    sum.load(Ordering::SeqCst)
}

#[test]
fn one_key_admits_exactly_its_limit() {
    check(|| {
        let (memory, limit): (_, Limit) = (table(1), "3/1h sliding-log".parse().unwrap());
        let admitted = together((0..3).map(|_| {
            let memory = Arc::clone(&memory);
            move || (0..2).map(|_| u64::from(memory.take(&key("hot"), &limit, 1).unwrap().allowed())).sum()
        }));
        assert_eq!(admitted, 3);
    });
}

#[test]
fn two_keys_in_opposite_orders_neither_deadlock_nor_leak() {
    check(|| {
        // Room for so many keys that there are several shards.
        let memory = table(1 << 16);
        let [forth, back] = [
            [("narrow", "2/1h fixed-window", 1), ("wide", "9/1h token-bucket", 1)],
            [("wide", "9/1h token-bucket", 1), ("narrow", "2/1h fixed-window", 1)],
        ]
        .map(|checks| request(Op::Take, &checks));
        let admitted = together([forth.clone(), back, forth].into_iter().map(|request| {
            let memory = Arc::clone(&memory);
            move || u64::from(matches!(memory.decide(&request, None), Outcome::Allowed(_)))
        }));
        assert_eq!(admitted, 2);
        assert_eq!(
            memory.take(&key("wide"), &"9/1h token-bucket".parse().unwrap(), 0).unwrap().decision().remaining,
            7
        );
    });
}

#[test]
fn the_last_place_of_a_table_goes_to_one() {
    check(|| {
        let memory = table(1);
        let admitted = together(["a", "b", "a"].into_iter().map(|name| {
            let memory = Arc::clone(&memory);
            let limit: Limit = "5/1h fixed-window".parse().unwrap();
            move || u64::from(memory.take(&key(name), &limit, 1).is_ok_and(|verdict| verdict.allowed()))
        }));
        assert_eq!(memory.len(), 1);
        assert!(admitted == 1 || admitted == 2, "one name has the place: {admitted}");
    });
}

#[test]
fn a_refund_beside_a_take_is_counted_once() {
    check(|| {
        let memory = table(1);
        let taken = request(Op::Take, &[("a", "4/1h fixed-window", 2)]);
        assert!(matches!(memory.decide(&taken, None), Outcome::Allowed(_)));
        let refund = request(Op::Refund { taken: at(1_000_000) }, &[("a", "4/1h fixed-window", 2)]);
        let net = together([taken.clone(), refund, taken].into_iter().map(|request| {
            let memory = Arc::clone(&memory);
            move || {
                let allowed = matches!(memory.decide(&request, None), Outcome::Allowed(_));
                u64::from(allowed && request.op() == Op::Take) * 2
            }
        }));
        let remaining = memory.take(&key("a"), &"4/1h fixed-window".parse().unwrap(), 0).unwrap().decision().remaining;
        assert_eq!(remaining, 4 - net, "two were taken and given back, and {net} more taken");
    });
}
