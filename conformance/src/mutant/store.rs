//! The store that all mutants share: a table with expiries, a clock, and a network that can fail.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limiter_core::{Cell, Clock, Instant, Key, SystemClock};

use super::Fault;
use crate::subject::Stored;

/// With so many keys the forgetful engine forgets.
const FULL: usize = 1_000;
/// Where the cutting engine cuts what follows a key's scope, in bytes.
const CUT: usize = 24;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) fault: Option<Fault>,
    table: Mutex<Table>,
    /// By how many µs the clock is off.
    offset: AtomicI64,
    loses_reply: AtomicBool,
    away: AtomicBool,
    /// Calls so far, for faults that hit every so many.
    calls: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) slots: HashMap<String, Slot>,
    /// The highest version that was ever removed: a key that comes back goes on above it.
    pub(super) floor: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) cell: Cell,
    /// By the store's clock, in µs.
    pub(super) expires: Option<u64>,
}

impl Store {
    pub(super) fn new(fault: Option<Fault>) -> Self {
        Self {
            fault,
            table: Mutex::default(),
            offset: AtomicI64::new(0),
            loses_reply: AtomicBool::new(false),
            away: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        }
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Instant {
        let micros = SystemClock.now().micros().saturating_add_signed(self.offset.load(Ordering::SeqCst));
        let micros = if self.has(Fault::WholeSeconds) { micros - micros % 1_000_000 } else { micros };
        Instant::from_micros(micros).unwrap_or(Instant::MAX)
    }

    pub(super) fn count_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn step_clock(&self, micros: i64) {
        self.offset.store(micros, Ordering::SeqCst);
    }

    pub(super) fn lose_reply(&self) {
        self.loses_reply.store(true, Ordering::SeqCst);
    }

    pub(super) fn loses_this_reply(&self) -> bool {
        self.loses_reply.swap(false, Ordering::SeqCst)
    }

    pub(super) fn set_reachable(&self, up: bool) {
        self.away.store(!up, Ordering::SeqCst);
    }

    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::SeqCst)
    }

    /// What the store calls a key.
    pub(super) fn name(&self, key: &Key) -> String {
        let text = key.as_str();
        match self.fault {
            Some(Fault::KeyPartsJoined) => text.replace(':', ""),
            Some(Fault::KeysFolded) => text.to_lowercase(),
            Some(Fault::KeysCut) => {
                let start = text.find("}:").unwrap_or_default();
                text.get(..start + CUT).unwrap_or(text).to_owned()
            }
            _ => text.to_owned(),
        }
    }

    /// The stored keys that contain a text.
    pub(super) fn list(&self, text: &str) -> Vec<Stored> {
        let now = self.now().micros();
        let table = self.lock();
        let slots = table.slots.iter().filter(|(key, slot)| key.contains(text) && !slot.is_gone(now));
        let lifetime = |slot: &Slot| slot.expires.map(|expires| Duration::from_micros(expires.saturating_sub(now)));
        slots.map(|(key, slot)| Stored { key: key.clone(), lifetime: lifetime(slot) }).collect()
    }

    pub(super) fn forget_if_full(&self, table: &mut Table) {
        if self.has(Fault::ForgetsWhenFull) && table.slots.len() > FULL {
            let names: Vec<String> = table.slots.keys().cloned().collect();
            for name in &names {
                table.remove(name);
            }
        }
    }
}

impl Slot {
    pub(super) fn is_gone(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Table {
    /// A key's cell; that of a fresh key if it is not there, or has expired.
    pub(super) fn load(&mut self, name: &str, now: Instant) -> Cell {
        if self.slots.get(name).is_some_and(|slot| slot.is_gone(now.micros())) {
            self.remove(name);
        }
        let fresh = Cell { state: None, version: self.floor };
        self.slots.get(name).map_or(fresh, |slot| slot.cell.clone())
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(slot) = self.slots.remove(name) {
            self.floor = self.floor.max(slot.cell.version);
        }
    }
}
