//! Fixed window: a count for each window of the epoch's grid.

use super::{Answer, window_start};
use crate::decision::Decision;
use crate::instant::Instant;
use crate::limit::Limit;

/// Units taken in the window that begins at `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindow {
    /// The window's start, in µs since the epoch.
    pub start: u64,
    /// Units taken in it.
    pub count: u64,
}

impl FixedWindow {
    /// The state as it counts at `now`: an older window counts 0, one in the future stays.
    ///
    /// A start is on the grid unless the period has changed; then it moves to the new grid, so that a
    /// window never outlasts the next edge.
    #[inline]
    fn at(self, limit: &Limit, now: Instant) -> Self {
        let current = window_start(limit, now.micros());
        if self.start == current {
            return self;
        }
        let start = window_start(limit, self.start);
        if start < current {
            return Self { start: current, count: 0 };
        }
        Self { start, ..self }
    }

    /// Whether `cost` more fit into this window.
    #[inline]
    fn fits(self, limit: &Limit, cost: u64) -> bool {
        cost == 0 || self.count + cost <= limit.amount()
    }

    #[inline]
    pub(crate) fn admits(self, limit: &Limit, now: Instant, cost: u64) -> bool {
        self.at(limit, now).fits(limit, cost)
    }

    #[inline]
    pub(crate) fn take(&mut self, limit: &Limit, now: Instant, cost: u64) {
        *self = self.at(limit, now);
        self.count += cost;
    }

    /// Gives back what was taken at `taken`, unless that window has rolled on.
    pub(crate) fn refund(&mut self, limit: &Limit, now: Instant, cost: u64, taken: Instant) {
        let window = self.at(limit, now);
        if window_start(limit, taken.micros()) == window.start {
            *self = Self { count: window.count.saturating_sub(cost), ..window };
        }
    }

    #[inline]
    pub(crate) fn reset_at(self, limit: &Limit) -> u64 {
        if self.count == 0 { 0 } else { self.start + limit.period_micros() }
    }

    #[inline]
    pub(crate) fn decision(self, limit: &Limit, now: Instant, cost: u64, charged: bool) -> Decision {
        let mut window = self.at(limit, now);
        let allowed = window.fits(limit, cost);
        if charged {
            window.count += cost;
        }
        let answer = Answer {
            allowed,
            remaining: limit.amount().saturating_sub(window.count),
            retry_at: window.start + limit.period_micros(),
            reset_at: window.reset_at(limit),
            delay: 0,
        };
        answer.decision(limit, now)
    }
}
