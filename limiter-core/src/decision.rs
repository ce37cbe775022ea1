//! What the caller is told, derived from an engine's record in this one place.

use std::time::Duration;

use smallvec::SmallVec;

use crate::instant::Instant;
use crate::source::Source;

/// The answer of one limit.
///
/// ```
/// use limiter_core::{Instant, Limit, State};
///
/// let limit: Limit = "10/1s token-bucket burst=2".parse()?;
/// let mut state = State::fresh(limit.algorithm());
/// let now = Instant::from_micros(1_000_000)?;
/// state.take(&limit, now, 2);
/// let refused = state.view(&limit, now, 1).decision(&limit, now, 1, false);
/// assert!(!refused.allowed);
/// assert_eq!(refused.retry_after.map(|wait| wait.as_millis()), Some(100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whether it may go on is in `allowed`"]
#[non_exhaustive]
pub struct Decision {
    /// Whether it may go on.
    pub allowed: bool,
    /// The capacity: the most that a fresh key admits at once.
    pub limit: u64,
    /// The largest cost that would be admitted at this same instant, after this decision.
    pub remaining: u64,
    /// None if allowed. Else the shortest wait, in whole microseconds and over 0, after which the same cost is
    /// admitted if nothing else comes.
    pub retry_after: Option<Duration>,
    /// The shortest wait, in whole microseconds, after which the key is as good as never used if nothing else comes.
    pub reset_after: Duration,
    /// Leaky bucket: how long to wait before going on. Else zero.
    pub delay: Duration,
    /// The instant at which it was decided.
    pub at: Instant,
    /// Whose word it is, and whether the numbers above mean anything.
    pub source: Source,
}

impl Decision {
    /// Whether the store counted units for it, which a refund may give back: it allowed, and neither a fallback nor nobody did.
    #[must_use]
    pub const fn charged(&self) -> bool {
        self.allowed && matches!(self.source, Source::Store)
    }

    /// Of a limit that was not asked: it is in nobody's way, and has no numbers.
    pub(crate) fn uncounted(limit: u64, at: Instant, source: Source) -> Self {
        Self { source, ..Self::from_micros(true, limit, 0, None, 0, 0, at) }
    }

    #[inline]
    pub(crate) fn from_micros(
        allowed: bool,
        limit: u64,
        remaining: u64,
        retry_after: Option<u64>,
        reset_after: u64,
        delay: u64,
        at: Instant,
    ) -> Self {
        Self {
            allowed,
            limit,
            remaining,
            retry_after: retry_after.map(Duration::from_micros),
            reset_after: Duration::from_micros(reset_after),
            delay: Duration::from_micros(delay),
            at,
            source: Source::Store,
        }
    }
}

/// The answer to a whole request: all its limits, decided together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "whether it may go on is in `allowed`"]
#[non_exhaustive]
pub struct Decisions {
    /// Whether every limit allows it; then each was charged, and otherwise none.
    pub allowed: bool,
    /// None if allowed. Else the longest wait of the limits that refuse.
    pub retry_after: Option<Duration>,
    /// How long to wait before going on: the longest of the layers' delays. Zero if refused.
    pub delay: Duration,
    /// The instant at which it was decided.
    pub at: Instant,
    /// Whose word it is: of an answer that a fallback gave, the least trusted of its limits'.
    pub source: Source,
    layers: SmallVec<[Decision; 1]>,
}

impl Decisions {
    pub(crate) fn of(allowed: bool, at: Instant, source: Source, layers: SmallVec<[Decision; 1]>) -> Self {
        Self {
            allowed,
            retry_after: layers.iter().filter_map(|layer| layer.retry_after).max(),
            delay: layers.iter().map(|layer| layer.delay).max().unwrap_or_default(),
            at,
            source,
            layers,
        }
    }

    /// Whether the store counted units for it, which a refund may give back.
    #[must_use]
    pub const fn charged(&self) -> bool {
        self.allowed && matches!(self.source, Source::Store)
    }

    /// One answer for each limit, in the order of the request. In a refused request a limit that would have
    /// allowed it says so, with what it still holds.
    pub fn layers(&self) -> &[Decision] {
        &self.layers
    }
}
