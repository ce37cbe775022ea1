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

/// The operating system's wall clock, read through the processor's cycle counter: some 10 ns where a system call's page
/// takes 18 to 30.
///
/// The counter tells how long ago the system's clock was asked, at most 100 ms; then it is asked again. So a step of the
/// system's clock is seen after 100 ms, and the two differ by what a counter drifts in that time, some µs at most. Where
/// the processor has no steady counter, [`quanta`] falls back to the system's.
#[cfg(feature = "memory")]
#[derive(Debug)]
pub struct CounterClock {
    counter: quanta::Clock,
    start: u64,
    /// The wall clock minus the counter, in µs, when the system's clock was last asked.
    offset: AtomicU64,
    /// The counter's µs from which the system's clock is to be asked again.
    stale: AtomicU64,
}

#[cfg(feature = "memory")]
impl CounterClock {
    /// How long an answer of the system's clock is relied on, in µs.
    const RELIED_ON: u64 = 100_000;

    /// A clock, set by the system's.
    #[must_use]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.raw();
        Self { counter, start, offset: AtomicU64::new(0), stale: AtomicU64::new(0) }
    }

    /// Asks the system's clock, when the counter shows `counted` µs.
    #[cold]
    fn set(&self, counted: u64) -> Instant {
        let now = SystemClock.now();
        // The two are not written as one. A reader in between uses the offset of 100 ms ago, which is as good; the first
        // reader finds `stale` at 0 until there is an offset.
        self.offset.store(now.micros().wrapping_sub(counted), Ordering::Relaxed);
        self.stale.store(counted + Self::RELIED_ON, Ordering::Release);
        now
    }
}

#[cfg(feature = "memory")]
impl Default for CounterClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "memory")]
impl Clock for CounterClock {
    #[inline]
    fn now(&self) -> Instant {
        let counted = self.counter.delta_as_nanos(self.start, self.counter.raw()) / 1_000;
        if counted >= self.stale.load(Ordering::Acquire) {
            return self.set(counted);
        }
        Instant::saturating_from_micros(counted.wrapping_add(self.offset.load(Ordering::Relaxed)))
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
