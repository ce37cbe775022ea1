//! One node's part of a limit.

use std::num::NonZeroU32;

use limiter_core::{Algorithm, Limit, LimitError};

/// The part of `limit` that one of `nodes` passes: of what passes at once a whole number of units, rounded down and 1 at least; of
/// what passes in time the n-th part, in a bucket exactly and in a window rounded down like the units.
///
/// So `nodes` times the share is at most the limit, unless there are more nodes than units.
pub(super) fn share(limit: &Limit, nodes: NonZeroU32) -> Result<Limit, LimitError> {
    if nodes == NonZeroU32::MIN {
        return Ok(*limit);
    }
    let part = |units: u64| (units / u64::from(nodes.get())).max(1);
    let (amount, period, capacity) = (limit.amount(), limit.period(), limit.capacity());
    let bucket = |amount, period| match limit.algorithm() {
        Algorithm::LeakyBucket => Limit::leaky_bucket(amount, period).queue(part(capacity)).build(),
        _ => Limit::token_bucket(amount, period).burst(part(capacity)).build(),
    };
    match limit.algorithm() {
        Algorithm::FixedWindow => Limit::fixed_window(part(amount), period).build(),
        Algorithm::SlidingLog => Limit::sliding_log(part(amount), period).build(),
        Algorithm::SlidingCounter => Limit::sliding_counter(part(amount), period).build(),
        // The rate of a bucket need not be rounded: n times the period is the n-th part of the rate, up to the longest period.
        _ => bucket(amount, period.saturating_mul(nodes.get())).or_else(|_| bucket(part(amount), period)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(limit: &str, nodes: u32) -> String {
        share(&limit.parse().unwrap(), NonZeroU32::new(nodes).unwrap()).unwrap().to_string()
    }

    #[test]
    fn a_share_is_a_whole_number_of_units_and_a_bucket_s_rate_is_exact() {
        for (limit, nodes, expected) in [
            ("100/1m fixed-window", 1, "100/1m fixed-window"),
            ("100/1m fixed-window", 3, "33/1m fixed-window"),
            ("2/1m sliding-log", 3, "1/1m sliding-log"),
            ("7/1m sliding-counter", 2, "3/1m sliding-counter"),
            ("7/13s token-bucket burst=100", 3, "7/39s token-bucket burst=33"),
            ("5/1s leaky-bucket queue=20", 4, "5/4s leaky-bucket queue=5"),
            // Twice the period is over its bound.
            ("9/366d token-bucket", 2, "4/366d token-bucket"),
        ] {
            assert_eq!(of(limit, nodes), expected.parse::<Limit>().unwrap().to_string(), "{limit} over {nodes}");
        }
    }

    proptest! {
        #[test]
        fn all_shares_together_are_at_most_the_limit(
            kind in 0..5_usize, amount in 1..=100_000_u64, micros in 1_000..=1_000_000_000_u64, capacity in 1..=1_000_000_u64,
            nodes in 1..=u32::MAX,
        ) {
            let period = std::time::Duration::from_micros(micros);
            let limit = match kind {
                0 => Limit::fixed_window(amount, period),
                1 => Limit::sliding_log(amount, period),
                2 => Limit::sliding_counter(amount, period),
                3 => Limit::token_bucket(amount, period).burst(capacity),
                _ => Limit::leaky_bucket(amount, period).queue(capacity),
            };
            let Ok(limit) = limit.build() else { return Ok(()) };
            let many = NonZeroU32::new(nodes).unwrap();
            let share = share(&limit, many).unwrap();
            prop_assert_eq!(share.algorithm(), limit.algorithm());
            let all = share.capacity() * u64::from(nodes);
            prop_assert!(all <= limit.capacity() || share.capacity() == 1, "{} × {} of {}", nodes, share, limit);
            // In time: amount ÷ period, compared without dividing.
            let rate = |of: &Limit, times: u32, other: &Limit| {
                u128::from(of.amount()) * u128::from(times) * other.period().as_micros()
            };
            prop_assert!(rate(&share, nodes, &limit) <= rate(&limit, 1, &share) || share.amount() == 1);
        }
    }
}
