//! What a fault proxy has seen.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What went through a [proxy](super::Proxy), in all connections since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes that clients sent.
    pub from_clients: u64,
    /// Bytes of them that were passed on to the store.
    pub to_store: u64,
    /// Bytes that the store sent.
    pub from_store: u64,
    /// Bytes of them that were passed on to clients.
    pub to_clients: u64,
    /// How often a client spoke after it was spoken to, or first: one per question and answer
    /// where they take turns. Questions sent before the answer to an earlier one, on the same
    /// connection, are of the same round trip. A protocol that also talks when nothing was asked
    /// (HTTP/2 with its window updates) shows more: see `requests`.
    pub round_trips: u64,
    /// Requests that clients began over HTTP/2, as etcd's clients do; 0 for other protocols.
    pub requests: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open at present.
    pub live: u64,
}

impl Traffic {
    /// What was added since `earlier`; `live` stays what it is now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            from_clients: self.from_clients.saturating_sub(earlier.from_clients),
            to_store: self.to_store.saturating_sub(earlier.to_store),
            from_store: self.from_store.saturating_sub(earlier.from_store),
            to_clients: self.to_clients.saturating_sub(earlier.to_clients),
            round_trips: self.round_trips.saturating_sub(earlier.round_trips),
            requests: self.requests.saturating_sub(earlier.requests),
            accepted: self.accepted.saturating_sub(earlier.accepted),
            live: self.live,
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From client to store.
    Up,
    /// From store to client.
    Down,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    up: [AtomicU64; 2],
    down: [AtomicU64; 2],
    round_trips: AtomicU64,
    requests: AtomicU64,
    accepted: AtomicU64,
    live: Mutex<BTreeSet<u64>>,
}

impl Counters {
    /// Counts a new connection.
    pub(super) fn open(counters: &Arc<Self>) -> Open {
        let id = counters.accepted.fetch_add(1, Relaxed);
        counters.ids().insert(id);
        Open { id, asked: AtomicBool::new(false), counters: Arc::clone(counters) }
    }

    pub(super) fn live(&self) -> Vec<u64> {
        self.ids().iter().copied().collect()
    }

    pub(super) fn any_live(&self, connections: &[u64]) -> bool {
        let live = self.ids();
        connections.iter().any(|id| live.contains(id))
    }

    pub(super) fn traffic(&self) -> Traffic {
        let live = self.ids().len();
        let [from_clients, to_store] = self.up.each_ref().map(|count| count.load(Relaxed));
        let [from_store, to_clients] = self.down.each_ref().map(|count| count.load(Relaxed));
        Traffic {
            from_clients,
            to_store,
            from_store,
            to_clients,
            round_trips: self.round_trips.load(Relaxed),
            requests: self.requests.load(Relaxed),
            accepted: self.accepted.load(Relaxed),
            live: u64::try_from(live).unwrap_or(u64::MAX),
        }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open connection; it counts as live until this is dropped.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: u64,
    /// Whether the client has spoken since the store did.
    asked: AtomicBool,
    counters: Arc<Counters>,
}

impl Open {
    /// Counts a piece that one side sent.
    pub(super) fn saw(&self, way: Way, bytes: usize) {
        let [seen, _] = self.of(way);
        add(seen, bytes);
        if !self.asked.swap(way == Way::Up, Relaxed) && way == Way::Up {
            self.counters.round_trips.fetch_add(1, Relaxed);
        }
    }

    /// Counts requests that began in a piece of HTTP/2.
    pub(super) fn began(&self, requests: u64) {
        self.counters.requests.fetch_add(requests, Relaxed);
    }

    /// Counts a piece that is about to be passed on: before it goes, so that nobody who has
    /// received it finds it missing in the count.
    pub(super) fn passes(&self, way: Way, bytes: usize) {
        let [_, passed] = self.of(way);
        add(passed, bytes);
    }

    fn of(&self, way: Way) -> &[AtomicU64; 2] {
        match way {
            Way::Up => &self.counters.up,
            Way::Down => &self.counters.down,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.counters.ids().remove(&self.id);
    }
}

fn add(count: &AtomicU64, bytes: usize) {
    count.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
}
