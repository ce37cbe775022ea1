//! Instants: whole microseconds since the Unix epoch, and their bound.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: a whole number of **microseconds since the Unix epoch**, below 2^53.
///
/// The bound keeps each instant exact in a double, the only number that a script in Lua 5.1 has;
/// it lies in the year 2255.
///
/// ```
/// use limiter_core::Instant;
///
/// let at = Instant::from_micros(1_764_559_423_123_456)?;
/// assert_eq!(at.micros(), 1_764_559_423_123_456);
/// assert!(Instant::from_micros(1 << 53).is_err());
/// # Ok::<(), limiter_core::InstantError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The Unix epoch, the first instant.
    pub const EPOCH: Self = Self(0);
    /// The last instant, 2^53 − 1 µs.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The instant `micros` microseconds after the Unix epoch.
    ///
    /// # Errors
    /// [`InstantError`] if `micros` is 2^53 or more.
    pub const fn from_micros(micros: u64) -> Result<Self, InstantError> {
        if micros > Self::MAX.0 {
            return Err(InstantError { micros });
        }
        Ok(Self(micros))
    }

    /// Microseconds since the Unix epoch, below 2^53.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// This instant and `wait` more, cut to whole microseconds; [`Instant::MAX`] if that is past the bound.
    #[must_use]
    pub fn saturating_add(self, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        Self::saturating_from_micros(self.0.saturating_add(wait))
    }

    /// What a clock says, brought into the bounds: a clock before 1970 reads as the epoch.
    #[must_use]
    pub fn from_system_time(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self::EPOCH.saturating_add(since)
    }

    pub(crate) const fn saturating_from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 {
            return Self::MAX;
        }
        Self(micros)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} µs", self.0)
    }
}

/// An instant at or past 2^53 µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instant {micros} µs is over its bound of {} µs", Instant::MAX.micros())]
pub struct InstantError {
    /// The microseconds that were asked for.
    pub micros: u64,
}
