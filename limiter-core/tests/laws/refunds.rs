//! A refund undoes its take, and never more than that.

use limiter_core::{Algorithm, Instant, MAX_BURST};
use proptest::prelude::*;

use crate::trace::{Ask, Trace, Walk, cases, costs, limits_of, micros, operations, takes};

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn what_is_taken_and_given_back_at_once_was_never_taken(trace in takes(false), cost in costs()) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            key.step(step);
            let untouched = key.clone();
            let cost = key.clone().go(crate::trace::Step { cost, wait: crate::trace::Wait::None, op: Ask::Take });
            if key.take(cost).is_some_and(|decision| decision.allowed) {
                let _ = key.refund(cost, key.at());
                for cost in [0, 1, cost, trace.limit.capacity()] {
                    for later in [0, 1, key.period() / 2, key.period()] {
                        let at = key.now + later;
                        prop_assert_eq!(key.decision_at(at, cost), untouched.decision_at(at, cost), "{} after {} µs", cost, later);
                    }
                }
            }
            key = untouched;
        }
    }

    /// More than was taken, or twice, or at any instant.
    #[test]
    fn no_refund_fills_above_full_or_makes_a_key_stricter(
        trace in takes(true),
        cost in costs(),
        taken in any::<u8>(),
        seen_from in any::<u8>(),
    ) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            key.step(step);
            let untouched = key.clone();
            let cost = key.clone().go(crate::trace::Step { cost, wait: crate::trace::Wait::None, op: Ask::Refund });
            let cost = cost.min(MAX_BURST);
            let taken = key.now.saturating_sub(key.period() / 128 * u64::from(taken));
            let told = key.refund(cost, Instant::from_micros(taken).unwrap());
            prop_assert!(told.remaining <= told.limit);
            // Seen from an instant before or after.
            let at = (key.now + key.period()).saturating_sub(key.period() / 128 * u64::from(seen_from));
            let remaining = |walk: &Walk| walk.decision_at(at, 0).map(|decision| decision.remaining);
            prop_assert!(remaining(&key) >= remaining(&untouched), "{:?} < {:?}", key.cell, untouched.cell);
        }
    }

    #[test]
    fn a_refund_into_a_window_that_has_rolled_on_does_nothing(
        limit in prop_oneof![
            limits_of(Algorithm::FixedWindow),
            limits_of(Algorithm::SlidingCounter),
            limits_of(Algorithm::SlidingLog),
        ],
        trace in takes(false),
    ) {
        let mut key = Walk::new(limit, trace.start);
        for &step in &trace.steps {
            let taken = key.taken;
            key.step(step);
            let period = micros(limit.period());
            let Some((units, at)) = taken else { continue };
            let rolled = match limit.algorithm() {
                Algorithm::SlidingLog => at.micros() + period <= key.now,
                _ => at.micros() / period < key.now / period,
            };
            if rolled {
                let mut refunded = key.clone();
                let _ = refunded.refund(units, at);
                prop_assert_eq!(&refunded.cell.state, &key.cell.state);
            }
        }
    }

    /// Counting what was not given back. With a clock that goes back there is no such law: the admission of what is given back
    /// may have dropped what then counts again.
    #[test]
    fn refunds_never_let_a_window_of_a_log_hold_more_than_its_limit(
        limit in limits_of(Algorithm::SlidingLog),
        trace in operations(false),
    ) {
        let trace = Trace { limit, ..trace };
        let mut key = trace.walk();
        let mut kept: Vec<(u64, u64)> = Vec::new();
        // Cost, instant, and place among those kept, of what may still be given back.
        let mut refundable: Option<(u64, Instant, usize)> = None;
        for &step in &trace.steps {
            let cost = key.go(step);
            match step.op {
                Ask::Refund => {
                    let Some((units, at, place)) = refundable.take() else { continue };
                    let before = key.decision_at(key.now, 0).unwrap().remaining;
                    let after = key.refund(units, at).remaining;
                    kept[place].1 -= after - before;
                }
                Ask::Take if key.take(cost).is_some_and(|decision| decision.allowed) && cost > 0 => {
                    kept.push((key.now, cost));
                    refundable = Some((cost, key.at(), kept.len() - 1));
                }
                _ => {}
            }
        }
        let period = micros(limit.period());
        for &(start, _) in &kept {
            let within = kept.iter().filter(|(at, _)| (start..start + period).contains(at));
            prop_assert!(within.map(|(_, cost)| cost).sum::<u64>() <= limit.amount(), "{:?}", &kept);
        }
    }
}

#[test]
fn a_bucket_that_is_full_has_nothing_to_get_back() {
    let mut key = Walk::new("10/1s token-bucket".parse().unwrap(), 0);
    assert!(key.take(10).unwrap().allowed);
    let untouched = key.cell.state.clone();
    key.now = 5_000_000;
    assert_eq!(key.refund(10, Instant::EPOCH).remaining, 10);
    assert_eq!(key.cell.state, untouched, "else a clock that goes back would find a debt that was never made");
}
