//! Who waits for which key, in the order of their coming.
//!
//! A key is in one transaction of this process at a time: those who come meanwhile wait, and then all of them are decided
//! together in the next. So a process never competes with itself, and a hot key costs one transaction for all that wait for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use limiter_core::Key;
use smallvec::SmallVec;

use crate::call::Call;

/// The most requests that are decided in one transaction: its decisions are made one after the other.
const MOST_REQUESTS: usize = 4_096;

/// One request of a call.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) call: Arc<Call>,
    pub(crate) index: usize,
}

/// Requests that are decided together, and the keys that they hold meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) keys: Vec<Key>,
    /// Each request, and where its checks' keys are in `keys`.
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) waiting: Waiting,
    pub(crate) places: SmallVec<[usize; 4]>,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    busy: HashSet<Key, RandomState>,
    /// Transactions that are in their first attempt.
    pub(crate) active: usize,
    /// Whether somebody is about to begin the next.
    pub(crate) starting: bool,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn push(&mut self, call: &Arc<Call>) {
        self.waiting.extend((0..call.len()).map(|index| Waiting { call: Arc::clone(call), index }));
    }

    /// The next requests that can be decided together, whose keys are then busy. None if all that wait wait for busy keys; or, if
    /// `only_full`, if it is less than a whole transaction.
    pub(crate) fn next(&mut self, most_keys: usize, only_full: bool) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut places: HashMap<Key, usize, RandomState> = HashMap::default();
        // Keys of requests that were passed over: who comes later must not overtake them.
        let mut blocked: HashSet<Key, RandomState> = HashSet::default();
        let mut full = false;
        let mut chosen = Vec::new();
        for (position, waiting) in self.waiting.iter().enumerate() {
            let Some(request) = waiting.call.request(waiting.index) else { continue };
            let checks = request.checks();
            let free = |key: &Key| !self.busy.contains(key) && !blocked.contains(key);
            let mut eligible = checks.iter().all(|check| free(&check.key));
            if eligible {
                let fresh = checks.iter().filter(|check| !places.contains_key(&check.key)).count();
                // A request of more keys than fit goes alone: the server may take them all the same.
                if places.len() + fresh > most_keys && !batch.members.is_empty() {
                    (eligible, full) = (false, true);
                }
            }
            if !eligible {
                blocked.extend(checks.iter().map(|check| check.key.clone()));
                if full {
                    break;
                }
                continue;
            }
            let places = checks
                .iter()
                .map(|check| {
                    *places.entry(check.key.clone()).or_insert_with(|| {
                        batch.keys.push(check.key.clone());
                        batch.keys.len() - 1
                    })
                })
                .collect();
            batch.members.push(Member { waiting: waiting.clone(), places });
            chosen.push(position);
            if batch.members.len() >= MOST_REQUESTS {
                full = true;
                break;
            }
        }
        full |= batch.keys.len() >= most_keys;
        if batch.members.is_empty() || (only_full && !full) {
            return None;
        }
        self.remove(&chosen);
        self.busy.extend(batch.keys.iter().cloned());
        Some(batch)
    }

    pub(crate) fn release(&mut self, keys: &[Key]) {
        for key in keys {
            self.busy.remove(key);
        }
    }

    /// Takes these positions out, which are in ascending order.
    fn remove(&mut self, chosen: &[usize]) {
        // Most often it is the front, and all of it.
        if chosen.last().is_some_and(|last| last + 1 == chosen.len()) {
            self.waiting.drain(..chosen.len());
            return;
        }
        let mut chosen = chosen.iter().peekable();
        let mut position = 0;
        self.waiting.retain(|_| {
            let take = chosen.next_if(|chosen| **chosen == position).is_some();
            position += 1;
            !take
        });
    }
}

#[cfg(test)]
mod tests {
    use limiter_core::{Batch as Asked, Check, Op, Request};
    use tokio::time::Instant;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("t", "queue", [name])
    }

    /// A call for each word: a request of the keys that are its letters.
    fn queue(words: &str) -> Queue {
        let mut queue = Queue::default();
        for word in words.split(' ') {
            let limit = "9/1h fixed-window".parse().unwrap();
            let checks = word.chars().map(|letter| Check::new(key(&letter.to_string()), limit, 1));
            let request = Request::new(Op::Take, checks).unwrap();
            queue.push(&Call::new(Arc::new(Asked { requests: vec![request], at: None }), Instant::now()));
        }
        queue
    }

    /// The words of a batch.
    fn words(batch: &Batch) -> String {
        let word = |member: &Member| -> String {
            let request = member.waiting.call.request(member.waiting.index).unwrap();
            let letters = request.checks().iter().map(|check| check.key.as_str().chars().last().unwrap()).collect();
            for (check, place) in request.checks().iter().zip(&member.places) {
                assert_eq!(check.key, batch.keys[*place]);
            }
            letters
        };
        batch.members.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_that_can_be_decided_together_is_in_the_order_of_coming() {
        let mut queue = queue("a b a ab c");
        let batch = queue.next(64, false).unwrap();
        assert_eq!((words(&batch).as_str(), batch.keys.len()), ("a b a ab c", 3));
        assert_eq!(queue.len(), 0);
        assert!(queue.next(64, false).is_none());
    }

    #[test]
    fn nobody_overtakes_who_waits_for_a_busy_key() {
        let mut queue = queue("a");
        let first = queue.next(64, false).unwrap();
        queue.push(&self::queue("ab").waiting[0].call);
        queue.push(&self::queue("b").waiting[0].call);
        queue.push(&self::queue("c").waiting[0].call);
        // The last `b` came after `ab`, which waits for `a`.
        assert_eq!(words(&queue.next(64, false).unwrap()), "c");
        assert!(queue.next(64, false).is_none());
        queue.release(&first.keys);
        assert_eq!(words(&queue.next(64, false).unwrap()), "ab b");
    }

    #[test]
    fn a_batch_has_so_many_keys_at_most_and_a_large_request_goes_alone() {
        let mut queue = queue("a b c a d abcd e");
        assert_eq!(words(&queue.next(3, false).unwrap()), "a b c a");
        assert_eq!(words(&queue.next(3, true).unwrap_or_default()), "", "d and e are not a whole batch");
        assert_eq!(words(&queue.next(3, false).unwrap()), "d e");
        queue.release(&["a", "b", "c", "d"].map(key));
        assert_eq!(words(&queue.next(3, true).unwrap()), "abcd");
    }
}
