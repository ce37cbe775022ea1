//! This node: what it shares between its transactions, and who is decided next.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limiter_core::{Error, ErrorKind, Key};
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::ENGINE;
use crate::cache::Cache;
use crate::call::Call;
use crate::commit;
use crate::config::Config;
use crate::figures::{Counters, Figures};
use crate::group::{Group, Slot};
use crate::lease::Leases;
use crate::link::Link;
use crate::queue::Queue;
use crate::value::Mark;

/// There is at most one warning in so long that a state is ahead of the clock.
const WARN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) link: Link,
    pub(crate) config: Config,
    pub(crate) leases: Leases,
    pub(crate) counters: Counters,
    shared: Mutex<Shared>,
    /// This engine's number in marks: no other has it.
    number: u64,
    next: AtomicU64,
    random: RandomState,
    max_keys: AtomicUsize,
    /// How long a transaction takes of late, in µs.
    round_trip: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    cache: Cache,
}

impl Node {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        let random = RandomState::new();
        Arc::new(Self {
            link: Link::new(config.clone()),
            leases: Leases::new(config.margin),
            counters: Counters::new(),
            shared: Mutex::new(Shared { queue: Queue::default(), cache: Cache::new(config.cached_keys) }),
            // Of the operating system's randomness, and of a clock and a process besides.
            number: random.hash_one((std::process::id(), std::time::SystemTime::now())),
            next: AtomicU64::new(0),
            random,
            max_keys: AtomicUsize::new(config.max_keys_per_txn),
            round_trip: AtomicU64::new(500),
            warned: Mutex::default(),
            config,
        })
    }

    /// Lets the call's requests wait for their turn.
    pub(crate) fn enqueue(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), Error> {
        {
            let mut shared = self.shared();
            if shared.queue.len() + call.len() > self.config.max_waiting {
                return Err(Error::new(ENGINE, ErrorKind::Overloaded, "too many requests wait for the store already"));
            }
            shared.queue.push(call);
        }
        self.kick();
        Ok(())
    }

    /// Sees to it that as many transactions are begun as there may be.
    fn kick(self: &Arc<Self>) {
        // None while the runtime shuts down: then nobody waits either.
        let Ok(runtime) = Handle::try_current() else { return };
        {
            let queue = &mut self.shared().queue;
            let whole = queue.active == 0 || queue.len() >= self.max_keys.load(Ordering::Relaxed);
            if queue.starting || queue.len() == 0 || queue.active >= self.config.max_in_flight || !whole {
                return;
            }
            queue.starting = true;
        }
        runtime.spawn(Arc::clone(self).begin());
    }

    /// Begins them, once those who are about to ask have asked: of many that were answered together, the first would else go alone,
    /// and all others wait for it.
    async fn begin(self: Arc<Self>) {
        yield_now().await;
        let mut groups = Vec::new();
        self.shared().queue.starting = false;
        while let Some(mut group) = self.next_group() {
            // Not those whose caller has gone; their keys are held all the same.
            group.members.retain(|member| member.waiting.call.begin(member.waiting.index));
            let keys = group.slots.iter().map(|slot| slot.key.clone()).collect();
            let held = Held { node: Arc::clone(&self), keys, active: true };
            groups.push(commit::run(group, held));
        }
        let last = groups.pop();
        for group in groups {
            tokio::spawn(group);
        }
        if let Some(group) = last {
            group.await;
        }
    }

    fn next_group(&self) -> Option<Group> {
        let mut shared = self.shared();
        let Shared { queue, cache } = &mut *shared;
        if queue.active >= self.config.max_in_flight {
            return None;
        }
        // Beside another only if it is a whole transaction: else those who wait go together when that one is back.
        let batch = queue.next(self.max_keys.load(Ordering::Relaxed), queue.active > 0)?;
        queue.active += 1;
        Some(Group::new(batch, |key| cache.take(key)))
    }

    /// What is known of the group's keys now.
    pub(crate) fn keep(&self, slots: Vec<Slot>) {
        let mut shared = self.shared();
        for slot in slots {
            shared.cache.keep(slot.key, slot.base);
        }
    }

    /// The server takes no transaction of so many keys.
    pub(crate) fn fewer_than(&self, keys: usize) {
        self.max_keys.fetch_min((keys / 2).max(1), Ordering::Relaxed);
    }

    /// This engine's number in marks.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { engine: self.number, number: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// How long a transaction takes of late.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip.load(Ordering::Relaxed))
    }

    pub(crate) fn took(&self, round_trip: Duration) {
        let now = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX).min(100_000);
        let before = self.round_trip.load(Ordering::Relaxed);
        // That another's is lost between the two is no harm.
        self.round_trip.store((7 * before + now) / 8, Ordering::Relaxed);
    }

    /// A random wait of up to so long.
    pub(crate) fn jitter(&self, longest: Duration) -> Duration {
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX).max(1);
        let random = self.random.hash_one((self.next.fetch_add(1, Ordering::Relaxed), Instant::now()));
        Duration::from_micros(random % micros)
    }

    /// Looks whether what others wrote is ahead of this node's clock.
    pub(crate) fn compare_clocks(&self, slots: &[Slot]) {
        let latest = self.config.clock.now().saturating_add(self.config.skew);
        let ahead =
            slots.iter().filter_map(|slot| slot.base.cell.state.as_ref()).filter(|state| state.latest() > latest);
        let ahead = ahead.count();
        if ahead == 0 {
            return;
        }
        Counters::add(&self.counters.ahead, ahead);
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(
                engine = ENGINE,
                "a stored state is over {:?} ahead of this node's clock: the clocks of the nodes are apart",
                self.config.skew
            );
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        let cached_keys = self.shared().cache.len();
        Figures { leases: self.leases.len(), cached_keys, ..self.counters.figures() }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys that nobody else of this process may touch. They are free again when it is dropped, however that comes about.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) node: Arc<Node>,
    keys: Vec<Key>,
    /// Whether it counts among those on their way.
    active: bool,
}

impl Held {
    /// It takes longer: others need not wait for it any more, but for its keys.
    pub(crate) fn slow(&mut self) {
        if std::mem::take(&mut self.active) {
            self.node.shared().queue.active -= 1;
            self.node.kick();
        }
    }

    /// A part of the keys, held by itself.
    pub(crate) fn part(&mut self, slots: &[Slot]) -> Self {
        let keys: Vec<Key> = slots.iter().map(|slot| slot.key.clone()).collect();
        self.keys.retain(|key| !keys.contains(key));
        Self { node: Arc::clone(&self.node), keys, active: false }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        {
            let mut shared = self.node.shared();
            shared.queue.release(&self.keys);
            if self.active {
                shared.queue.active -= 1;
            }
        }
        self.node.kick();
    }
}
