//! What a decision tells about later: exact to the microsecond, and to the unit.

use limiter_core::Algorithm;
use proptest::prelude::*;

use crate::trace::{Step, Walk, cases, costs, limits_of, micros, takes};

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_denied_cost_passes_after_retry_after_and_not_a_microsecond_before(trace in takes(true)) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            let Some((cost, decision)) = key.step(step) else { continue };
            prop_assert_eq!(decision.allowed, decision.retry_after.is_none());
            let Some(wait) = decision.retry_after.map(micros) else { continue };
            prop_assert!(wait > 0, "a wait of nothing would have been an admission");
            prop_assert_ne!(key.admits(key.now + wait, cost), Some(false), "after {} µs", wait);
            prop_assert_ne!(key.admits(key.now + wait - 1, cost), Some(true), "1 µs before {} µs", wait);
        }
    }

    #[test]
    fn what_remains_is_exactly_the_largest_cost_that_passes(trace in takes(true)) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            let Some((_, decision)) = key.step(step) else { continue };
            prop_assert!(decision.remaining <= decision.limit);
            prop_assert_eq!(key.admits(key.now, decision.remaining), Some(true));
            if decision.remaining < decision.limit {
                prop_assert_eq!(key.admits(key.now, decision.remaining + 1), Some(false));
            }
        }
    }

    #[test]
    fn a_key_left_alone_is_as_good_as_new_after_reset_after_and_not_a_microsecond_before(
        trace in takes(true),
        next in prop::collection::vec(costs(), 1..8),
    ) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            let Some((_, decision)) = key.step(step) else { continue };
            let reset = micros(decision.reset_after);
            if reset > 0 {
                prop_assert_ne!(key.admits(key.now + reset - 1, decision.limit), Some(true), "1 µs before {} µs", reset);
            }
            if key.admits(key.now + reset, 0).is_none() {
                continue;
            }
            let mut rested = Walk { now: key.now + reset, last: None, ..key.clone() };
            let mut fresh = Walk::new(key.limit, rested.now);
            for (step, &cost) in trace.steps.iter().zip(&next) {
                // The same clock for both, and one that does not go back behind the moment of the comparison.
                let (asked, same) = (rested.go(Step { cost, ..*step }), fresh.go(Step { cost, ..*step }));
                let earliest = key.now + reset;
                rested.now = rested.now.max(earliest);
                fresh.now = rested.now;
                prop_assert_eq!(asked, same);
                prop_assert_eq!(rested.take(asked), fresh.take(asked), "cost {} at {}", asked, rested.now);
            }
        }
    }

    #[test]
    fn work_leaves_a_leaky_bucket_at_its_rate(
        limit in limits_of(Algorithm::LeakyBucket),
        trace in takes(false),
    ) {
        let mut queue = Walk::new(limit, trace.start);
        // When the work admitted last began, and how much it was.
        let mut before: Option<(u64, u64)> = None;
        for &step in &trace.steps {
            let Some((cost, decision)) = queue.step(step) else { continue };
            prop_assert!(decision.allowed || decision.delay.is_zero(), "who is refused has nothing to wait for");
            if !decision.allowed || cost == 0 {
                continue;
            }
            let begins = queue.now + micros(decision.delay);
            if let Some((began, units)) = before {
                // Delays are rounded up, hence the gap may be short by less than 1 µs: never more.
                let gap = u128::from(begins - began + 1) * u128::from(limit.amount());
                prop_assert!(gap > u128::from(units) * u128::from(queue.period()), "{} units within {} µs", units, begins - began);
            }
            before = Some((begins, cost));
        }
    }
}
