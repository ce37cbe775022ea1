//! A batch over the slots of a cluster, without the I/O.
//!
//! A script's keys have to lie in one slot. So a batch becomes *rounds* of parts, one part for each slot, which the driver sends
//! all at once; each part is a batch of its own, whose [`Exchange`](super::Exchange) is as usual:
//!
//! ```text
//!   new ──► next: parts ──► the driver, each to its slot's node ──► answer: outcomes of each part ──┐
//!            ▲                                                                                      │
//!            └──────────────────────────────────────────────────────────────────────────────────────┘   until there are none
//! ```
//!
//! Requests of one slot are done after the first round, decided in one step as on a single server. A request over several
//! slots takes what is narrow (of the smallest capacity) and *asks* the others in the same round; so one that is refused
//! for good ends there, mostly without a charge. Then it takes the others one by one. If one refuses, those before it are
//! *refunded*: that may refuse too much for an instant, and never admits too much.
//!
//! Requests that name a key reach it in the batch's order.

mod task;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use self::task::{Task, Want};
use super::slot_of;
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::outcome::Outcome;
use crate::request::{Batch, Op, Request};

/// A batch on its way through a cluster.
#[derive(Debug)]
pub struct Spread {
    engine: &'static str,
    batch: Arc<Batch>,
    tasks: Vec<Task>,
    /// What each part of the present round holds.
    round: Vec<Vec<Place>>,
    spans: bool,
}

/// Where a part's request comes from: which task, and which of its groups.
type Place = (usize, usize);

/// What goes to one slot in one round, as one call of the script.
#[derive(Clone, Debug)]
pub struct Part {
    /// The slot of all its keys.
    pub slot: u16,
    /// Its requests.
    pub batch: Arc<Batch>,
    /// Which of the round's parts it is.
    number: usize,
}

impl Spread {
    /// Begins a batch; `engine` is named in its own errors.
    #[must_use]
    pub fn new(engine: &'static str, batch: Arc<Batch>) -> Self {
        let tasks: Vec<Task> = batch.requests.iter().map(|request| Task::new(request, slot_of)).collect();
        let spans = tasks.iter().any(Task::spans);
        Self { engine, batch, tasks, round: Vec::new(), spans }
    }

    /// Whether a request lies over several slots. If so the rounds must go on when the caller has gone, and beyond its deadline,
    /// until there are no parts: else a charge might stay that has to be refunded.
    #[must_use]
    pub const fn spans(&self) -> bool {
        self.spans
    }

    /// The parts of the next round, once all of the one before are answered; none: it is over. With `late`, nothing more is
    /// taken or asked, and only what has to be refunded still is.
    pub fn next(&mut self, late: bool) -> Vec<Part> {
        let batch = Arc::clone(&self.batch);
        for (task, request) in self.tasks.iter_mut().zip(&batch.requests) {
            task.settle(self.engine, request);
        }
        let mut slots: BTreeMap<u16, (Vec<Request>, Vec<Place>)> = BTreeMap::new();
        if let Some(part) = self.whole(late) {
            return vec![part];
        }
        let (mut held, mut giving) = (HashSet::new(), HashSet::new());
        // Refunds go first: what is given back is there for those who come now.
        let mut wants: Vec<(usize, Want)> = Vec::new();
        for (index, (task, request)) in self.tasks.iter_mut().zip(&batch.requests).enumerate() {
            if late {
                task.give_up(self.engine, request);
            }
            wants.extend(task.refunds(request).into_iter().map(|want| (index, want)));
        }
        for (index, (task, request)) in self.tasks.iter_mut().zip(&batch.requests).enumerate() {
            let asked = task.asks(request, &held, &giving);
            wants.extend(asked.into_iter().map(|want| (index, want)));
            if self.spans {
                hold(task, request, &mut held, &mut giving);
            }
        }
        for (index, want) in wants {
            let (requests, places) = slots.entry(want.slot).or_default();
            requests.push(want.request);
            places.push((index, want.group));
        }
        self.round.clear();
        let parts = slots.into_iter().enumerate().map(|(number, (slot, (requests, places)))| {
            self.round.push(places);
            Part { slot, batch: Arc::new(Batch { requests, at: batch.at }), number }
        });
        parts.collect()
    }

    /// The batch as it is, if all of it lies in one slot.
    fn whole(&mut self, late: bool) -> Option<Part> {
        let slot = self.tasks.first()?.slot()?;
        if late || self.spans || self.tasks.iter().any(|task| task.outcome().is_some() || task.slot() != Some(slot)) {
            return None;
        }
        self.tasks.iter_mut().for_each(Task::send_whole);
        self.round = vec![(0..self.tasks.len()).map(|task| (task, 0)).collect()];
        Some(Part { slot, batch: Arc::clone(&self.batch), number: 0 })
    }

    /// Tells what came of a part: one outcome for each of its requests.
    pub fn answer(&mut self, part: &Part, outcomes: Vec<Outcome>) {
        let Some(places) = self.round.get(part.number) else { return };
        for (outcome, (task, group)) in outcomes.into_iter().zip(places) {
            if let Some(task) = self.tasks.get_mut(*task) {
                task.got(*group, outcome);
            }
        }
    }

    /// What is known by now, one outcome for each request in the batch's order. A request that has none yet is unknown.
    #[must_use]
    pub fn outcomes(&self) -> Vec<Outcome> {
        let open = || {
            let kind = ErrorKind::Unknown { in_flight: true };
            Outcome::Unknown(Error::new(self.engine, kind, "the cluster did not answer in time"))
        };
        self.tasks.iter().map(|task| task.outcome().cloned().unwrap_or_else(open)).collect()
    }
}

/// Notes the keys that a task has still to reach: those after it wait for them.
fn hold<'b>(task: &Task, request: &'b Request, held: &mut HashSet<&'b Key>, giving: &mut HashSet<&'b Key>) {
    let gives = matches!(request.op(), Op::Refund { .. } | Op::Reset);
    for index in task.unsent() {
        if let Some(check) = request.checks().get(index) {
            held.insert(&check.key);
            if gives {
                giving.insert(&check.key);
            }
        }
    }
}
