//! What a check costs the allocator: nothing, for keys that are known.
//!
//! A file of its own, since the counting allocator is the whole program's.

#![allow(clippy::unwrap_used, reason = "a test stops on the first thing that is not as it should be")]

use allocation_counter::measure;
use limiter_core::{Algorithm, Check, Instant, Key, Limit, ManualClock, Memory, Op, Request};

fn at(micros: u64) -> Instant {
    Instant::from_micros(micros).unwrap()
}

fn key(name: &str) -> Key {
    Key::new("tenant", "api", [name])
}

/// Checks of a known key, with their decisions derived, one every 10 ms of the clock.
fn allocations(limit: &str, checks: u64) -> (u64, u64, u64) {
    let limit: Limit = limit.parse().unwrap();
    let clock = ManualClock::at(at(1_000_000_000));
    let memory = Memory::builder().clock(clock.clone()).build();
    let key = key("known");
    let mut now = 1_000_000_000;
    let (mut allowed, mut denied) = (0, 0);
    let mut check = || {
        now += 10_000;
        clock.set(at(now));
        let verdict = memory.take(&key, &limit, 1).unwrap();
        let decision = verdict.decision();
        assert_eq!(decision.allowed, verdict.allowed());
        if decision.allowed { allowed += 1 } else { denied += 1 }
    };
    // A log grows to what its window holds, once.
    for _ in 0..1_000 {
        check();
    }
    let counted = measure(|| {
        for _ in 0..checks {
            check();
        }
    });
    (counted.count_total, allowed, denied)
}

#[test]
fn a_check_of_a_known_key_does_not_allocate() {
    for algorithm in Algorithm::ALL {
        for (amount, often) in [(1_000_000, "admitted"), (20, "admitted and denied")] {
            let amount = if algorithm == Algorithm::SlidingLog { amount.min(50_000) } else { amount };
            let (count, allowed, denied) = allocations(&format!("{amount}/1s {algorithm}"), 10_000);
            assert_eq!(count, 0, "{amount}/1s {algorithm}, {often}");
            assert!(allowed > 0 && (denied > 0) == (amount == 20), "{algorithm}: {allowed} allowed, {denied} denied");
        }
    }
}

#[test]
fn a_layered_check_of_four_known_keys_allocates_its_two_lists() {
    let memory = Memory::new();
    let limit: Limit = "1000000/1s token-bucket".parse().unwrap();
    let checks = ["global", "tenant", "user", "endpoint"].map(|name| Check::new(key(name), limit, 1));
    let request = Request::new(Op::Take, checks).unwrap();
    let decide = || memory.decide(&request, None).decisions(&request).unwrap();
    assert!(decide().allowed);
    let counted = measure(|| {
        for _ in 0..10_000 {
            assert_eq!(decide().layers().len(), 4);
        }
    });
    // What each limit was decided on, and what is told of it. Of one limit both are kept in place; room for more would be
    // copied with each answer.
    assert_eq!(counted.count_total, 2 * 10_000);
}

#[test]
fn the_counter_counts() {
    assert!(measure(|| drop(key("new"))).count_total > 0);
}
