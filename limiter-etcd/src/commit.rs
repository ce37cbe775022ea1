//! Decide, and put if nothing has changed: until it is done, or out of attempts or time.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use limiter_core::{Error, ErrorKind, Outcome, Record, Unsound};
use tokio::time::{Instant, sleep, sleep_until};

use crate::ENGINE;
use crate::error::{Failure, not_sent, refused, unknown};
use crate::figures::Counters;
use crate::group::{Group, Write};
use crate::node::Held;
use crate::send::Answer;

/// A key at which there are so many others is not asked for at once, and never together with others.
const CROWDED: u32 = 2;
/// The longest wait for a leader to be elected, before it is asked again.
const ELECTION: Duration = Duration::from_millis(50);
/// How often a lease is asked for anew for one group, if the server keeps forgetting it.
const LEASES: u32 = 3;

/// What to do with a group that was worked on.
enum Next {
    /// All its callers have their outcome. What is known of its keys is to be kept.
    Done(Group),
    /// They have, and what is known of its keys is worth nothing.
    Forget,
    /// Its requests one half after the other.
    Halves(Group),
    /// Requests that share no key, each by itself.
    Apart(Vec<Group>),
}

/// Works on a group until each of its callers has an outcome. Boxed, since its parts run by themselves in the same way.
pub(crate) fn run(group: Group, mut held: Held) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut groups = VecDeque::from([group]);
        while let Some(group) = groups.pop_front() {
            match work(group, &mut held).await {
                Next::Done(group) => held.node.keep(group.slots),
                Next::Forget => {}
                Next::Halves(group) => {
                    for half in group.halves().into_iter().rev() {
                        groups.push_front(half);
                    }
                }
                Next::Apart(parts) => {
                    for part in parts {
                        let held = held.part(&part.slots);
                        tokio::spawn(run(part, held));
                    }
                }
            }
        }
    })
}

async fn work(mut group: Group, held: &mut Held) -> Next {
    let node = Arc::clone(&held.node);
    let Some(last) = group.deadline() else { return Next::Done(group) };
    // A little before the callers stop waiting, so that they are told what is known.
    let deadline = last.checked_sub(node.config.call_timeout / 20).unwrap_or(last);
    let (mut away, mut leases_lost) = (0, 0);
    let pause = node.round_trip() * 3 / 2;
    if group.gives_way(Instant::now(), pause) {
        held.slow();
        sleep_until(deadline.min(Instant::now() + pause + node.jitter(pause))).await;
    }
    if group.crowd(Instant::now()) >= CROWDED {
        // One key that other nodes are at must not hold up the rest.
        held.slow();
        let mut parts = group.apart();
        match parts.pop() {
            Some(part) if parts.is_empty() => group = part,
            Some(part) => {
                parts.push(part);
                return Next::Apart(parts);
            }
            None => return Next::Forget,
        }
        back_off(&group, held, deadline).await;
    }
    loop {
        group.attempts += 1;
        let records = group.decide(&*node.config.clock);
        let failure = match attempt(&group, held, deadline).await {
            Ok(Answer::Applied { revision }) => {
                group.applied(revision);
                return done(group, records, held);
            }
            Ok(Answer::AppliedBefore(seen)) => {
                group.seen(seen, node.number(), Instant::now(), node.round_trip());
                return done(group, records, held);
            }
            Ok(Answer::Changed(seen)) => {
                group.seen(seen, node.number(), Instant::now(), node.round_trip());
                if !group.given() {
                    node.compare_clocks(&group.slots);
                }
                Counters::add(&node.counters.conflicts, 1);
                held.slow();
                if let Some(next) = again(&mut group, held, deadline).await {
                    return next.unwrap_or(Next::Done(group));
                }
                continue;
            }
            Ok(Answer::Corrupt(unsound)) => {
                held.slow();
                return corrupt(group, unsound);
            }
            Ok(Answer::Doubtful { in_flight }) => {
                let message = "it is not known whether the store applied it";
                group.settle_all(|| Outcome::Unknown(unknown(in_flight, message)));
                return Next::Forget;
            }
            Err(failure) => failure,
        };
        group.attempts -= 1;
        held.slow();
        let over = Instant::now() >= deadline;
        match failure {
            Failure::TooMany(error) | Failure::TooLarge(error) if group.members.len() < 2 => {
                return given_up(group, &error);
            }
            Failure::TooMany(_) => {
                node.fewer_than(group.slots.len());
                return Next::Halves(group);
            }
            Failure::TooLarge(_) => return Next::Halves(group),
            Failure::Away(error) => {
                away += 1;
                if over || away >= node.link.members() {
                    return given_up(group, &error);
                }
            }
            Failure::LeaseGone(error) => {
                leases_lost += 1;
                if over || leases_lost > LEASES {
                    return given_up(group, &error);
                }
            }
            Failure::NoLeader(error) if over => return given_up(group, &error),
            // Of a lease or of a reading: nothing was to be written yet.
            Failure::Unknown(_) if over => {
                return given_up(group, &not_sent("the store did not answer in time, and nothing was written"));
            }
            Failure::NoLeader(_) | Failure::Unknown(_) => sleep(node.jitter(ELECTION)).await,
            // Full: of a lease, or of a transaction that is known not to have been applied.
            Failure::Refused(error) | Failure::Full(error) => return given_up(group, &error),
        }
    }
}

/// Sends what was decided.
async fn attempt(group: &Group, held: &Held, deadline: Instant) -> Result<Answer, Failure> {
    let node = &held.node;
    let mut leases = Vec::new();
    for (slot, write) in group.writes() {
        if write == Write::Put {
            let grant = |seconds: i64| async move {
                let granted = node.link.grant(seconds, node.patience(deadline)).await;
                Counters::add(&node.counters.leases_granted, usize::from(granted.is_ok()));
                granted
            };
            leases.push(node.leases.lease(slot.lifetime(), grant).await?);
        }
    }
    let prepared = group.prepare(&node.config.prefix, node.mark(), &leases);
    let answer = node.send(&prepared, group, deadline).await;
    if let Err(Failure::LeaseGone(_)) = &answer {
        for lease in leases {
            node.leases.forget(lease);
        }
    }
    answer
}

/// After an attempt in vain: None if there is to be another; else what to do, or that the group is given up.
async fn again(group: &mut Group, held: &Held, deadline: Instant) -> Option<Option<Next>> {
    let node = &held.node;
    let over = Instant::now() >= deadline;
    if over || group.attempts >= node.config.max_attempts {
        Counters::add(&node.counters.contended, group.members.len());
        let why = "other nodes were quicker at the same keys, each time";
        group.settle_all(|| Outcome::NotSent(Error::new(ENGINE, ErrorKind::Contended, why)));
        return Some(None);
    }
    // All keys were just shown, so at once; but for those that others are at all the time.
    if group.crowd(Instant::now()) < CROWDED {
        return None;
    }
    let whole =
        Group { slots: std::mem::take(&mut group.slots), members: std::mem::take(&mut group.members), ..*group };
    let mut parts = whole.apart();
    if parts.len() > 1 {
        return Some(Some(Next::Apart(parts)));
    }
    *group = parts.pop()?;
    back_off(group, held, deadline).await;
    None
}

/// Waits for a random while, of up to so many round trips as there are others at the key: so that of n nodes at one key, about
/// one sends in each round trip. Who has tried often already waits less than who comes new. Those who come to the key in this process
/// meanwhile wait too, and are decided together.
async fn back_off(group: &Group, held: &Held, deadline: Instant) {
    let node = &held.node;
    let longest = node.round_trip().saturating_mul(2 * group.crowd(Instant::now()));
    let longest = longest.min(node.config.call_timeout / 16) / (1 + group.attempts / 3);
    let until = Instant::now() + node.jitter(longest);
    sleep_until(until.min(deadline)).await;
}

fn done(mut group: Group, records: Vec<Record>, held: &Held) -> Next {
    group.done(Instant::now());
    held.node.counters.committed(group.attempts, group.members.len());
    for (member, record) in group.members.iter().zip(records) {
        member.waiting.call.settle(member.waiting.index, Outcome::decided(record));
    }
    Next::Done(group)
}

fn given_up(group: Group, error: &Error) -> Next {
    group.settle_all(|| Outcome::NotSent(error.clone()));
    Next::Done(group)
}

/// A key holds what is no state: who asks for it is refused, and nobody else.
fn corrupt(group: Group, unsound: Unsound) -> Next {
    let mut parts = group.apart();
    if parts.len() > 1 {
        return Next::Apart(parts);
    }
    if let Some(part) = parts.pop() {
        part.settle_all(|| Outcome::NotSent(refused(unsound.to_string())));
    }
    Next::Forget
}

/// Counts one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
