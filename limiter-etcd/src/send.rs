//! Sends a transaction, and finds out what became of it if no answer comes.
//!
//! What was sent may be applied late, after its sender has given up: reading the keys and finding them unchanged proves nothing.
//! So the very same transaction is sent again. It puts only if the keys are still at the revisions that it was decided on, which
//! never come back, so it is applied at most once however often it is sent; and an answer of any of them settles them all:
//!
//! - it was applied now: then no other ever was or will be;
//! - a key is still at its revision, but another has moved on: none was or will be;
//! - a key was written with this transaction's mark: an earlier one was applied;
//! - a key was written by others, and again: the store's history tells who wrote first after the revision, us or them.
//!
//! A database that runs full is a case of its own: whoever finds that out is applied, and answered like those that are refused. Its
//! keys are read then.
//!
//! Only a key that did not exist before, or was reset meanwhile, or whose history was compacted leaves the question open, if others
//! have written it since.

use limiter_core::{Error, Unsound};
use tokio::time::{Instant, sleep_until};

use crate::commit::count;
use crate::error::Failure;
use crate::group::{Group, Prepared, Seen, Slot, Write, read, shown, stored};
use crate::node::Node;
use crate::value::Mark;

/// How many writes of others are followed back.
const BACK: usize = 32;
/// The longest wait before it is sent again.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// What became of a transaction.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was applied, at this revision of the store.
    Applied { revision: i64 },
    /// It had been applied, and the keys are now as shown.
    AppliedBefore(Vec<Seen>),
    /// It was not, and never will be: the keys are as shown.
    Changed(Vec<Seen>),
    /// It was not: a key holds something else.
    Corrupt(Unsound),
    /// It is not known. `in_flight` if it may yet be applied.
    Doubtful { in_flight: bool },
}

impl Node {
    /// Until when one answer is waited for.
    pub(crate) fn patience(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + self.config.call_timeout / 2)
    }

    /// Sends it until it is known what became of it. A [`Failure`] means that it was not applied, for certain.
    pub(crate) async fn send(&self, prepared: &Prepared, group: &Group, deadline: Instant) -> Result<Answer, Failure> {
        let mut doubtful = false;
        loop {
            count(&self.counters.sent);
            let sent = Instant::now();
            match self.link.txn(prepared.txn.clone(), self.patience(deadline)).await {
                Ok(answer) => {
                    self.took(sent.elapsed());
                    if doubtful {
                        count(&self.counters.resolved);
                    }
                    if answer.succeeded() {
                        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
                        return Ok(Answer::Applied { revision });
                    }
                    return Ok(match shown(&answer) {
                        Ok(seen) if doubtful => self.trace(prepared, group, seen, deadline).await,
                        Ok(seen) => Answer::Changed(seen),
                        Err(_) if doubtful => Answer::Doubtful { in_flight: false },
                        Err(unsound) => Answer::Corrupt(unsound),
                    });
                }
                Err(Failure::Unknown(_)) if prepared.writes => {
                    if !doubtful {
                        count(&self.counters.doubtful);
                    }
                    doubtful = true;
                }
                Err(Failure::Full(error)) if prepared.writes && !doubtful => {
                    return self.full(prepared, group, error, deadline).await;
                }
                // What fails for certain says nothing of the one that was sent before it.
                Err(_) if doubtful => {}
                Err(failure) => return Err(failure),
            }
            let again = Instant::now() + self.jitter(PAUSE);
            if again >= deadline {
                return Ok(Answer::Doubtful { in_flight: true });
            }
            sleep_until(again).await;
        }
    }

    /// The database is full. Was this the transaction that found it out? Then it was applied, and its keys show it. It is not sent
    /// again: from then on the server refuses whatever writes, before it compares.
    async fn full(
        &self,
        prepared: &Prepared,
        group: &Group,
        error: Error,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let not_known = Answer::Doubtful { in_flight: false };
        let Some(written) = group.slots.iter().find(|slot| slot.write().is_some()) else {
            return Err(Failure::Full(error));
        };
        match self.look(written, deadline).await {
            // It writes all its keys or none.
            Some(seen) if seen.known.revision == written.base.revision => return Err(Failure::Full(error)),
            Some(_) => {}
            None => return Ok(not_known),
        }
        let mut all = Vec::with_capacity(group.slots.len());
        for slot in &group.slots {
            let Some(seen) = self.look(slot, deadline).await else { return Ok(not_known) };
            all.push(seen);
        }
        match self.trace(prepared, group, all, deadline).await {
            Answer::Changed(_) => Err(Failure::Full(error)),
            answer => Ok(answer),
        }
    }

    /// A key as it is now; None if that can't be told in time, or it is no state.
    async fn look(&self, slot: &Slot, deadline: Instant) -> Option<Seen> {
        loop {
            let name = stored(&self.config.prefix, &slot.key);
            if let Ok(found) = self.link.get(name, 0, self.patience(deadline)).await {
                return read(&found).ok();
            }
            let again = Instant::now() + self.jitter(PAUSE);
            if again >= deadline {
                return None;
            }
            sleep_until(again).await;
        }
    }

    /// It was sent at least twice, and the last one found other revisions than it compares. Was an earlier one applied?
    async fn trace(&self, prepared: &Prepared, group: &Group, seen: Vec<Seen>, deadline: Instant) -> Answer {
        let written: Vec<_> =
            group.slots.iter().zip(&seen).filter_map(|(slot, seen)| Some((slot, seen, slot.write()?))).collect();
        if written.iter().any(|(_, seen, _)| seen.mark == Some(prepared.mark)) {
            return Answer::AppliedBefore(seen);
        }
        // It writes all its keys or none.
        if written.iter().any(|(slot, seen, _)| seen.known.revision == slot.base.revision) {
            return Answer::Changed(seen);
        }
        let puts: Vec<_> = written.iter().filter(|(_, _, write)| *write == Write::Put).collect();
        if puts.is_empty() && written.iter().any(|(_, seen, _)| seen.known.revision == 0) {
            // A reset, and the key is gone: that is all that was asked for.
            return Answer::AppliedBefore(seen);
        }
        let Some((slot, shown, _)) = puts.into_iter().find(|(_, seen, _)| seen.known.revision != 0) else {
            return Answer::Doubtful { in_flight: false };
        };
        let name = stored(&self.config.prefix, &slot.key);
        let applied = self.wrote_first(name, slot.base.revision, shown.known.revision, prepared.mark, deadline).await;
        match applied {
            Some(true) => Answer::AppliedBefore(seen),
            Some(false) => Answer::Changed(seen),
            None => Answer::Doubtful { in_flight: false },
        }
    }

    /// Whether `mark` made the first write of a key after the revision `base`. The present one is at `revision`, and not by it.
    async fn wrote_first(
        &self,
        name: Vec<u8>,
        base: i64,
        mut revision: i64,
        mark: Mark,
        deadline: Instant,
    ) -> Option<bool> {
        for _ in 0..BACK {
            let before = self.link.get(name.clone(), revision - 1, self.patience(deadline)).await.ok()?;
            let before = read(&before).ok()?;
            if before.mark == Some(mark) {
                return Some(true);
            }
            if before.known.revision == base && base != 0 {
                return Some(false);
            }
            // It did not exist then. Whether it had before that, the store does not tell.
            if before.known.revision <= base {
                return None;
            }
            revision = before.known.revision;
        }
        None
    }
}
