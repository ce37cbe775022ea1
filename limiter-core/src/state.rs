//! What is stored for a key, and what one decision reads of it.

mod sound;
mod stored;

use crate::algorithm::bucket::Bucket;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::algorithm::sliding_log::{LogView, SlidingLog};
use crate::decision::Decision;
use crate::instant::Instant;
use crate::limit::{Algorithm, Limit};

pub use sound::Unsound;

/// A key's state: one variant for each machine. The two buckets are one machine.
///
/// A state of another algorithm than the limit's counts as fresh: a key whose algorithm is changed starts anew.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Of a fixed window.
    FixedWindow(FixedWindow),
    /// Of a sliding log.
    SlidingLog(SlidingLog),
    /// Of a sliding counter.
    SlidingCounter(SlidingCounter),
    /// Of a token bucket or a leaky bucket.
    Bucket(Bucket),
}

/// What one decision reads of a state: all of it, but for the log, of which it is a digest. `Copy`, and 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum View {
    /// Of a fixed window.
    FixedWindow(FixedWindow),
    /// Of a sliding log.
    SlidingLog(LogView),
    /// Of a sliding counter.
    SlidingCounter(SlidingCounter),
    /// Of a token bucket or a leaky bucket.
    Bucket(Bucket),
}

impl State {
    /// The state of a key that was never used.
    #[must_use]
    pub fn fresh(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::default()),
            Algorithm::SlidingCounter => Self::SlidingCounter(SlidingCounter::default()),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Bucket(Bucket::default()),
        }
    }

    /// What a decision on `cost` at `now` reads.
    #[must_use]
    #[inline]
    pub fn view(&self, limit: &Limit, now: Instant, cost: u64) -> View {
        match (self, limit.algorithm()) {
            (Self::FixedWindow(state), Algorithm::FixedWindow) => View::FixedWindow(*state),
            (Self::SlidingLog(log), Algorithm::SlidingLog) => View::SlidingLog(log.view(limit, now, cost)),
            (Self::SlidingCounter(state), Algorithm::SlidingCounter) => View::SlidingCounter(*state),
            (Self::Bucket(state), Algorithm::TokenBucket | Algorithm::LeakyBucket) => View::Bucket(*state),
            (_, algorithm) => View::fresh(algorithm),
        }
    }

    /// When the key is as good as never used if nothing else comes: from then on the state is garbage. The epoch if it is so
    /// already.
    #[must_use]
    #[inline]
    pub fn reset_at(&self, limit: &Limit) -> Instant {
        let micros = match self {
            Self::FixedWindow(state) => state.reset_at(limit),
            Self::SlidingLog(log) => log.reset_at(limit),
            Self::SlidingCounter(state) => state.reset_at(limit),
            Self::Bucket(state) => state.reset_at(),
        };
        Instant::saturating_from_micros(micros)
    }

    /// The latest instant that the state tells of: of its last write, of its newest entry, or at which its window begins. A clock
    /// that shows less is behind the one that wrote it. The epoch if it tells of none.
    #[must_use]
    pub fn latest(&self) -> Instant {
        Instant::saturating_from_micros(match self {
            Self::FixedWindow(state) => state.start,
            Self::SlidingLog(log) => log.newest(),
            Self::SlidingCounter(state) => state.start,
            Self::Bucket(state) => state.seen,
        })
    }

    /// Charges `cost`. Whether it may pass was asked before, by [`View::admits`].
    #[inline]
    pub fn take(&mut self, limit: &Limit, now: Instant, cost: u64) {
        match (&mut *self, limit.algorithm()) {
            (Self::FixedWindow(state), Algorithm::FixedWindow) => state.take(limit, now, cost),
            (Self::SlidingLog(log), Algorithm::SlidingLog) => log.take(limit, now, cost),
            (Self::SlidingCounter(state), Algorithm::SlidingCounter) => state.take(limit, now, cost),
            (Self::Bucket(state), Algorithm::TokenBucket | Algorithm::LeakyBucket) => state.take(limit, now, cost),
            (_, algorithm) => {
                *self = Self::fresh(algorithm);
                self.take(limit, now, cost);
            }
        }
    }

    /// [`State::view`], [`View::admits`] and, if so, [`State::take`]: one check. With one branch on the kind of state, so that
    /// the compiler sees each machine's three parts together.
    #[cfg(feature = "memory")]
    #[inline]
    pub(crate) fn take_if(&mut self, limit: &Limit, now: Instant, cost: u64) -> (bool, View) {
        macro_rules! take_if {
            ($state:ident, $view:expr, $kind:expr) => {{
                let view = $view;
                let allowed = view.admits(limit, now, cost);
                if allowed && cost > 0 {
                    $state.take(limit, now, cost);
                }
                (allowed, $kind(view))
            }};
        }
        match (&mut *self, limit.algorithm()) {
            (Self::FixedWindow(state), Algorithm::FixedWindow) => take_if!(state, *state, View::FixedWindow),
            (Self::SlidingLog(log), Algorithm::SlidingLog) => {
                take_if!(log, log.view(limit, now, cost), View::SlidingLog)
            }
            (Self::SlidingCounter(state), Algorithm::SlidingCounter) => take_if!(state, *state, View::SlidingCounter),
            (Self::Bucket(state), Algorithm::TokenBucket | Algorithm::LeakyBucket) => {
                take_if!(state, *state, View::Bucket)
            }
            _ => take_if!(self, self.view(limit, now, cost), std::convert::identity),
        }
    }

    /// Gives back `cost` units that were taken at `taken`: never above full, and nothing once a window or log has rolled on.
    pub fn refund(&mut self, limit: &Limit, now: Instant, cost: u64, taken: Instant) {
        match (self, limit.algorithm()) {
            (Self::FixedWindow(state), Algorithm::FixedWindow) => state.refund(limit, now, cost, taken),
            (Self::SlidingLog(log), Algorithm::SlidingLog) => log.refund(limit, now, cost, taken),
            (Self::SlidingCounter(state), Algorithm::SlidingCounter) => state.refund(limit, now, cost, taken),
            (Self::Bucket(state), Algorithm::TokenBucket | Algorithm::LeakyBucket) => state.refund(limit, now, cost),
            _ => {}
        }
    }
}

impl View {
    /// What a key that was never used shows.
    #[must_use]
    pub fn fresh(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingLog => Self::SlidingLog(LogView::default()),
            Algorithm::SlidingCounter => Self::SlidingCounter(SlidingCounter::default()),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Bucket(Bucket::default()),
        }
    }

    /// Whether `cost` may pass at `now`. A cost of 0 may always.
    #[must_use]
    #[inline]
    pub fn admits(&self, limit: &Limit, now: Instant, cost: u64) -> bool {
        match self {
            Self::FixedWindow(state) => state.admits(limit, now, cost),
            Self::SlidingLog(view) => view.admits(limit, now, cost),
            Self::SlidingCounter(state) => state.admits(limit, now, cost),
            Self::Bucket(state) => state.admits(limit, now, cost),
        }
    }

    /// The decision on `cost` at `now`; `charged` if the cost was then taken.
    #[inline]
    pub fn decision(&self, limit: &Limit, now: Instant, cost: u64, charged: bool) -> Decision {
        match self {
            Self::FixedWindow(state) => state.decision(limit, now, cost, charged),
            Self::SlidingLog(view) => view.decision(limit, now, cost, charged),
            Self::SlidingCounter(state) => state.decision(limit, now, cost, charged),
            Self::Bucket(state) => state.decision(limit, now, cost, charged),
        }
    }
}
