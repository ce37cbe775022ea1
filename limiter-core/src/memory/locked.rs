//! All shards of one request, locked together, so that it is decided in one step.

use smallvec::SmallVec;

use super::ENGINE;
use super::shard::{Place, Shard};
use super::sync::MutexGuard;
use crate::decide::{Cell, Cells, decide, decide_terms};
use crate::error::{Error, ErrorKind};
use crate::instant::Instant;
use crate::key::Key;
use crate::outcome::Record;
use crate::request::{Check, Op, Request};

pub(super) struct Locked<'m, 'r> {
    request: &'r Request,
    /// The shards of the request's keys, each once.
    shards: SmallVec<[MutexGuard<'m, Shard>; 4]>,
    /// Where each check's key is.
    targets: SmallVec<[Target; 4]>,
    /// The cells of the keys that are not in their shards.
    fresh: Vec<Cell>,
}

struct Target {
    /// The position in `shards`.
    shard: usize,
    hash: u64,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// In the shard.
    Known(Place),
    /// At this position in `fresh`.
    Fresh(usize),
}

impl<'m, 'r> Locked<'m, 'r> {
    /// Locks what the request needs. `place` tells the shard and the hash of a key.
    pub(super) fn lock(
        request: &'r Request,
        place: impl Fn(&Key) -> (usize, u64),
        lock: impl Fn(usize) -> MutexGuard<'m, Shard>,
    ) -> Self {
        let places: SmallVec<[(usize, u64); 4]> = request.checks().iter().map(|check| place(&check.key)).collect();
        let mut order: SmallVec<[usize; 4]> = places.iter().map(|(shard, _)| *shard).collect();
        // In one order for all threads, so that two layered requests never wait for each other.
        order.sort_unstable();
        order.dedup();
        let shards = order.iter().map(|shard| lock(*shard)).collect();
        let targets = places
            .iter()
            .map(|&(shard, hash)| Target {
                shard: order.iter().position(|other| *other == shard).unwrap_or_default(),
                hash,
                at: At::Fresh(0),
            })
            .collect();
        Self { request, shards, targets, fresh: Vec::new() }
    }

    pub(super) fn sweep(&mut self, now: Instant) {
        for shard in &mut self.shards {
            shard.sweep(now);
        }
    }

    /// Decides the request and keeps the table's books. At a given instant, `kept` is until when the engine's own clock is to
    /// keep what it writes.
    pub(super) fn decide(&mut self, now: Instant, kept: Option<Instant>) -> Result<Record, Error> {
        self.load();
        let request = self.request;
        if request.op() == Op::Take && !self.make_room(now, kept.is_none()) {
            return self.without_room(now);
        }
        let record = decide(request, now, self);
        if record.allowed {
            self.store(kept.unwrap_or_default());
        }
        Ok(record)
    }

    /// A denial needs no room. What would be admitted is refused, since its charge can't be kept.
    #[cold]
    fn without_room(&mut self, now: Instant) -> Result<Record, Error> {
        let terms = self.request.checks().iter().map(|check| (&check.limit, check.cost));
        let record = decide_terms(Op::Peek, terms, now, self);
        if record.allowed {
            return Err(Error::new(
                ENGINE,
                ErrorKind::Full,
                "no room: the table has as many live keys (`max_keys`) or log entries (`max_log_entries`) as it may",
            ));
        }
        Ok(record)
    }

    /// Finds each key. One that is not there gets a cell outside the table.
    fn load(&mut self) {
        let Self { request, shards, targets, fresh } = self;
        fresh.clear();
        for (check, target) in request.checks().iter().zip(targets) {
            let Some(shard) = shards.get(target.shard) else { continue };
            target.at = if let Some(place) = shard.find(target.hash, &check.key) {
                At::Known(place)
            } else {
                fresh.push(shard.fresh());
                At::Fresh(fresh.len() - 1)
            };
        }
    }

    /// Whether each shard has room for what the request may add to it, once enough has been dropped that was due.
    fn make_room(&mut self, now: Instant, own_clock: bool) -> bool {
        let most = self.request.checks().len();
        (0..self.shards.len()).all(|position| {
            if self.shards.get(position).is_none_or(|shard| shard.has_room(most, most)) {
                return true;
            }
            loop {
                let (keys, log_entries) = self.needs(position, now);
                let Some(shard) = self.shards.get_mut(position) else { return true };
                if shard.has_room(keys, log_entries) {
                    return true;
                }
                if !shard.collect_one(now.micros(), own_clock) {
                    return false;
                }
                // What made room may have been one of the request's own keys.
                self.load();
            }
        })
    }

    /// How many keys and log entries the request would add to a shard.
    fn needs(&self, position: usize, now: Instant) -> (usize, usize) {
        let Some(shard) = self.shards.get(position) else { return (0, 0) };
        let here = self.request.checks().iter().zip(&self.targets).filter(|(_, target)| target.shard == position);
        here.filter(|(check, _)| check.cost > 0).fold((0, 0), |(keys, log_entries), (check, target)| {
            let known = if let At::Known(place) = target.at { Some(place) } else { None };
            let entry = shard.adds_entry(known, &check.limit, now);
            (keys + usize::from(known.is_none()), log_entries + usize::from(entry))
        })
    }

    /// Brings the table up to what was decided.
    fn store(&mut self, kept: Instant) {
        let Self { request, shards, targets, fresh } = self;
        // A check that wrote nothing changes no book: its limit may be another than the one that the state was written under.
        let wrote = |check: &Check| match request.op() {
            Op::Peek => false,
            Op::Take | Op::Refund { .. } => check.cost > 0,
            Op::Reset => true,
        };
        let writes = || request.checks().iter().zip(targets.iter()).filter(|(check, _)| wrote(check));
        for (check, target) in writes() {
            let (Some(shard), At::Known(place)) = (shards.get_mut(target.shard), target.at) else { continue };
            if request.op() == Op::Reset {
                shard.remove(place);
            } else {
                shard.wrote(place, &check.limit, kept);
            }
        }
        // After the others, since an insertion moves keys.
        for (check, target) in writes() {
            let (Some(shard), At::Fresh(index)) = (shards.get_mut(target.shard), target.at) else { continue };
            let Some(cell) = fresh.get_mut(index).map(std::mem::take) else { continue };
            if cell.state.is_some() {
                shard.insert(target.hash, check.key.clone(), cell, &check.limit, kept);
            }
        }
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "there is a target for each check; its shard is a position in `shards`, and its cell one in `fresh`"
)]
impl Cells for Locked<'_, '_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        let target = &self.targets[index];
        match target.at {
            At::Known(place) => self.shards[target.shard].cell(place),
            At::Fresh(position) => &mut self.fresh[position],
        }
    }
}
