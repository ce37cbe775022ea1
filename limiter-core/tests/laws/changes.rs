//! A limit that changes while its key is live.

use limiter_core::{Algorithm, Limit};
use proptest::prelude::*;

use crate::trace::{Trace, Walk, cases, limits, micros, takes};

/// The longest that a key may stay shut under a limit: what its own capacity takes to refill.
fn refill(limit: &Limit) -> u128 {
    let period = limit.period().as_micros();
    match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingLog => period,
        // A full window counts in the next one too.
        Algorithm::SlidingCounter => 2 * period,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            (u128::from(limit.capacity()) * period).div_ceil(u128::from(limit.amount()))
        }
    }
}

/// Another limit, or the same but for one thing.
fn changed() -> impl Strategy<Value = Change> {
    prop_oneof![
        limits().prop_map(Change::Whole),
        limits().prop_map(Change::Amount),
        limits().prop_map(Change::Period),
        limits().prop_map(Change::Capacity),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Whole(Limit),
    Amount(Limit),
    Period(Limit),
    Capacity(Limit),
}

impl Change {
    fn applied_to(self, limit: Limit) -> Option<Limit> {
        let (amount, period, capacity) = (limit.amount(), limit.period(), limit.capacity());
        let (amount, period, capacity) = match self {
            Self::Whole(new) => return Some(new),
            Self::Amount(new) => (new.amount(), period, capacity),
            Self::Period(new) => (amount, new.period(), capacity),
            Self::Capacity(new) => (amount, period, new.capacity()),
        };
        crate::trace::limit(limit.algorithm(), amount, period, Some(capacity))
    }
}

/// Walks the trace and changes the limit before each step, to a new one or back.
fn holds_under_changes(trace: &Trace, changes: &[Change]) -> Result<(), TestCaseError> {
    let mut key = trace.walk();
    let mut latest = 0;
    for (&step, change) in trace.steps.iter().zip(changes.iter().cycle()) {
        key.limit = change.applied_to(key.limit).unwrap_or(trace.limit);
        let Some((cost, decision)) = key.step(step) else { continue };
        let went_back = key.now < latest;
        latest = key.now.max(latest);
        prop_assert!(decision.remaining <= decision.limit);
        prop_assert_eq!(key.admits(key.now, decision.remaining), Some(true));
        let Some(wait) = decision.retry_after.map(micros) else { continue };
        if !went_back {
            prop_assert!(u128::from(wait) <= refill(&key.limit), "{} µs under {}", wait, key.limit);
        }
        // The wait is kept, whatever limit the state is from: else it would be told again and again.
        prop_assert_ne!(key.admits(key.now + wait, cost), Some(false), "after {} µs under {}", wait, key.limit);
        prop_assert_ne!(
            key.admits(key.now + wait - 1, cost),
            Some(true),
            "1 µs before {} µs under {}",
            wait,
            key.limit
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_changed_limit_locks_no_key_out_for_longer_than_it_takes_to_refill(
        trace in takes(true),
        changes in prop::collection::vec(changed(), 1..6),
    ) {
        holds_under_changes(&trace, &changes)?;
    }
}

#[test]
fn a_long_debt_drains_at_the_new_rate_even_if_nobody_is_admitted() {
    let mut key = Walk::new("1/1h token-bucket burst=100".parse().unwrap(), 0);
    assert!(key.take(100).unwrap().allowed);
    key.limit = "10/1s token-bucket".parse().unwrap();
    let refused = key.take(1).unwrap();
    assert_eq!(refused.retry_after.map(micros), Some(100_000));
    key.now = 99_999;
    assert_eq!(key.take(1).unwrap().retry_after.map(micros), Some(1), "the wait shrinks as time goes by");
    key.now = 100_000;
    assert!(key.take(1).unwrap().allowed);
    key.now = 1_100_000;
    assert_eq!(key.take(10).map(|decision| decision.remaining), Some(0), "full one refill later");
}
