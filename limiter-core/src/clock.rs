//! What time it is, and whose word counts.
//!
//! A limit is a promise about time, so the instant of a decision comes from **one** clock: the store's where it has one,
//! since ten nodes' clocks would be ten limits; else the deciding node's. The caller's is never asked. A machine takes
//! the instant as an argument and reads no clock, hence a replay or a test gives the instants instead and gets the same
//! answers.
//!
//! It is wall-clock time, because windows lie on the epoch's grid and because a state is read again by other nodes, and after
//! a restart. Wall clocks step. Backward, nothing more is let through: each machine keeps what it has (a TAT, a window or an
//! entry in the future counts), and waits are told on the clock that was read. Forward by e, a bucket gains at most what
//! e is worth, once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::instant::Instant;

/// A source of instants.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The instant now. It may be earlier than the last one.
    fn now(&self) -> Instant;
}

/// The operating system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::from_system_time(std::time::SystemTime::now())
    }
}

/// A clock that stands still until it is set. Clones share it.
///
/// ```
/// use limiter_core::{Clock, Instant, ManualClock};
///
/// let clock = ManualClock::at(Instant::EPOCH);
/// clock.set(Instant::from_micros(5)?);
/// assert_eq!(clock.now().micros(), 5);
/// # Ok::<(), limiter_core::InstantError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `at`.
    #[must_use]
    pub fn at(at: Instant) -> Self {
        Self(Arc::new(AtomicU64::new(at.micros())))
    }

    /// Sets it, forward or back.
    pub fn set(&self, at: Instant) {
        self.0.store(at.micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::saturating_from_micros(self.0.load(Ordering::SeqCst))
    }
}
