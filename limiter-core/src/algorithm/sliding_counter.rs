//! Sliding counter: this window's count, and the previous one's weighted by what of it still slides in.

use super::{Answer, window_start};
use crate::decision::Decision;
use crate::fraction::{mul_div_ceil, mul_div_floor};
use crate::instant::Instant;
use crate::limit::Limit;

/// Units taken in the window that begins at `start`, and in the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingCounter {
    /// The current window's start, in µs since the epoch.
    pub start: u64,
    /// Units taken in the current window.
    pub current: u64,
    /// Units taken in the window before.
    pub previous: u64,
}

impl SlidingCounter {
    /// The state as it counts at `now`: one window later current becomes previous, two later both are 0.
    ///
    /// A window in the future stays. A start is on the grid unless the period has changed; then it moves to the new one.
    #[inline]
    fn at(self, limit: &Limit, now: Instant) -> Self {
        let grid = window_start(limit, now.micros());
        if self.start == grid {
            return self;
        }
        let start = window_start(limit, self.start);
        if start >= grid {
            return Self { start, ..self };
        }
        let previous = if grid - start == limit.period_micros() { self.current } else { 0 };
        Self { start: grid, current: 0, previous }
    }

    /// How much of the previous window still counts, in µs: all of it for a clock that went back.
    #[inline]
    fn weight(self, limit: &Limit, now: Instant) -> u64 {
        limit.period_micros() - now.micros().saturating_sub(self.start)
    }

    /// Whether `cost` more fit: previous × weight ÷ period + current + cost ≤ amount, without the division, so that the
    /// estimate is never rounded.
    #[inline]
    fn fits(self, limit: &Limit, now: Instant, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let Some(room) = limit.amount().checked_sub(self.current).and_then(|room| room.checked_sub(cost)) else {
            return false;
        };
        let weighted = u128::from(self.previous) * u128::from(self.weight(limit, now));
        weighted <= u128::from(room) * u128::from(limit.period_micros())
    }

    #[inline]
    pub(crate) fn admits(self, limit: &Limit, now: Instant, cost: u64) -> bool {
        self.at(limit, now).fits(limit, now, cost)
    }

    #[inline]
    pub(crate) fn take(&mut self, limit: &Limit, now: Instant, cost: u64) {
        *self = self.at(limit, now);
        self.current += cost;
    }

    /// Gives back what was taken at `taken`, unless that window has rolled on.
    pub(crate) fn refund(&mut self, limit: &Limit, now: Instant, cost: u64, taken: Instant) {
        let state = self.at(limit, now);
        if window_start(limit, taken.micros()) == state.start {
            *self = Self { current: state.current.saturating_sub(cost), ..state };
        }
    }

    #[inline]
    pub(crate) fn reset_at(self, limit: &Limit) -> u64 {
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => self.start + limit.period_micros(),
            _ => self.start + 2 * limit.period_micros(),
        }
    }

    #[inline]
    pub(crate) fn decision(self, limit: &Limit, now: Instant, cost: u64, charged: bool) -> Decision {
        let mut state = self.at(limit, now);
        let allowed = state.fits(limit, now, cost);
        if charged {
            state.current += cost;
        }
        let weighted = mul_div_ceil(state.previous, state.weight(limit, now), limit.period_micros());
        let answer = Answer {
            allowed,
            remaining: limit.amount().saturating_sub(state.current).saturating_sub(weighted),
            retry_at: if allowed { 0 } else { state.opens_at(limit, cost) },
            reset_at: state.reset_at(limit),
            delay: 0,
        };
        answer.decision(limit, now)
    }

    /// When a cost that is refused now passes: in this window if the previous one's share is all that is
    /// in the way, else in the next, where this window's count is the share that has to fall.
    #[inline]
    fn opens_at(self, limit: &Limit, cost: u64) -> u64 {
        let period = limit.period_micros();
        let falls_to = |room: u64, count: u64| period - mul_div_floor(room, period, count.max(1)).min(period);
        match limit.amount().checked_sub(self.current.saturating_add(cost)) {
            Some(room) => self.start + falls_to(room, self.previous),
            None => self.start + period + falls_to(limit.amount().saturating_sub(cost), self.current),
        }
    }
}
