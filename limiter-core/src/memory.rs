//! The engine in this process's memory: the reference for all others, and the embedded default.

mod locked;
mod shard;
mod sync;
#[cfg(not(shuttle))]
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use foldhash::quality::RandomState;

use self::locked::Locked;
use self::shard::{Bounds, Shard};
use self::sync::{Mutex, MutexGuard};
use crate::backend::{Atomicity, Backend, Capabilities, ClockSource, Scope};
use crate::clock::{Clock, CounterClock};
use crate::error::{CheckError, Error};
use crate::instant::Instant;
use crate::key::Key;
use crate::limit::Limit;
use crate::outcome::{Outcome, Record, Verdict};
use crate::request::{Batch, Request, RequestError};
use crate::state::View;

/// The engine's name in errors and metrics.
const ENGINE: &str = "memory";
/// The most shards, so that threads at different keys seldom meet. A power of two.
const MAX_SHARDS: usize = 64;
/// The fewest keys that a shard has room for, unless the whole table has fewer: with less, chance would fill one too early.
const SHARD_KEYS: usize = 1024;
/// The fewest log entries that a shard has room for, unless the whole table has fewer: with less, the longest log would not fit.
const SHARD_LOG_ENTRIES: usize = 100_000;

/// How long a key that was written at a given instant is kept from this engine's own clock, to which it may look long gone.
const GIVEN: Duration = Duration::from_secs(60 * 60);

/// Limits kept in memory: exact over all threads of **this process only**. n processes admit n times the limit, and a restart
/// forgets.
///
/// # Bounds
/// The table is bounded by [`max_keys`](MemoryBuilder::max_keys) and [`max_log_entries`](MemoryBuilder::max_log_entries), each
/// split evenly over up to 64 shards. When a shard is full, keys that are as good as never used go first. A key with a live
/// debt is never dropped, since that would let its owner start anew: where only such keys are left, **a new key that would be
/// admitted is refused** with [`ErrorKind::Full`](crate::ErrorKind::Full), and so is an admission that a log would have to grow
/// for; the caller's failure policy decides what that means. All else goes on as before, denials of new keys included.
///
/// # Cost
/// [`take`](Memory::take) neither allocates nor boxes for a key that is known (a sliding log does when it grows), and takes
/// one lock.
///
/// ```
/// use limiter_core::{Key, Limit, Memory};
///
/// let limits = Memory::new();
/// let limit: Limit = "2/1h sliding-log".parse()?;
/// let key = Key::new("", "api", ["user-42"]);
/// assert!(limits.take(&key, &limit, 1)?.allowed());
/// assert!(limits.take(&key, &limit, 1)?.allowed());
/// let third = limits.take(&key, &limit, 1)?;
/// assert!(!third.allowed() && third.decision().retry_after.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory<C = CounterClock> {
    shards: Box<[Padded<Mutex<Shard>>]>,
    hasher: RandomState,
    clock: C,
}

/// Two cache lines to itself, so that taking one lock does not slow its neighbour.
#[repr(align(128))]
struct Padded<T>(T);

impl Memory {
    /// An empty table with the default bounds, on the system's clock, as [`CounterClock`] reads it.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A table with bounds or a clock of one's own.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder { max_keys: 1 << 20, max_log_entries: 1 << 23, clock: CounterClock::new() }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`Memory`] that is still being set up.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct MemoryBuilder<C = CounterClock> {
    max_keys: usize,
    max_log_entries: usize,
    clock: C,
}

impl<C: Clock> MemoryBuilder<C> {
    /// The most keys, by default 2^20. A key takes some 250 bytes. 0 counts as 1.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// The most entries of sliding logs in all, by default 2^23. An entry takes 16 bytes, up to 64 in a log that has just grown
    /// or shrunk. 0 counts as 1.
    ///
    /// Each shard has room for the longest log, 100 000 entries, so a bound under 64 of them means fewer shards, and under
    /// two of them a single lock for all keys.
    pub fn max_log_entries(mut self, entries: usize) -> Self {
        self.max_log_entries = entries;
        self
    }

    /// The clock that decides.
    pub fn clock<D: Clock>(self, clock: D) -> MemoryBuilder<D> {
        MemoryBuilder { max_keys: self.max_keys, max_log_entries: self.max_log_entries, clock }
    }

    /// The empty table.
    #[must_use]
    pub fn build(self) -> Memory<C> {
        let (keys, log_entries) = (self.max_keys.max(1), self.max_log_entries.max(1));
        let wanted = (keys / SHARD_KEYS).min(log_entries / SHARD_LOG_ENTRIES).clamp(1, MAX_SHARDS);
        let shards = if wanted.is_power_of_two() { wanted } else { wanted.next_power_of_two() / 2 };
        let bounds = Bounds { keys: keys.div_ceil(shards), log_entries: log_entries.div_ceil(shards) };
        Memory {
            shards: (0..shards).map(|_| Padded(Mutex::new(Shard::new(bounds)))).collect(),
            hasher: RandomState::default(),
            clock: self.clock,
        }
    }
}

impl<C: Clock> Memory<C> {
    /// Takes `cost` units of `key` under `limit`, at the clock's instant.
    ///
    /// # Errors
    /// [`CheckError::Request`] if the cost can never pass; [`CheckError::NotSent`] of kind [`ErrorKind::Full`](crate::ErrorKind::Full) if the key is new
    /// and the table full of live ones, or its log would grow and the room for entries is used up. Nothing was charged then.
    pub fn take<'l>(&self, key: &Key, limit: &'l Limit, cost: u64) -> Result<Verdict<'l>, CheckError> {
        if cost > limit.capacity() {
            return Err(RequestError::CostExceedsLimit { index: 0, cost, limit: limit.capacity() }.into());
        }
        if let Some(verdict) = self.take_known(key, limit, cost) {
            return Ok(verdict);
        }
        self.take_other(key, limit, cost)
    }

    /// A take of a key that is new, or whose log might need room that is not there.
    #[cold]
    #[inline(never)]
    fn take_other<'l>(&self, key: &Key, limit: &'l Limit, cost: u64) -> Result<Verdict<'l>, CheckError> {
        let request = Request::take(key.clone(), *limit, cost)?;
        let record = self.decide_now(&request, None).map_err(CheckError::NotSent)?;
        let view = record.layers.first().map_or_else(|| View::fresh(limit.algorithm()), |layer| layer.view);
        Ok(Verdict::new(record.allowed, record.at, limit, cost, view))
    }

    /// Decides one request, at `at` or else at the clock's instant. [`Outcome::Unknown`] does not occur here.
    pub fn decide(&self, request: &Request, at: Option<Instant>) -> Outcome {
        match self.decide_now(request, at) {
            Ok(record) => Outcome::decided(record),
            Err(full) => Outcome::NotSent(full),
        }
    }

    #[inline]
    fn take_known<'l>(&self, key: &Key, limit: &'l Limit, cost: u64) -> Option<Verdict<'l>> {
        let hash = self.hash(key);
        let mut shard = self.lock(self.shard_of(hash));
        // Read under the lock: an instant from before the wait would be older than the state.
        let now = self.clock.now();
        let (allowed, view) = shard.take_known(hash, key, limit, cost, now)?;
        Some(Verdict::new(allowed, now, limit, cost, view))
    }

    fn decide_now(&self, request: &Request, at: Option<Instant>) -> Result<Record, Error> {
        let place = |key: &Key| {
            let hash = self.hash(key);
            (self.shard_of(hash), hash)
        };
        let mut locked = Locked::lock(request, place, |shard| self.lock(shard));
        let clock = self.clock.now();
        let Some(given) = at else {
            // Not at a given instant: that is a replay's or a test's, and may go back further than any grace.
            locked.sweep(clock);
            return locked.decide(clock, None);
        };
        locked.decide(given, Some(clock.saturating_add(GIVEN)))
    }

    fn hash(&self, key: &Key) -> u64 {
        // The bytes alone: nothing is hashed beside them that a text would have to be marked off from.
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_str().as_bytes());
        hasher.finish()
    }

    /// The high bits of a hash pick the shard; the table in it goes by the low ones.
    fn shard_of(&self, hash: u64) -> usize {
        usize::try_from(hash >> 32).unwrap_or_default() & (self.shards.len() - 1)
    }

    #[expect(clippy::indexing_slicing, reason = "the index is masked by the number of shards, in `shard_of`")]
    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // A panic under the lock would be a bug in a machine. It happens before the write, so the states are whole.
        self.shards[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many keys are stored, those included that are as good as never used and not yet dropped.
    #[must_use]
    pub fn len(&self) -> usize {
        (0..self.shards.len()).map(|index| self.lock(index).len()).sum()
    }

    /// Whether no key is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[async_trait]
impl<C: Clock> Backend for Memory<C> {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        batch.requests.iter().map(|request| self.decide(request, batch.at)).collect()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(ENGINE, ClockSource::Node, Scope::Process, Atomicity::AllKeys)
    }
}

impl<C: Clock> fmt::Debug for Memory<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("shards", &self.shards.len()).field("clock", &self.clock).finish_non_exhaustive()
    }
}
