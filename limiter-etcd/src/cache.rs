//! What this process knows of the stored keys: the state and the revision at which it was written last.
//!
//! It may be out of date: a transaction compares the revisions and learns the present states if they are not the same. So
//! nothing is lost with an entry but a round trip.
//!
//! Two generations bound it: a key that is used stays in the young one, and when that is full the old one is dropped and the
//! young one becomes old.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use limiter_core::{Key, State};

use crate::known::Known;

#[derive(Debug)]
pub(crate) struct Cache {
    young: HashMap<Key, Known, RandomState>,
    old: HashMap<Key, Known, RandomState>,
    /// The room that the young take, in entries: one for each key, and for each few log entries.
    used: usize,
    room: usize,
}

/// So many entries of a log take the room of a key.
const LOG_ENTRIES: usize = 16;

impl Cache {
    /// A cache of at most so many keys.
    pub(crate) fn new(keys: usize) -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), used: 0, room: (keys / 2).max(1) }
    }

    /// What is known of the key, taken out. A key that is not known is taken for one that is not stored.
    pub(crate) fn take(&mut self, key: &Key) -> Known {
        if let Some(known) = self.young.remove(key) {
            self.used = self.used.saturating_sub(size(&known));
            return known;
        }
        self.old.remove(key).unwrap_or_default()
    }

    /// Keeps what is known now. A key that is not stored is remembered too, for its version.
    pub(crate) fn keep(&mut self, key: Key, known: Known) {
        self.used += size(&known);
        self.old.remove(&key);
        if let Some(before) = self.young.insert(key, known) {
            self.used = self.used.saturating_sub(size(&before));
        }
        if self.used > self.room {
            self.old = std::mem::take(&mut self.young);
            self.used = 0;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

fn size(known: &Known) -> usize {
    match &known.cell.state {
        Some(State::SlidingLog(log)) => 1 + log.len() / LOG_ENTRIES,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use limiter_core::{Cell, SlidingLog};

    use super::*;

    fn key(number: usize) -> Key {
        Key::new("t", "cache", [number.to_string()])
    }

    fn known(revision: i64) -> Known {
        Known { revision, ..Known::default() }
    }

    #[test]
    fn what_is_used_stays_and_the_whole_is_bounded() {
        let mut cache = Cache::new(100);
        for number in 1..=10_000 {
            cache.keep(key(number), known(7));
            let hot = cache.take(&key(1));
            assert_eq!(hot.revision, 7, "after {number} keys");
            cache.keep(key(1), hot);
            assert!(cache.len() <= 101, "{} keys", cache.len());
        }
        assert_eq!(cache.take(&key(2)), Known::default(), "not used for long");
    }

    #[test]
    fn long_logs_take_the_room_of_many_keys() {
        let mut cache = Cache::new(100);
        let log = State::SlidingLog(SlidingLog::from_entries((1..=1_600).map(|at| (at, 1))));
        for number in 0..100 {
            cache.keep(
                key(number),
                Known { cell: Cell { state: Some(log.clone()), version: 1 }, revision: 1, ..Known::default() },
            );
        }
        assert!(cache.len() <= 2, "{} logs", cache.len());
    }
}
