//! Requests that are decided together: on what is known of their keys, as one transaction.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetResponse, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};
use limiter_core::{Cell, Cells, Clock, Instant, Key, Op, Outcome, Record, Request, Unsound, decide};
use smallvec::SmallVec;
use tokio::time::Instant as Timer;

use crate::known::Known;
use crate::queue::{Batch, Member};
use crate::value::{self, Mark};

/// How long a key that was written at a given instant is kept: its run has nothing to do with the clock that runs leases.
const GIVEN: Duration = Duration::from_secs(3_600);

/// A group of requests and all their keys.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) slots: Vec<Slot>,
    pub(crate) members: Vec<Member>,
    /// How often it was decided and sent.
    pub(crate) attempts: u32,
}

/// One key.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    /// What is stored, as far as this process knows.
    pub(crate) base: Known,
    /// What it will be once the group is decided.
    cell: Cell,
    wrote: bool,
    /// How long what was written counts.
    lifetime: Duration,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Put,
    Delete,
}

/// A transaction as it is sent, and sent again while it is not known whether it was applied: it is the same each time.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) txn: Txn,
    pub(crate) mark: Mark,
    pub(crate) writes: bool,
}

/// A key as the store shows it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) known: Known,
    pub(crate) mark: Option<Mark>,
}

impl Group {
    /// The batch, on what is known of its keys.
    pub(crate) fn new(batch: Batch, mut known: impl FnMut(&Key) -> Known) -> Self {
        let slots = batch.keys.into_iter().map(|key| {
            let base = known(&key);
            Slot { key, base, cell: Cell::default(), wrote: false, lifetime: Duration::ZERO }
        });
        Self { slots: slots.collect(), members: batch.members, attempts: 0 }
    }

    /// When the last of its callers stops waiting.
    pub(crate) fn deadline(&self) -> Option<Timer> {
        self.members.iter().map(|member| member.waiting.call.deadline).max()
    }

    /// Decides all requests, in the order of their coming, each at its given instant or else at the clock's.
    pub(crate) fn decide(&mut self, clock: &dyn Clock) -> Vec<Record> {
        for slot in &mut self.slots {
            slot.cell.clone_from(&slot.base.cell);
            (slot.wrote, slot.lifetime) = (false, Duration::ZERO);
        }
        // One reading: what is decided in one step is decided at one instant.
        let clock = clock.now();
        let slots = &mut self.slots;
        let records = self.members.iter().filter_map(|member| {
            let call = &member.waiting.call;
            let request = call.request(member.waiting.index)?;
            let now = call.at().unwrap_or(clock);
            let record = decide(request, now, &mut View { slots, places: &member.places });
            note(slots, member, request, &record, call.at().is_some());
            Some(record)
        });
        records.collect()
    }

    /// What the store has to do, key by key.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&Slot, Write)> {
        self.slots.iter().filter_map(|slot| Some((slot, slot.write()?)))
    }

    /// The transaction: if no key was written since, what was decided; else show them all. `leases` has one for each put.
    pub(crate) fn prepare(&self, prefix: &str, mark: Mark, leases: &[i64]) -> Prepared {
        let name = |slot: &Slot| stored(prefix, &slot.key);
        let unchanged: Vec<Compare> = self
            .slots
            .iter()
            .map(|slot| Compare::mod_revision(name(slot), CompareOp::Equal, slot.base.revision))
            .collect();
        let mut leases = leases.iter();
        let writes: Vec<TxnOp> = self
            .writes()
            .filter_map(|(slot, write)| {
                Some(match write {
                    Write::Put => {
                        let value = value::encode(mark, slot.cell.version, slot.cell.state.as_ref()?);
                        let lease = leases.next().copied().unwrap_or_default();
                        TxnOp::put(name(slot), value, Some(PutOptions::new().with_lease(lease)))
                    }
                    Write::Delete => TxnOp::delete(name(slot), None),
                })
            })
            .collect();
        let show: Vec<TxnOp> = self.slots.iter().map(|slot| TxnOp::get(name(slot), None)).collect();
        let has_writes = !writes.is_empty();
        let txn = Txn::new().when(unchanged).and_then(writes).or_else(show);
        Prepared { txn, mark, writes: has_writes }
    }

    /// It was applied: what was decided is what is stored, since `revision` where it was written.
    pub(crate) fn applied(&mut self, revision: i64) {
        for slot in &mut self.slots {
            let Some(write) = slot.write() else { continue };
            let revision = if write == Write::Put { revision } else { 0 };
            slot.base = Known { cell: std::mem::take(&mut slot.cell), revision, others: slot.base.others };
        }
    }

    /// The store showed its keys, to the engine of number `own`.
    pub(crate) fn seen(&mut self, seen: Vec<Seen>, own: u64, now: Timer, round_trip: Duration) {
        for (slot, seen) in self.slots.iter_mut().zip(seen) {
            if seen.known.revision != slot.base.revision {
                // What is gone leaves its version: the next state's goes on from there.
                let floor = if seen.known.revision == 0 { slot.base.cell.version } else { 0 };
                slot.base = Known { others: slot.base.others, ..seen.known };
                slot.base.cell.version = slot.base.cell.version.max(floor);
                let writer = seen.mark.map_or(u64::MAX, |mark| mark.engine);
                if writer != own {
                    slot.base.others.lost(writer, now, round_trip);
                }
            }
        }
    }

    /// It is done. What was only looked at is in nobody's way.
    pub(crate) fn done(&mut self, now: Timer) {
        for slot in self.slots.iter_mut().filter(|slot| slot.wrote) {
            slot.base.others.won(now);
        }
    }

    /// How crowded the most crowded of its keys is.
    pub(crate) fn crowd(&self, now: Timer) -> u32 {
        self.slots.iter().map(|slot| slot.base.others.crowd(now)).max().unwrap_or_default()
    }

    /// Whether others should have a chance first, at one of its keys. `pause` is what it takes to leave them one.
    pub(crate) fn gives_way(&mut self, now: Timer, pause: Duration) -> bool {
        // Each begins its streak anew, so all are asked.
        self.slots.iter_mut().filter_map(|slot| slot.base.others.gives_way(now, pause).then_some(())).count() > 0
    }

    /// Groups that share no key, if there are several.
    pub(crate) fn apart(self) -> Vec<Self> {
        let mut part: Vec<usize> = (0..self.slots.len()).collect();
        // A request ties its keys together: all get the number of the lowest part.
        for member in &self.members {
            let tied: SmallVec<[usize; 4]> =
                member.places.iter().filter_map(|place| part.get(*place).copied()).collect();
            let Some(lowest) = tied.iter().copied().min() else { continue };
            for number in &mut part {
                if tied.contains(number) {
                    *number = lowest;
                }
            }
        }
        self.split(|_, place| part.get(place).copied().unwrap_or_default())
    }

    /// Two groups of half as many requests each, of which the first is to be decided first. They may share keys.
    pub(crate) fn halves(self) -> Vec<Self> {
        let half = self.members.len() / 2;
        self.split(|index, _| usize::from(index >= half))
    }

    /// Groups by a number, which is told from a member's index and the place of its first key.
    fn split(self, number: impl Fn(usize, usize) -> usize) -> Vec<Self> {
        let mut groups: std::collections::BTreeMap<usize, Self> = std::collections::BTreeMap::new();
        for (index, member) in self.members.into_iter().enumerate() {
            let first = member.places.first().copied().unwrap_or_default();
            let group = groups.entry(number(index, first)).or_insert_with(|| Self {
                slots: Vec::new(),
                members: Vec::new(),
                attempts: self.attempts,
            });
            let places = member.places.iter().filter_map(|place| {
                let slot = self.slots.get(*place)?;
                if let Some(known) = group.slots.iter().position(|known| known.key == slot.key) {
                    return Some(known);
                }
                group.slots.push(slot.clone());
                Some(group.slots.len() - 1)
            });
            let places = places.collect();
            group.members.push(Member { waiting: member.waiting, places });
        }
        groups.into_values().collect()
    }

    /// Tells all callers the same.
    pub(crate) fn settle_all(&self, outcome: impl Fn() -> Outcome) {
        for member in &self.members {
            member.waiting.call.settle(member.waiting.index, outcome());
        }
    }

    /// Whether some of it was at a given instant.
    pub(crate) fn given(&self) -> bool {
        self.members.iter().any(|member| member.waiting.call.at().is_some())
    }
}

impl Slot {
    /// What becomes of it. A key that is not stored and has no state stays so.
    pub(crate) fn write(&self) -> Option<Write> {
        match (&self.cell.state, self.base.revision) {
            _ if !self.wrote => None,
            (Some(_), _) => Some(Write::Put),
            (None, 0) => None,
            (None, _) => Some(Write::Delete),
        }
    }

    pub(crate) const fn lifetime(&self) -> Duration {
        self.lifetime
    }
}

/// Notes what a decided request wrote, and for how long it counts.
fn note(slots: &mut [Slot], member: &Member, request: &Request, record: &Record, given: bool) {
    let writes = match request.op() {
        Op::Take => record.allowed,
        Op::Refund { .. } | Op::Reset => true,
        _ => false,
    };
    if !writes {
        return;
    }
    for (check, place) in request.checks().iter().zip(&member.places) {
        let Some(slot) = slots.get_mut(*place) else { continue };
        if request.op() == Op::Reset {
            slot.wrote = true;
        } else if check.cost > 0
            && let Some(state) = &slot.cell.state
        {
            slot.wrote = true;
            let reset_at: Instant = state.reset_at(&check.limit);
            let counts = Duration::from_micros(reset_at.micros().saturating_sub(record.at.micros()));
            slot.lifetime = slot.lifetime.max(if given { counts.max(GIVEN) } else { counts });
        }
    }
}

/// A request's cells among those of its group.
struct View<'g> {
    slots: &'g mut [Slot],
    places: &'g [usize],
}

#[expect(clippy::indexing_slicing, reason = "a member has a place for each check, and a group a slot for each place")]
impl Cells for View<'_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        &mut self.slots[self.places[index]].cell
    }
}

/// The name of a key in the store.
pub(crate) fn stored(prefix: &str, key: &Key) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len() + key.as_str().len());
    name.extend_from_slice(prefix.as_bytes());
    name.extend_from_slice(key.as_str().as_bytes());
    name
}

/// A key of the store's answer.
pub(crate) fn read(get: &GetResponse) -> Result<Seen, Unsound> {
    let Some(stored) = get.kvs().first() else { return Ok(Seen { known: Known::default(), mark: None }) };
    let value = value::decode(stored.value())?;
    Ok(Seen {
        known: Known { cell: value.cell, revision: stored.mod_revision(), ..Known::default() },
        mark: Some(value.mark),
    })
}

/// All keys, where the transaction showed them.
pub(crate) fn shown(answer: &TxnResponse) -> Result<Vec<Seen>, Unsound> {
    let gets = answer.op_responses().into_iter().map(|response| match response {
        TxnOpResponse::Get(get) => read(&get),
        _ => Err(Unsound::Form),
    });
    gets.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use limiter_core::{Batch as Asked, Check, ManualClock};

    use super::*;
    use crate::call::Call;
    use crate::queue::Queue;

    fn group(requests: &[(Op, &str)]) -> Group {
        let limit = "9/1h fixed-window".parse().unwrap();
        let requests = requests.iter().map(|(op, letters)| {
            let checks = letters.chars().map(|letter| Check::new(Key::new("t", "g", [letter.to_string()]), limit, 1));
            Request::new(*op, checks).unwrap()
        });
        let mut queue = Queue::default();
        let asked = Asked { requests: requests.collect(), at: None };
        queue.push(&Call::new(Arc::new(asked), Timer::now()));
        Group::new(queue.next(64, false).unwrap(), |_| Known::default())
    }

    fn decided(group: &mut Group) -> Vec<Option<Write>> {
        group.decide(&ManualClock::at(Instant::from_micros(7_200_000_000).unwrap()));
        group.slots.iter().map(Slot::write).collect()
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut group = group(&[
            (Op::Take, "a"),
            (Op::Peek, "b"),
            (Op::Refund { taken: Instant::EPOCH }, "c"),
            (Op::Reset, "d"),
            (Op::Take, "e"),
            (Op::Reset, "e"),
        ]);
        assert_eq!(
            decided(&mut group),
            [Some(Write::Put), None, None, None, None],
            "a key that is not stored stays so"
        );
        for slot in &mut group.slots {
            slot.base.revision = 5;
        }
        assert_eq!(decided(&mut group)[3..], [Some(Write::Delete), Some(Write::Delete)]);
        group.applied(9);
        let revisions: Vec<i64> = group.slots.iter().map(|slot| slot.base.revision).collect();
        assert_eq!(revisions, [9, 5, 5, 0, 0]);
    }

    #[test]
    fn a_group_comes_apart_where_no_request_ties_it_together() {
        let group = group(&[(Op::Take, "ab"), (Op::Take, "c"), (Op::Take, "bd"), (Op::Take, "c"), (Op::Take, "e")]);
        let parts: Vec<(usize, usize)> =
            group.apart().iter().map(|part| (part.slots.len(), part.members.len())).collect();
        assert_eq!(parts, [(3, 2), (1, 2), (1, 1)]);
    }

    #[test]
    fn halves_keep_the_order() {
        let group = group(&[(Op::Take, "a"), (Op::Take, "b"), (Op::Take, "a"), (Op::Take, "c"), (Op::Take, "d")]);
        let indices: Vec<Vec<usize>> = group
            .halves()
            .iter()
            .map(|half| half.members.iter().map(|member| member.waiting.index).collect())
            .collect();
        assert_eq!(indices, [vec![0, 1], vec![2, 3, 4]]);
    }
}
