//! What the limits promise about amounts, counted from outside.

use limiter_core::{Algorithm, Limit};
use proptest::prelude::*;

use crate::trace::{Trace, cases, limits_of, micros, takes};

/// The admitted (instant, cost) pairs. Where the clock went back, an instant counts as the latest so far.
fn admitted(trace: &Trace) -> Vec<(u64, u64)> {
    let mut key = trace.walk();
    let mut latest = 0;
    let mut admitted = Vec::new();
    for &step in &trace.steps {
        let Some((cost, decision)) = key.step(step) else { continue };
        if decision.allowed && cost > 0 {
            latest = key.now.max(latest);
            admitted.push((latest, cost));
        }
    }
    admitted
}

/// Units in the half-open window of this length that begins at each admission.
fn windows(admitted: &[(u64, u64)], length: u64) -> impl Iterator<Item = u64> + '_ {
    admitted.iter().map(move |&(start, _)| {
        let within = admitted.iter().filter(|(at, _)| (start..start + length).contains(at));
        within.map(|(_, cost)| cost).sum()
    })
}

fn under(limit: Limit, trace: Trace) -> Trace {
    Trace { limit, ..trace }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn no_half_open_window_of_a_log_holds_more_than_its_limit(
        limit in limits_of(Algorithm::SlidingLog),
        trace in takes(true),
    ) {
        let admitted = admitted(&under(limit, trace));
        for units in windows(&admitted, micros(limit.period())) {
            prop_assert!(units <= limit.amount(), "{} in one window: {:?}", units, &admitted);
        }
    }

    #[test]
    fn no_window_of_the_grid_holds_more_than_its_limit(
        limit in prop_oneof![limits_of(Algorithm::FixedWindow), limits_of(Algorithm::SlidingCounter)],
        trace in takes(true),
    ) {
        let period = micros(limit.period());
        let admitted = admitted(&under(limit, trace));
        for &(start, _) in &admitted {
            let within = admitted.iter().filter(|(at, _)| at / period == start / period);
            prop_assert!(within.map(|(_, cost)| cost).sum::<u64>() <= limit.amount(), "{:?}", &admitted);
        }
    }

    #[test]
    fn a_bucket_admits_no_more_than_its_burst_and_what_it_gains(
        limit in prop_oneof![limits_of(Algorithm::TokenBucket), limits_of(Algorithm::LeakyBucket)],
        trace in takes(true),
    ) {
        let admitted = admitted(&under(limit, trace));
        let period = u128::from(micros(limit.period()));
        for (index, (from, _)) in admitted.iter().enumerate() {
            let mut units = 0;
            for (until, cost) in &admitted[index..] {
                units += u128::from(*cost);
                let gained = u128::from(until - from) * u128::from(limit.amount());
                prop_assert!(units * period <= u128::from(limit.capacity()) * period + gained, "{:?}", &admitted);
            }
        }
    }

    #[test]
    fn steady_demand_reaches_a_bucket_s_rate(amount in 1..=50_u64, seconds in 1..=20_u64) {
        let limit = Limit::token_bucket(amount, std::time::Duration::from_secs(seconds)).build().unwrap();
        let mut key = crate::trace::Walk::new(limit, 0);
        let mut units = 0;
        for _ in 0..3 * amount {
            let decision = key.take(1).unwrap();
            match decision.retry_after {
                None => units += 1,
                Some(wait) => key.now += micros(wait),
            }
        }
        // All that was there at first, and every unit that came since.
        prop_assert_eq!(units, amount + key.now * amount / micros(limit.period()), "until {} µs", key.now);
    }
}
