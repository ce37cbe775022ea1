//! One shard: a table of states behind one lock, and the order in which they become garbage.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;

use crate::decide::{Cell, take_one};
use crate::instant::Instant;
use crate::key::Key;
use crate::limit::{Algorithm, Limit};
use crate::state::{State, View};

/// A key that is as good as never used is kept this long all the same, in µs: a clock that steps back by less finds it.
const GRACE: u64 = 60_000_000;
/// How many keys that are due an insertion looks at in passing, so that the table follows the live keys down.
const SWEEP: usize = 2;

/// Places that an empty table keeps.
const SPARE: usize = 64;

/// The most that a shard holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) keys: usize,
    pub(super) log_entries: usize,
}

/// A table of states.
#[derive(Debug)]
pub(super) struct Shard {
    slots: HashTable<Slot>,
    queue: Queue,
    bounds: Bounds,
    log_entries: usize,
    /// The highest version that was ever removed: a key that comes back goes on above it.
    floor: u64,
}

/// Where a key is in its shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

/// A key's cell and what housekeeping knows of it.
#[derive(Debug)]
struct Slot {
    hash: u64,
    key: Key,
    cell: Cell,
    /// When the state is as good as never used, in µs.
    expires: u64,
    /// The one queue entry that stands for this slot. It is never later than `expires` and `kept`.
    queued: u64,
    /// Until when the engine's own clock keeps it all the same, in µs: it was written at a given instant.
    kept: u64,
    /// Entries of its log; 0 for other states.
    log_entries: usize,
}

/// The instants at which slots have to be looked at, earliest first.
///
/// A slot that is written again stays where it stands in the queue, and is moved back only when its old instant comes: so
/// a hot key costs the queue nothing.
#[derive(Debug, Default)]
struct Queue(BinaryHeap<Reverse<(u64, u64)>>);

impl Shard {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { slots: HashTable::new(), queue: Queue::default(), bounds, log_entries: 0, floor: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many places there are for keys, and how many due instants are kept.
    #[cfg(not(shuttle))]
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.slots.capacity(), self.queue.0.len())
    }

    /// A cell for a key that is not here.
    pub(super) fn fresh(&self) -> Cell {
        Cell { state: None, version: self.floor }
    }

    /// Where a key is. It stays there until a key is inserted, this one is removed, or the shard is swept.
    pub(super) fn find(&self, hash: u64, key: &Key) -> Option<Place> {
        self.slots.find_bucket_index(hash, |slot| slot.key == *key).map(Place)
    }

    #[expect(
        clippy::expect_used,
        reason = "no input reaches it: `find` gave the place, under the lock that is still held"
    )]
    pub(super) fn cell(&mut self, place: Place) -> &mut Cell {
        &mut self.slots.get_bucket_mut(place.0).expect("a key stays where it was found").cell
    }

    /// A take of a key that is here, in one look-up and without an allocation. None if the key is not here, or if its log might
    /// need room that is not there.
    #[inline]
    pub(super) fn take_known(
        &mut self,
        hash: u64,
        key: &Key,
        limit: &Limit,
        cost: u64,
        now: Instant,
    ) -> Option<(bool, View)> {
        if limit.algorithm() == Algorithm::SlidingLog && !self.has_room(0, 1) {
            return None;
        }
        let Self { slots, queue, log_entries, .. } = self;
        let slot = slots.find_mut(hash, |slot| slot.key == *key)?;
        let (allowed, view) = take_one(limit, cost, now, &mut slot.cell);
        if allowed && cost > 0 && slot.note(limit, Instant::EPOCH, queue, log_entries) {
            queue.shrink(slots);
        }
        Some((allowed, view))
    }

    /// Notes that the cell was written under `limit`, to be kept until then if at a given instant.
    pub(super) fn wrote(&mut self, place: Place, limit: &Limit, kept: Instant) {
        let Self { slots, queue, log_entries, .. } = self;
        if slots.get_bucket_mut(place.0).is_some_and(|slot| slot.note(limit, kept, queue, log_entries)) {
            queue.shrink(slots);
        }
    }

    /// Whether a take of this key, or of one that is not here, leaves the logs with an entry more than before.
    pub(super) fn adds_entry(&self, key: Option<Place>, limit: &Limit, now: Instant) -> bool {
        let slot = key.and_then(|place| self.slots.get_bucket(place.0));
        match slot.and_then(|slot| slot.cell.state.as_ref()) {
            Some(State::SlidingLog(log)) => limit.algorithm() == Algorithm::SlidingLog && log.grows(limit, now),
            _ => limit.algorithm() == Algorithm::SlidingLog,
        }
    }

    /// Whether there is room for `keys` new keys and `entries` more of logs.
    pub(super) fn has_room(&self, keys: usize, entries: usize) -> bool {
        self.slots.len() + keys <= self.bounds.keys && self.log_entries + entries <= self.bounds.log_entries
    }

    /// Adds a key that is not here yet. That there is room was seen to before.
    pub(super) fn insert(&mut self, hash: u64, key: Key, cell: Cell, limit: &Limit, kept: Instant) {
        let mut slot = Slot { hash, key, cell, expires: 0, queued: u64::MAX, kept: 0, log_entries: 0 };
        slot.note(limit, kept, &mut self.queue, &mut self.log_entries);
        self.slots.insert_unique(hash, slot, |slot| slot.hash);
        self.queue.shrink(&self.slots);
    }

    /// Drops a few of the keys that have been as good as never used for a while. Places change.
    pub(super) fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEEP {
            if !self.collect_one(now.micros().saturating_sub(GRACE), true) {
                break;
            }
        }
        // The memory follows down too, by halves, so that a flood of keys is paid for once.
        if self.slots.capacity() > 8 * self.slots.len() + SPARE {
            self.slots.shrink_to(2 * self.slots.len(), |slot| slot.hash);
            self.queue.0.shrink_to(2 * self.queue.0.len());
        }
    }

    pub(super) fn remove(&mut self, place: Place) {
        if let Ok(entry) = self.slots.get_bucket_entry(place.0) {
            let (slot, _) = entry.remove();
            self.forget(&slot);
        }
    }

    /// Looks at the slot that is due first: drops it, or moves it to its present instant. False if none is due at `until`,
    /// in µs, which is of the engine's own clock or given.
    pub(super) fn collect_one(&mut self, until: u64, own_clock: bool) -> bool {
        let Some(&Reverse((due, hash))) = self.queue.0.peek() else { return false };
        if due > until {
            return false;
        }
        self.queue.0.pop();
        // Without such a slot the entry is a leftover: its key was reset, or has a newer entry.
        let Ok(mut entry) = self.slots.find_entry(hash, |slot| slot.hash == hash && slot.queued == due) else {
            return true;
        };
        let slot = entry.get_mut();
        let expires = if own_clock { slot.expires.max(slot.kept) } else { slot.expires };
        if expires > until {
            slot.queued = expires;
            self.queue.push(slot);
        } else {
            let (slot, _) = entry.remove();
            self.forget(&slot);
        }
        true
    }

    fn forget(&mut self, slot: &Slot) {
        self.floor = self.floor.max(slot.cell.version);
        self.log_entries = self.log_entries.saturating_sub(slot.log_entries);
    }
}

impl Slot {
    /// Whether the queue has a new entry.
    #[inline]
    fn note(&mut self, limit: &Limit, kept: Instant, queue: &mut Queue, log_entries: &mut usize) -> bool {
        let Some(state) = &self.cell.state else { return false };
        let length = if let State::SlidingLog(log) = state { log.len() } else { 0 };
        if length != self.log_entries {
            *log_entries = (*log_entries + length).saturating_sub(self.log_entries);
            self.log_entries = length;
        }
        self.expires = state.reset_at(limit).micros();
        self.kept = kept.micros();
        let sooner = self.expires < self.queued;
        if sooner {
            self.queued = self.expires;
            queue.push(self);
        }
        sooner
    }
}

impl Queue {
    fn push(&mut self, slot: &Slot) {
        self.0.push(Reverse((slot.queued, slot.hash)));
    }

    /// Drops the leftovers once they outnumber the slots. To be asked after each push that may leave one.
    fn shrink(&mut self, slots: &HashTable<Slot>) {
        if self.0.len() > 2 * slots.len() + SWEEP {
            self.0 = slots.iter().map(|slot| Reverse((slot.queued, slot.hash))).collect();
        }
    }
}
