//! All shards of one request, locked together, so that it is decided in one step.

use smallvec::SmallVec;

use super::ENGINE;
use super::shard::{Shard, log_entries_for};
use super::sync::MutexGuard;
use crate::decide::{Cell, Cells, decide, decide_terms};
use crate::error::{Error, ErrorKind};
use crate::instant::Instant;
use crate::outcome::Record;
use crate::request::{Check, Op, Request};

pub(super) struct Locked<'m, 'r> {
    request: &'r Request,
    /// The shards of the request's keys, each once, in the one order in which everybody locks them.
    shards: SmallVec<[(usize, MutexGuard<'m, Shard>); 4]>,
    /// Where each check's key is.
    places: SmallVec<[Place; 4]>,
}

struct Place {
    /// The position in `shards`.
    shard: usize,
    hash: u64,
    /// The cell of a key that is not in its shard.
    fresh: Option<Cell>,
}

impl<'m, 'r> Locked<'m, 'r> {
    /// Locks what the request needs. `keys` tells each check's shard and hash.
    pub(super) fn lock(
        request: &'r Request,
        keys: impl Iterator<Item = (usize, u64)>,
        lock: impl Fn(usize) -> MutexGuard<'m, Shard>,
    ) -> Self {
        let keys: SmallVec<[(usize, u64); 4]> = keys.collect();
        let mut order: SmallVec<[usize; 4]> = keys.iter().map(|(shard, _)| *shard).collect();
        // In one order for all threads, so that two layered requests never wait for each other.
        order.sort_unstable();
        order.dedup();
        let position = |shard: &usize| order.binary_search(shard).unwrap_or_default();
        let places =
            keys.iter().map(|(shard, hash)| Place { shard: position(shard), hash: *hash, fresh: None }).collect();
        let shards = order.iter().map(|shard| (*shard, lock(*shard))).collect();
        Self { request, shards, places }
    }

    pub(super) fn sweep(&mut self, now: Instant) {
        for (_, shard) in &mut self.shards {
            shard.sweep(now);
        }
    }

    /// Decides the request and keeps the table's books. At a given instant, `kept` is until when the engine's own clock is to
    /// keep what it writes.
    pub(super) fn decide(mut self, now: Instant, kept: Option<Instant>) -> Result<Record, Error> {
        if self.request.op() == Op::Take && !self.make_room(now, kept.is_none()) {
            return self.without_room(now);
        }
        self.load();
        let request = self.request;
        let record = decide(request, now, &mut self);
        if record.allowed {
            self.store(kept.unwrap_or_default());
        }
        Ok(record)
    }

    /// A denial needs no room. What would be admitted is refused, since its charge can't be kept.
    fn without_room(&mut self, now: Instant) -> Result<Record, Error> {
        self.load();
        let terms = self.request.checks().iter().map(|check| (&check.limit, check.cost));
        let record = decide_terms(Op::Peek, terms, now, self);
        if record.allowed {
            return Err(Error::new(ENGINE, ErrorKind::Full, "the table is full of keys with a live debt"));
        }
        Ok(record)
    }

    fn make_room(&mut self, now: Instant, own_clock: bool) -> bool {
        (0..self.shards.len()).all(|position| {
            loop {
                // Asked again after each step: a key that makes room may be one of the request's own.
                let (keys, log_entries) = self.needs(position);
                let Some((_, shard)) = self.shards.get_mut(position) else { return true };
                if shard.has_room(keys, log_entries) {
                    return true;
                }
                if !shard.collect_one(now.micros(), own_clock) {
                    return false;
                }
            }
        })
    }

    /// How many keys and log entries the request may add to a shard.
    fn needs(&mut self, position: usize) -> (usize, usize) {
        let Some((_, shard)) = self.shards.get_mut(position) else { return (0, 0) };
        let here = self.request.checks().iter().zip(&self.places).filter(|(_, place)| place.shard == position);
        here.filter(|(check, _)| check.cost > 0).fold((0, 0), |(keys, log_entries), (check, place)| {
            let new = usize::from(shard.find(place.hash, &check.key).is_none());
            (keys + new, log_entries + log_entries_for(&check.limit))
        })
    }

    /// Gives each key that is not there a cell outside the table.
    fn load(&mut self) {
        for (check, place) in self.request.checks().iter().zip(&mut self.places) {
            let Some((_, shard)) = self.shards.get_mut(place.shard) else { continue };
            place.fresh = shard.find(place.hash, &check.key).is_none().then(|| shard.fresh());
        }
    }

    /// Brings the table up to what was decided.
    fn store(&mut self, kept: Instant) {
        for (check, place) in self.request.checks().iter().zip(&mut self.places) {
            let Check { key, limit, .. } = check;
            let Some((_, shard)) = self.shards.get_mut(place.shard) else { continue };
            match (self.request.op(), place.fresh.take()) {
                (Op::Reset, None) => shard.remove(place.hash, key),
                (_, None) => shard.wrote(place.hash, key, limit, kept),
                (_, Some(cell)) if cell.state.is_some() => shard.insert(place.hash, key.clone(), cell, limit, kept),
                (_, Some(_)) => {}
            }
        }
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "there is one place for each check, and a place's shard is a position in `shards`"
)]
impl Cells for Locked<'_, '_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        let place = &mut self.places[index];
        match self.shards[place.shard].1.find(place.hash, &self.request.checks()[index].key) {
            Some(cell) => cell,
            None => place.fresh.get_or_insert_default(),
        }
    }
}
