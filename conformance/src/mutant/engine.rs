//! The simple engine: load, decide and write under one lock, unless its fault says otherwise.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use limiter_core::{
    Atomicity, Backend, Batch, Capabilities, Cell, Cells, Check, Clock, ClockSource, Error, ErrorKind, Instant, Layer,
    Op, Outcome, Record, Request, Scope, View, decide,
};

use super::Fault;
use super::plant;
use super::store::{Slot, Store, Table};

/// How long a key that was written at a given instant is kept, in µs.
const HOUR: u64 = 3_600_000_000;

/// A client of the store.
#[derive(Debug)]
pub(super) struct Engine {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
}

/// The cells of one request, and what the store calls them.
pub(super) struct Loaded {
    pub(super) names: Vec<String>,
    pub(super) cells: Vec<Cell>,
}

#[expect(clippy::indexing_slicing, reason = "one cell was loaded for each check")]
impl Cells for Loaded {
    fn cell(&mut self, index: usize) -> &mut Cell {
        &mut self.cells[index]
    }
}

impl Engine {
    pub(super) fn new(store: Arc<Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    fn has(&self, fault: Fault) -> bool {
        self.store.has(fault)
    }

    fn now(&self, at: Option<Instant>) -> Instant {
        let own = || if self.has(Fault::CallersClock) { self.clock.now() } else { self.store.now() };
        at.unwrap_or_else(own)
    }

    async fn decide(&self, request: &Request, at: Option<Instant>) -> Record {
        match self.store.fault {
            Some(Fault::CheckThenAct) => {
                let (now, mut loaded) = self.load(&mut self.store.lock(), request, self.now(at), at);
                pause().await;
                let record = decide(request, now, &mut loaded);
                self.save(&mut self.store.lock(), request, &record, &loaded, at);
                record
            }
            Some(Fault::ClockBeforeLock) => {
                let now = self.now(at);
                if at.is_none() && self.store.count_call().is_multiple_of(16) {
                    // Time to wait for a lock that others hold.
                    tokio::time::sleep(Duration::from_millis(6)).await;
                }
                self.decide_locked(&mut self.store.lock(), request, now, at)
            }
            Some(Fault::LayersOneByOne) if request.op() == Op::Take => self.one_by_one(request, at),
            Some(Fault::HalfOnCancel) if request.op() == Op::Take => self.one_write_at_a_time(request, at).await,
            Some(Fault::ExpiryApart) => {
                let record = self.decide_locked(&mut self.store.lock(), request, self.now(at), at);
                pause().await;
                self.expire(&mut self.store.lock(), request, at);
                record
            }
            _ => {
                let mut table = self.store.lock();
                let now = self.now(at);
                self.decide_locked(&mut table, request, now, at)
            }
        }
    }

    fn decide_locked(&self, table: &mut Table, request: &Request, now: Instant, at: Option<Instant>) -> Record {
        self.store.forget_if_full(table);
        let (now, mut loaded) = self.load(table, request, now, at);
        let asked = plant::request(self.store.fault, request, now);
        let asked = asked.as_ref().unwrap_or(request);
        plant::before(self.store.fault, asked, now, &mut loaded.cells);
        let mut before = loaded.cells.clone();
        let mut record = decide(asked, now, &mut loaded);
        if let Some(other) = plant::verdict(self.store.fault, asked, now, &before, &mut loaded.cells) {
            record = other;
        }
        plant::after(self.store.fault, asked, &record, &mut before, &mut loaded.cells);
        if self.has(Fault::LostWrites) && self.store.count_call() % 64 == 63 {
            return record;
        }
        self.save(table, asked, &record, &loaded, at);
        record
    }

    fn load(&self, table: &mut Table, request: &Request, now: Instant, at: Option<Instant>) -> (Instant, Loaded) {
        // One instant for the decision and for what has expired: with two, a key could be gone that still counts.
        let clock = if at.is_some() || self.has(Fault::CallersClock) { self.store.now() } else { now };
        let names: Vec<String> = request.checks().iter().map(|check| self.store.name(&check.key)).collect();
        let cells = names.iter().map(|name| table.load(name, clock)).collect();
        (now, Loaded { names, cells })
    }

    fn save(&self, table: &mut Table, request: &Request, record: &Record, loaded: &Loaded, at: Option<Instant>) {
        if request.op() == Op::Reset && self.has(Fault::ResetByPrefix) {
            let prefixed = |name: &String| loaded.names.iter().any(|prefix| name.starts_with(prefix.as_str()));
            let names: Vec<String> = table.slots.keys().filter(|name| prefixed(name)).cloned().collect();
            for name in &names {
                table.remove(name);
            }
        }
        for ((check, name), cell) in request.checks().iter().zip(&loaded.names).zip(&loaded.cells) {
            let expires = self.expires(check, cell, record.at, at);
            match &cell.state {
                None if request.op() == Op::Reset => table.remove(name),
                None if self.has(Fault::AskingStores) => {
                    table.slots.insert(name.clone(), Slot { cell: cell.clone(), expires });
                }
                Some(_) if self.writes(request, record, table.slots.get(name), cell) => {
                    table.slots.insert(name.clone(), Slot { cell: cell.clone(), expires });
                }
                _ => {}
            }
        }
    }

    /// Whether a cell is to be written: if it has changed. Else its expiry stays, too.
    fn writes(&self, request: &Request, record: &Record, stored: Option<&Slot>, cell: &Cell) -> bool {
        let renews = self.has(Fault::ExpiryRenewed) && request.op() == Op::Take && !record.allowed;
        renews || stored.is_none_or(|slot| slot.cell != *cell)
    }

    /// When the store forgets a cell.
    fn expires(&self, check: &Check, cell: &Cell, now: Instant, at: Option<Instant>) -> Option<u64> {
        if self.has(Fault::NeverExpires) || self.has(Fault::ExpiryApart) {
            return None;
        }
        let reset = cell.state.as_ref().map_or(now, |state| state.reset_at(&check.limit)).micros();
        if at.is_some() && !self.has(Fault::GivenCollected) {
            return Some(self.store.now().micros() + HOUR);
        }
        let kept = reset.saturating_sub(now.micros());
        Some(match self.store.fault {
            Some(Fault::ExpiryTooShort) => now.micros() + kept / 2,
            Some(Fault::ExpiryRenewed) => {
                now.micros() + u64::try_from(check.limit.period().as_micros()).unwrap_or(u64::MAX)
            }
            // To whole milliseconds and never none, as stores have them.
            _ => reset.max(now.micros() + 1).next_multiple_of(1_000),
        })
    }

    /// The second step of an engine that needs two.
    fn expire(&self, table: &mut Table, request: &Request, at: Option<Instant>) {
        let now = self.now(None).micros();
        for check in request.checks() {
            if let Some(slot) = table.slots.get_mut(&self.store.name(&check.key)) {
                let reset = slot.cell.state.as_ref().map_or(now, |state| state.reset_at(&check.limit).micros());
                slot.expires = Some(if at.is_some() { now + HOUR } else { reset.next_multiple_of(1_000) });
            }
        }
    }

    /// Charges each layer as soon as it passes.
    fn one_by_one(&self, request: &Request, at: Option<Instant>) -> Record {
        let mut table = self.store.lock();
        let now = self.now(at);
        let (mut allowed, mut layers) = (true, Vec::new());
        for check in request.checks() {
            let op = if allowed { Op::Take } else { Op::Peek };
            let Ok(one) = Request::new(op, [check.clone()]) else { continue };
            let record = self.decide_locked(&mut table, &one, now, at);
            allowed &= record.allowed;
            layers.extend(record.layers().iter().copied());
        }
        Record::new(allowed, now, layers)
    }

    /// Decides all layers at once, and writes them one after the other, with others in between.
    async fn one_write_at_a_time(&self, request: &Request, at: Option<Instant>) -> Record {
        let record = {
            let mut table = self.store.lock();
            let (now, mut loaded) = self.load(&mut table, request, self.now(at), at);
            let record = decide(request, now, &mut loaded);
            if request.checks().len() == 1 {
                self.save(&mut table, request, &record, &loaded, at);
                return record;
            }
            record
        };
        if record.allowed {
            for check in request.checks() {
                let Ok(one) = Request::new(Op::Take, [check.clone()]) else { continue };
                let _ = self.decide_locked(&mut self.store.lock(), &one, record.at, at);
                pause().await;
            }
        }
        record
    }

    fn failed(kind: ErrorKind, text: &str) -> Error {
        Error::new("simple", kind, text)
    }

    /// What comes of a request while the store is away.
    fn away(&self, request: &Request) -> Outcome {
        if self.has(Fault::FallbackWithoutCap) {
            let fresh = |check: &Check| Layer { view: View::fresh(check.limit.algorithm()), version: 0 };
            let layers: Vec<Layer> = request.checks().iter().map(fresh).collect();
            return Outcome::decided(Record::new(true, self.clock.now(), layers));
        }
        Outcome::NotSent(Self::failed(ErrorKind::NotSent, "the store is away"))
    }
}

/// The gap in which others get their turn.
async fn pause() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl Backend for Engine {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        if self.store.is_away() {
            return batch.requests.iter().map(|request| self.away(request)).collect();
        }
        if matches!(self.store.fault, Some(Fault::BatchAsSum | Fault::BatchStale)) {
            let mut table = self.store.lock();
            let now = self.now(batch.at);
            return plant::batch(self.store.fault, &batch.requests, |request, keep| {
                let before = (!keep).then(|| (table.slots.clone(), table.floor));
                let record = self.decide_locked(&mut table, request, now, batch.at);
                if let Some((slots, floor)) = before {
                    (table.slots, table.floor) = (slots, floor);
                }
                record
            });
        }
        let mut outcomes = Vec::with_capacity(batch.requests.len());
        for request in &batch.requests {
            let record = self.decide(request, batch.at).await;
            outcomes.push(if self.has(Fault::DenialsUnknown) && !record.allowed {
                Outcome::Unknown(Self::failed(ErrorKind::Unknown { in_flight: false }, "not allowed"))
            } else {
                Outcome::decided(record)
            });
        }
        if !self.store.loses_this_reply() {
            return outcomes;
        }
        if self.has(Fault::RetryOnTimeout) {
            let mut again = Vec::with_capacity(batch.requests.len());
            for request in &batch.requests {
                again.push(Outcome::decided(self.decide(request, batch.at).await));
            }
            return again;
        }
        let kind = ErrorKind::Unknown { in_flight: false };
        batch.requests.iter().map(|_| Outcome::Unknown(Self::failed(kind, "no reply came"))).collect()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("simple", ClockSource::Store, Scope::Cluster, Atomicity::AllKeys)
    }
}
