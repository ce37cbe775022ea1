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
#[cfg(feature = "memory")]
use std::sync::atomic::AtomicI64;
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
/// system's clock is seen after 100 ms. Otherwise the two differ by what the counter drifts in that time and by how long the
/// asking took, together some 20 µs; more only if the thread was interrupted at it four times in a row. Where the processor
/// has no steady counter, [`quanta`] falls back to the system's.
#[cfg(feature = "memory")]
#[derive(Debug)]
pub struct CounterClock {
    counter: quanta::Clock,
    start: u64,
    /// The wall clock minus the counter, in µs, when the system's clock was last asked.
    offset: AtomicI64,
    /// The counter's µs from which the system's clock is to be asked again.
    stale: AtomicU64,
}

/// What the system's clock said, and what the counter showed then, in µs.
#[cfg(feature = "memory")]
#[derive(Clone, Copy)]
struct Asked {
    counted: u64,
    wall: Instant,
}

#[cfg(feature = "memory")]
impl CounterClock {
    /// How long an answer of the system's clock is relied on, in µs.
    const RELIED_ON: u64 = 100_000;
    /// How long asking for it may take, in µs: else the thread was interrupted, and the two do not belong together.
    const ASKED_IN: u64 = 10;
    /// How often it is tried at most.
    const TRIES: usize = 4;

    /// A clock, set by the system's.
    #[must_use]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.raw();
        Self { counter, start, offset: AtomicI64::new(0), stale: AtomicU64::new(0) }
    }

    /// What the counter shows, in µs since this clock was made.
    #[inline]
    fn counted(&self) -> u64 {
        self.counter.delta_as_nanos(self.start, self.counter.raw()) / 1_000
    }

    /// The instant when the counter shows `counted`.
    #[inline]
    fn at(&self, counted: u64, ask: impl FnOnce() -> Asked) -> Instant {
        if counted >= self.stale.load(Ordering::Acquire) {
            return self.set(ask());
        }
        Instant::saturating_from_micros(counted.saturating_add_signed(self.offset.load(Ordering::Relaxed)))
    }

    #[cold]
    fn set(&self, asked: Asked) -> Instant {
        // The two are not written as one. A reader in between uses the offset of 100 ms ago, which is as good; the first
        // reader finds `stale` at 0 until there is an offset.
        let offset = asked.wall.micros().cast_signed().wrapping_sub(asked.counted.cast_signed());
        self.offset.store(offset, Ordering::Relaxed);
        self.stale.store(asked.counted + Self::RELIED_ON, Ordering::Release);
        asked.wall
    }

    /// Asks the system's clock, between two looks at the counter that lie close together.
    #[cold]
    fn ask(&self) -> Asked {
        let mut before = self.counted();
        let mut best = (u64::MAX, Asked { counted: before, wall: Instant::EPOCH });
        for _ in 0..Self::TRIES {
            let wall = SystemClock.now();
            let after = self.counted();
            let took = after.saturating_sub(before);
            if took < best.0 {
                best = (took, Asked { counted: before, wall });
            }
            if took <= Self::ASKED_IN {
                break;
            }
            before = after;
        }
        best.1
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
        self.at(self.counted(), || self.ask())
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

#[cfg(feature = "memory")]
#[cfg(test)]
mod tests {
    use super::*;

    const WALL: u64 = 1_700_000_000_000_000;

    fn asked(counted: u64, wall: u64) -> Asked {
        Asked { counted, wall: Instant::saturating_from_micros(wall) }
    }

    fn not_asked() -> Asked {
        panic!("the system's clock was asked too early")
    }

    #[test]
    fn a_counter_clock_relies_on_an_answer_for_100_ms() {
        let clock = CounterClock::new();
        assert_eq!(clock.at(5, || asked(5, WALL)).micros(), WALL);
        assert_eq!(clock.at(6, not_asked).micros(), WALL + 1);
        assert_eq!(clock.at(100_004, not_asked).micros(), WALL + 99_999);
        assert_eq!(
            clock.at(100_005, || asked(100_005, WALL + 100_007)).micros(),
            WALL + 100_007,
            "the counter had drifted"
        );
        assert_eq!(clock.at(100_006, not_asked).micros(), WALL + 100_008);
    }

    #[test]
    fn a_counter_clock_follows_a_step_either_way() {
        let clock = CounterClock::new();
        let hour = 3_600_000_000;
        assert_eq!(clock.at(0, || asked(0, WALL)).micros(), WALL);
        assert_eq!(clock.at(100_000, || asked(100_000, WALL - hour)).micros(), WALL - hour);
        assert_eq!(clock.at(150_000, not_asked).micros(), WALL - hour + 50_000);
        assert_eq!(clock.at(200_000, || asked(200_000, WALL + hour)).micros(), WALL + hour);
        assert_eq!(clock.at(200_001, not_asked).micros(), WALL + hour + 1);
        // A wall clock behind the counter: as on a machine that booted with its clock at the epoch.
        assert_eq!(clock.at(300_000, || asked(300_000, 7)).micros(), 7);
        assert_eq!(clock.at(300_001, not_asked).micros(), 8);
        assert_eq!(
            clock.at(299_990, not_asked),
            Instant::EPOCH,
            "never before it, though another core's counter is behind"
        );
    }

    #[test]
    fn a_counter_clock_follows_the_system_clock_whoever_reads_it_first() {
        // What a busy machine may add to the bound that the type states.
        let slack = 20_000;
        let clock = CounterClock::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let start = std::time::Instant::now();
                    while start.elapsed().as_millis() < 350 {
                        let before = SystemClock.now().micros();
                        let now = clock.now().micros();
                        let after = SystemClock.now().micros();
                        assert!(before <= now + slack && now <= after + slack, "{before} ≤ {now} ≤ {after}, all but");
                    }
                });
            }
        });
    }
}
