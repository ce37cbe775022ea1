//! At the bounds nothing panics, wraps or rounds: what the largest numbers give is what the oracle says.

use std::time::Duration;

use limiter_core::{Algorithm, Instant, Limit, MAX_AMOUNT, MAX_BURST, MAX_LOG, MAX_PERIOD};

use crate::agreement::answer;
use crate::oracle::Oracle;
use crate::trace::{Walk, micros};

/// Limits with each number at a bound or one off it, each with a cost that passes once and not twice.
pub(crate) fn extremes() -> Vec<(Limit, u64)> {
    let amounts = [1, 2, MAX_LOG - 1, MAX_LOG, MAX_AMOUNT - 1, MAX_AMOUNT];
    let capacities = [1, 2, MAX_AMOUNT - 1, MAX_AMOUNT, MAX_BURST];
    let longest = micros(MAX_PERIOD);
    let periods = [1_000, 1_001, longest - 1, longest].map(Duration::from_micros);
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        for (amount, period) in amounts.iter().flat_map(|amount| periods.map(|period| (*amount, period))) {
            let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
            let capacities = if bucket { &capacities[..] } else { &[1] };
            for capacity in capacities {
                // A bucket that would take too long to fill is no limit.
                let Some(limit) = crate::trace::limit(algorithm, amount, period, Some(*capacity)) else { continue };
                cases.push((limit, limit.capacity() / 2 + 1));
            }
        }
    }
    cases
}

#[test]
fn the_largest_numbers_give_what_the_oracle_says() {
    let cases = extremes();
    assert!(cases.len() > 150, "{} cases", cases.len());
    let last = Instant::MAX.micros();
    for (limit, cost) in cases {
        let mut core = Walk::new(limit, 0);
        let mut oracle = Oracle::fresh(limit);
        let period = core.period();
        for now in [0, 1, period - 1, period, last - 1, last, 0] {
            for cost in [cost, 1, limit.capacity(), limit.capacity() + 1] {
                core.now = now;
                let told = core.take(cost).as_ref().map(answer);
                assert_eq!(told, oracle.take(now, cost), "{limit} at {now} for {cost}");
            }
        }
    }
}
