//! Who waits for a lane's next call. No I/O, no clock: the instant is given.

use std::collections::VecDeque;
use std::sync::Arc;

use limiter_core::{Batch, Outcome};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::builder::Bounds;

/// How many requests that repeat the one before them take a call's room of one: an engine decides a run of equal requests in one step,
/// and what each of them still costs is this process's.
const REPEATS: usize = 8;

/// What a caller is told: an outcome for each of its requests.
#[derive(Debug)]
pub(super) enum Answer {
    /// Of its one request. The list that the caller gives on is then made by the caller, and not in the lane, for which all wait.
    One(Outcome),
    All(Vec<Outcome>),
}

impl From<Answer> for Vec<Outcome> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::One(outcome) => vec![outcome],
            Answer::All(outcomes) => outcomes,
        }
    }
}

/// Requests that were submitted together and go together, and the caller who waits for them.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) batch: Arc<Batch>,
    /// Closed once the caller is gone.
    pub(super) answer: oneshot::Sender<Answer>,
    /// When the caller has waited long enough. None: never.
    pub(super) until: Option<Instant>,
}

impl Waiting {
    pub(super) fn requests(&self) -> usize {
        self.batch.requests.len()
    }

    /// How much of a call's room it takes after `before`, in parts of a request that is decided by itself.
    fn weight(&self, before: &Self) -> usize {
        match (&*self.batch.requests, before.batch.requests.last()) {
            ([own], Some(last)) if own == last => 1,
            (requests, _) => requests.len().saturating_mul(REPEATS),
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Tells the caller the outcomes, one for each of its requests.
    pub(super) fn tell(self, answer: Answer) {
        // A caller that is gone by now has nobody to tell.
        drop(self.answer.send(answer));
    }

    /// Tells the caller the same outcome of each of its requests.
    pub(super) fn tell_all(self, outcome: &Outcome) {
        let outcomes = vec![outcome.clone(); self.requests()];
        self.tell(Answer::All(outcomes));
    }
}

/// Of each call that a lane may have in flight:
/// ```text
///            arrive: lead                  take: something
///    idle ───────────────► busy, queued ──────────────────► busy, a call in flight ─┐
///     ▲                        │  ▲ arrive                        │ arrive: queued    │
///     └────────────────────────┘  └───────────────────────────────┴──── it ends ◄─────┘
///        take: nothing, or abandon
/// ```
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// How many requests wait, those included whose caller is gone and which have not been swept out.
    requests: usize,
    /// About how many callers have gone since the last sweep. Who went while the call was in flight is counted too.
    gone: usize,
    /// How many tasks take what is queued, each for a call of its own.
    leads: usize,
}

/// What a new arrival means.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A call more may be in flight: the arrival has to start its task.
    Lead,
    /// One of the lane's tasks takes it in its turn.
    Queued,
    /// No room. It was not queued.
    Full,
}

/// What a task of the lane does next.
#[derive(Debug)]
pub(super) struct Turn {
    /// Goes to the store now. Nothing: the task has ended.
    pub(super) taken: Vec<Waiting>,
    /// Waited too long, and is not sent.
    pub(super) late: Vec<Waiting>,
}

impl Queue {
    /// Queues `waiting` if there is room: at most `max_queue` requests wait, but one arrival always may.
    pub(super) fn arrive(&mut self, waiting: Waiting, Bounds { max_queue, in_flight, .. }: Bounds) -> Arrival {
        if !self.has_room(waiting.requests(), max_queue) {
            // A sweep looks at all that wait. It is due when enough callers have gone to pay for it.
            if self.gone <= max_queue / 16 {
                return Arrival::Full;
            }
            self.sweep();
            if !self.has_room(waiting.requests(), max_queue) {
                return Arrival::Full;
            }
        }
        self.requests += waiting.requests();
        self.waiting.push_back(waiting);
        if self.leads >= in_flight {
            return Arrival::Queued;
        }
        self.leads += 1;
        Arrival::Lead
    }

    /// A caller has gone before its answer came.
    pub(super) fn leave(&mut self) {
        self.gone += 1;
    }

    /// Takes what goes into the next call, in the order of arrival: up to `max_batch` requests, or one arrival. A request that repeats the
    /// one before it counts as an [eighth](REPEATS). Whose caller is gone is left out.
    pub(super) fn take(&mut self, max_batch: usize, now: impl Fn() -> Instant) -> Turn {
        let mut turn = Turn { taken: Vec::with_capacity(self.waiting.len().min(max_batch)), late: Vec::new() };
        let (mut room, mut read) = (max_batch.saturating_mul(REPEATS), None);
        while let Some(first) = self.waiting.front() {
            let weight = match turn.taken.last() {
                None => first.requests().saturating_mul(REPEATS),
                Some(before) => first.weight(before),
            };
            // One always goes, however large it is.
            if weight > room && !turn.taken.is_empty() {
                break;
            }
            let Some(waiting) = self.waiting.pop_front() else { break };
            self.requests -= waiting.requests();
            if waiting.answer.is_closed() {
                continue;
            }
            if waiting.until.is_some() && waiting.is_due(*read.get_or_insert_with(&now)) {
                turn.late.push(waiting);
                continue;
            }
            room = room.saturating_sub(weight);
            turn.taken.push(waiting);
        }
        if turn.taken.is_empty() {
            self.leads = self.leads.saturating_sub(1);
        }
        turn
    }

    /// Takes those out that have waited too long while calls are in flight. They are not sent.
    pub(super) fn late(&mut self, now: Instant) -> Vec<Waiting> {
        let mut late = Vec::new();
        // In order of arrival, hence of their deadlines.
        while let Some(waiting) = self.waiting.pop_front_if(|first| first.is_due(now)) {
            self.requests -= waiting.requests();
            late.push(waiting);
        }
        late
    }

    /// When the first of those that wait has waited long enough.
    pub(super) fn until(&self) -> Option<Instant> {
        self.waiting.front()?.until
    }

    /// A task gives the lane up. All that wait, if there is no other to take them.
    pub(super) fn abandon(&mut self) -> VecDeque<Waiting> {
        self.leads = self.leads.saturating_sub(1);
        if self.leads > 0 { VecDeque::new() } else { std::mem::take(self).waiting }
    }

    /// How many requests wait.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    fn has_room(&self, requests: usize, max_queue: usize) -> bool {
        self.requests == 0 || self.requests.saturating_add(requests) <= max_queue
    }

    fn sweep(&mut self) {
        self.gone = 0;
        self.waiting.retain(|waiting| !waiting.answer.is_closed());
        self.requests = self.waiting.iter().map(Waiting::requests).sum();
    }
}
