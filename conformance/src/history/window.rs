//! The check that trusts no version: what passed within real time.

use limiter_core::{Algorithm, Limit, Op};

use super::{Answer, History};

/// The most that passed within one real period, of a key that was asked under one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// The key, by its index in the history.
    pub key: usize,
    /// Its limit.
    pub limit: Limit,
    /// The most units of calls that began and ended within one period. It may be told too low where a call took longer
    /// than a period.
    pub most: u64,
    /// The most that the algorithm lets pass in any period.
    pub bound: u64,
}

/// A call that passed.
struct Passed {
    invoked: u64,
    returned: u64,
    cost: u64,
}

impl History {
    /// The fullest period of each key, for runs at the store's own time. Keys whose limit changes, and keys to which units
    /// were given back, are left out: no bound on a window holds for them.
    #[must_use]
    pub fn windows(&self) -> Vec<Window> {
        let mut asked: Vec<Asking> = (0..self.keys.len()).map(|_| Asking::default()).collect();
        for call in &self.calls {
            for check in &call.checks {
                let Some(key) = asked.get_mut(check.key) else { continue };
                if matches!(call.op, Op::Refund { .. } | Op::Reset)
                    || key.limit.is_some_and(|limit| limit != check.limit)
                {
                    key.unbounded = true;
                }
                key.limit = Some(check.limit);
                if call.op == Op::Take && matches!(call.answer, Answer::Decided { allowed: true, .. }) {
                    key.passed.push(Passed { invoked: call.invoked, returned: call.returned, cost: check.cost });
                }
            }
        }
        let windows = asked.into_iter().enumerate().filter(|(_, key)| !key.unbounded).filter_map(|(index, key)| {
            let limit = *self.limits.get(key.limit?)?;
            Some(Window { key: index, limit, most: fullest(&limit, &key.passed), bound: bound(&limit) })
        });
        windows.collect()
    }
}

/// What was asked of one key.
#[derive(Default)]
struct Asking {
    /// Its limit, by its index.
    limit: Option<usize>,
    /// Whether no bound on a window holds for it.
    unbounded: bool,
    passed: Vec<Passed>,
}

/// The most units of calls that lie wholly in a period that begins as one of them does.
fn fullest(limit: &Limit, passed: &[Passed]) -> u64 {
    // Two clocks that are slewed against each other may differ by 500 µs a second; so the real period is cut by 0.1 %.
    let period = limit.period().saturating_sub(limit.period() / 1_000).as_micros();
    let period = u64::try_from(period).unwrap_or(u64::MAX);
    let mut begins: Vec<(u64, u64)> = passed.iter().map(|call| (call.invoked, call.cost)).collect();
    let mut ends: Vec<(u64, u64)> = passed.iter().map(|call| (call.returned, call.cost)).collect();
    begins.sort_unstable();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let (mut begun, mut ended, mut most) = (0, 0, 0_u64);
    for (begin, cost) in begins {
        while let Some((_, cost)) = ends.next_if(|(end, _)| *end < begin.saturating_add(period)) {
            ended += cost;
        }
        // Of those that ended by then, those that had begun before do not lie within.
        most = most.max(ended - begun.min(ended));
        begun += cost;
    }
    most
}

/// The most units that may pass in any period.
fn bound(limit: &Limit) -> u64 {
    let amount = limit.amount();
    match limit.algorithm() {
        Algorithm::SlidingLog => amount,
        Algorithm::FixedWindow => 2 * amount,
        Algorithm::SlidingCounter => 2 * amount - 1,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => limit.capacity() + amount,
    }
}
