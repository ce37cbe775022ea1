//! What is remembered of a refusal, and for how long it holds.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use limiter_core::{Instant, Key, Layer, Limit, Record, Request, View};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use tokio::time;

/// How many marks there are. Keys that share one are forgotten together, which costs a call to the store each.
const MARKS: usize = 1024;

/// How much faster than ours the store's clock may run, as a part of what has passed: a clock that is being set right runs up to
/// 1/2000 off.
const DRIFT: u32 = 1000;

/// What the store told of a key when it refused, and when that was by this process's monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Told {
    limit: Limit,
    cost: u64,
    layer: Layer,
    /// The store's clock when it refused.
    at: Instant,
    /// Ours before it was asked, and after it answered.
    asked: time::Instant,
    answered: time::Instant,
    /// How much had been forgotten when it was asked.
    era: u64,
}

/// A moment before a call to the store. Refusals of the call are remembered with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    asked: time::Instant,
    era: u64,
}

/// The refusals that may still hold.
///
/// A refusal is forgotten by **marking**, not by removing it: one whose call was in flight meanwhile comes late, and must not be
/// believed either.
#[derive(Debug)]
pub(super) struct Table {
    told: Cache<Key, Told, UnitWeighter, RandomState>,
    max_age: Duration,
    hasher: RandomState,
    /// Counts what was forgotten.
    era: AtomicU64,
    /// By a key's hash, the era in which it was last forgotten.
    marks: Box<[AtomicU64]>,
}

impl Table {
    pub(super) fn new(max_keys: usize, max_age: Duration) -> Self {
        let capacity = u64::try_from(max_keys).unwrap_or(u64::MAX);
        let (hasher, lifecycle) = (RandomState::default(), DefaultLifecycle::default());
        Self {
            told: Cache::with(max_keys, capacity, UnitWeighter, hasher.clone(), lifecycle),
            max_age,
            hasher,
            era: AtomicU64::new(0),
            marks: (0..MARKS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn before(&self) -> Before {
        Before { asked: time::Instant::now(), era: self.era.load(Ordering::SeqCst) }
    }

    pub(super) fn len(&self) -> usize {
        self.told.len()
    }

    fn mark(&self, key: &Key) -> Option<&AtomicU64> {
        let hash = usize::try_from(self.hasher.hash_one(key.as_str()) >> 32).unwrap_or_default();
        self.marks.get(hash % MARKS)
    }

    /// What was told of `key` and may be believed. None also if it was told under another limit, which is then forgotten.
    fn believed(&self, key: &Key, limit: &Limit, now: time::Instant) -> Option<Told> {
        let told = self.told.get(key)?;
        if told.limit != *limit {
            self.forget(key);
            return None;
        }
        let fresh = now.saturating_duration_since(told.asked) < self.max_age;
        (fresh && self.mark(key)?.load(Ordering::SeqCst) <= told.era).then_some(told)
    }

    /// The refusal of `request`, if one of its limits is known to refuse.
    pub(super) fn refuse(&self, request: &Request, now: time::Instant) -> Option<Record> {
        let holds = |(key, limit, cost)| {
            let told = self.believed(key, limit, now)?;
            told.holds(cost, now).then_some(told)
        };
        let terms = || request.checks().iter().map(|check| (&check.key, &check.limit, check.cost));
        if let [check] = request.checks() {
            let told = holds((&check.key, &check.limit, check.cost))?;
            return Some(Record::from_cache(told.told_at(now), [Some(told.layer)]));
        }
        let told: Vec<Option<Told>> = terms().map(holds).collect();
        // One instant for all: the earliest, at which each of them still refuses.
        let at = told.iter().flatten().map(|told| told.told_at(now)).min()?;
        Some(Record::from_cache(at, told.iter().map(|told| told.map(|told| told.layer))))
    }

    /// Remembers what the store refused, and drops what is known less well now.
    pub(super) fn learn(&self, request: &Request, record: &Record, before: Before) {
        if record.allowed {
            for check in request.checks() {
                // Others were let in: what was told still refuses, but its numbers are old.
                if check.cost > 0 && self.told.contains_key(&check.key) {
                    self.told.remove(&check.key);
                }
            }
            return;
        }
        let answered = time::Instant::now();
        for (check, layer) in request.checks().iter().zip(record.layers()) {
            let Before { asked, era } = before;
            if layer.view.admits(&check.limit, record.at, check.cost) {
                continue;
            }
            let told =
                Told { limit: check.limit, cost: check.cost, layer: *layer, at: record.at, asked, answered, era };
            // An answer that was overtaken says less than the one that overtook it.
            let overtook = |known: Told| known.asked > asked && known.layer.version > layer.version;
            if !self.told.peek(&check.key).is_some_and(overtook) {
                self.told.insert(check.key.clone(), told);
            }
        }
    }

    /// Believes nothing of `key` that was asked before now.
    pub(super) fn forget(&self, key: &Key) {
        let era = self.era.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(mark) = self.mark(key) {
            mark.fetch_max(era, Ordering::SeqCst);
        }
    }
}

impl Told {
    /// Whether the store would refuse `cost` now. Its clock shows at most what it showed plus what has passed since before it was
    /// asked, so this never refuses what it would admit; near the end it lets ask too early.
    fn holds(&self, cost: u64, now: time::Instant) -> bool {
        let passed = now.saturating_duration_since(self.asked);
        let latest = self.at.saturating_add(passed + passed / DRIFT);
        match self.layer.view {
            // A log's answer is good for the cost that was asked: of its entries only the sum is known.
            View::SlidingLog(view) => cost == self.cost && latest.micros() < view.opens_at,
            view => !view.admits(&self.limit, latest, cost),
        }
    }

    /// An instant that the store's clock shows or has shown: what has passed since it answered, and no more. So a wait that is
    /// told from here is long enough.
    fn told_at(&self, now: time::Instant) -> Instant {
        self.at.saturating_add(now.saturating_duration_since(self.answered))
    }
}
