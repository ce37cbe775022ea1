//! One request's way over its slots.

use std::collections::HashSet;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::outcome::{Outcome, Record};
use crate::request::{Check, Op, Request};

/// How often a refund that was not sent is tried.
const TRIES: u8 = 3;

/// A request, split by slot.
#[derive(Debug)]
pub(super) struct Task {
    op: Op,
    /// In the order in which they are taken.
    groups: SmallVec<[Group; 1]>,
    stage: Stage,
    /// Whether it has something in the present round.
    sent: bool,
}

/// Those of its checks that lie in one slot.
#[derive(Debug)]
struct Group {
    slot: u16,
    /// Which of the request's checks.
    checks: SmallVec<[usize; 4]>,
    /// What came of it in the present round.
    got: Option<Outcome>,
    /// What it was last decided on.
    seen: Option<Record>,
    charge: Charge,
    /// A denial of its question says nothing: somebody before it in the batch had yet to give.
    early: bool,
}

/// What a group was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charge {
    None,
    Taken,
    /// Taken, and refunded so many times in vain.
    Owed(u8),
    /// Taken, and it is not known whether it was refunded.
    Lost,
}

#[derive(Debug)]
enum Stage {
    /// The group that is taken next. All groups at once, if the request is no take.
    Ask(usize),
    /// Refunds are under way; then this is the outcome.
    Back(End),
    Done(Outcome),
}

#[derive(Debug)]
enum End {
    Denied,
    Failed(Error),
}

/// What a task has in a round.
pub(super) struct Want {
    pub(super) slot: u16,
    pub(super) group: usize,
    pub(super) request: Request,
}

impl Task {
    pub(super) fn new(request: &Request, slot_of: impl Fn(&Key) -> u16) -> Self {
        let mut groups: SmallVec<[Group; 1]> = SmallVec::new();
        for (index, check) in request.checks().iter().enumerate() {
            let slot = slot_of(&check.key);
            match groups.iter_mut().find(|group| group.slot == slot) {
                Some(group) => group.checks.push(index),
                None => groups.push(Group {
                    slot,
                    checks: SmallVec::from_slice(&[index]),
                    got: None,
                    seen: None,
                    charge: Charge::None,
                    early: false,
                }),
            }
        }
        if groups.len() > 1 {
            // What is narrow refuses soonest, and then nobody else is charged in vain.
            groups.sort_by_key(|group| group.checks(request).map(|check| check.limit.capacity()).min());
        }
        Self { op: request.op(), groups, stage: Stage::Ask(0), sent: false }
    }

    pub(super) fn spans(&self) -> bool {
        self.groups.len() > 1
    }

    /// The slot of its first group.
    pub(super) fn slot(&self) -> Option<u16> {
        self.groups.first().map(|group| group.slot)
    }

    /// Notes that it is sent as it is.
    pub(super) fn send_whole(&mut self) {
        self.sent = true;
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match &self.stage {
            Stage::Done(outcome) => Some(outcome),
            Stage::Ask(_) | Stage::Back(_) => None,
        }
    }

    pub(super) fn got(&mut self, group: usize, outcome: Outcome) {
        if let Some(group) = self.groups.get_mut(group) {
            group.got = Some(outcome);
        }
    }

    /// Fails what was not sent yet.
    pub(super) fn give_up(&mut self, engine: &'static str, request: &Request) {
        if matches!(self.stage, Stage::Ask(_)) {
            self.end(engine, request, End::Failed(Error::new(engine, ErrorKind::NotSent, "no time was left for it")));
        }
    }

    /// The refunds of this round.
    pub(super) fn refunds(&mut self, request: &Request) -> Vec<Want> {
        self.sent = false;
        if !matches!(self.stage, Stage::Back(_)) {
            return Vec::new();
        }
        self.sent = true;
        let owed = self.groups.iter().enumerate().filter(|(_, group)| matches!(group.charge, Charge::Owed(_)));
        owed.filter_map(|(index, group)| {
            let taken = group.seen.as_ref()?.at;
            Some(group.want(index, request, Op::Refund { taken }))
        })
        .collect()
    }

    /// What is taken or asked in this round, unless somebody before it in the batch has yet to reach one of the keys.
    pub(super) fn asks(&mut self, request: &Request, held: &HashSet<&Key>, giving: &HashSet<&Key>) -> Vec<Want> {
        let Stage::Ask(stage) = self.stage else { return Vec::new() };
        let among = |group: &Group, keys: &HashSet<&Key>| {
            !keys.is_empty() && group.checks(request).any(|check| keys.contains(&check.key))
        };
        let takes = self.op == Op::Take;
        let reached = |index: usize| !takes || index == stage;
        if self.groups.iter().enumerate().any(|(index, group)| reached(index) && among(group, held)) {
            return Vec::new();
        }
        self.sent = true;
        let mut wants = Vec::new();
        for (index, group) in self.groups.iter_mut().enumerate() {
            if reached(index) {
                wants.push(group.want(index, request, self.op));
            } else if stage == 0 {
                group.early = among(group, giving);
                wants.push(group.want(index, request, Op::Peek));
            }
        }
        wants
    }

    /// The checks that this round does not yet bring to their keys.
    pub(super) fn unsent(&self) -> impl Iterator<Item = usize> {
        let from = match self.stage {
            Stage::Ask(stage) if !self.sent => stage,
            Stage::Ask(stage) if self.op == Op::Take => stage + 1,
            Stage::Ask(_) | Stage::Back(_) | Stage::Done(_) => self.groups.len(),
        };
        self.groups.iter().skip(from).flat_map(|group| group.checks.iter().copied())
    }

    /// Draws the conclusion from what the round brought.
    pub(super) fn settle(&mut self, engine: &'static str, request: &Request) {
        if !std::mem::take(&mut self.sent) {
            return;
        }
        match self.stage {
            Stage::Done(_) => {}
            Stage::Back(_) => self.settle_refunds(engine, request),
            Stage::Ask(_) if !self.spans() => {
                let got = self.groups.first_mut().and_then(|group| group.got.take());
                self.stage = Stage::Done(got.unwrap_or_else(|| no_outcome(engine)));
            }
            Stage::Ask(stage) if self.op == Op::Take => self.settle_take(engine, request, stage),
            Stage::Ask(_) => self.stage = Stage::Done(self.settle_all(engine, request)),
        }
    }

    /// Of a question, a refund or a reset over all groups.
    fn settle_all(&mut self, engine: &'static str, request: &Request) -> Outcome {
        let (mut certain, mut unknown, mut done) = (None, None, 0);
        for group in &mut self.groups {
            match group.got.take().unwrap_or_else(|| no_outcome(engine)) {
                Outcome::Allowed(record) | Outcome::Denied(record) => {
                    done += 1;
                    group.seen = Some(record);
                }
                Outcome::NotSent(error) => certain = Some(error),
                Outcome::Unknown(error) => unknown = Some(error),
            }
        }
        match (unknown, certain) {
            (Some(error), _) => Outcome::Unknown(error),
            // A question changes nothing, so that half of one is none.
            (None, Some(error)) if done == 0 || self.op == Op::Peek => Outcome::NotSent(error),
            (None, Some(_)) => {
                let kind = ErrorKind::Unknown { in_flight: false };
                Outcome::Unknown(Error::new(engine, kind, "it was done in one part of the cluster, and not in another"))
            }
            (None, None) => self.merged(engine, request),
        }
    }

    fn settle_take(&mut self, engine: &'static str, request: &Request, stage: usize) {
        let (mut refused, mut mute) = (false, None);
        let mut failed = None;
        for (index, group) in self.groups.iter_mut().enumerate() {
            let Some(got) = group.got.take().or_else(|| (index == stage).then(|| no_outcome(engine))) else { continue };
            match got {
                Outcome::Allowed(record) => {
                    if index == stage {
                        group.charge = Charge::Taken;
                    }
                    group.seen = Some(record);
                }
                Outcome::Denied(record) => {
                    refused |= index == stage || !group.early;
                    group.seen = Some(record);
                }
                Outcome::NotSent(error) | Outcome::Unknown(error) if index == stage => failed = Some(error),
                Outcome::NotSent(_) | Outcome::Unknown(_) => {
                    // It was only a question: nothing came of it, whatever became of it.
                    mute = Some(Error::new(engine, ErrorKind::NotSent, "a part of the cluster did not answer"));
                }
            }
        }
        match (failed, mute) {
            // Of a denial each layer is told, and so it takes all of them.
            (Some(error), _) | (None, Some(error)) => self.end(engine, request, End::Failed(error)),
            (None, None) if refused => self.end(engine, request, End::Denied),
            (None, None) if stage + 1 < self.groups.len() => self.stage = Stage::Ask(stage + 1),
            (None, None) => self.stage = Stage::Done(self.merged(engine, request)),
        }
    }

    fn settle_refunds(&mut self, engine: &'static str, request: &Request) {
        for group in &mut self.groups {
            let Charge::Owed(tries) = group.charge else { continue };
            group.charge = match group.got.take().unwrap_or_else(|| no_outcome(engine)) {
                Outcome::Allowed(record) | Outcome::Denied(record) => {
                    // The last of its writes is the refund.
                    for (layer, after) in group.seen.iter_mut().flat_map(|seen| &mut seen.layers).zip(&record.layers) {
                        layer.version = after.version;
                    }
                    Charge::None
                }
                Outcome::NotSent(_) if tries + 1 < TRIES => Charge::Owed(tries + 1),
                Outcome::NotSent(_) | Outcome::Unknown(_) => Charge::Lost,
            };
        }
        if !self.groups.iter().any(|group| matches!(group.charge, Charge::Owed(_))) {
            self.finish(engine, request);
        }
    }

    /// Refunds what is charged, if anything is, and ends so.
    fn end(&mut self, engine: &'static str, request: &Request, end: End) {
        for group in &mut self.groups {
            if group.charge == Charge::Taken {
                group.charge = Charge::Owed(0);
            }
        }
        self.stage = Stage::Back(end);
        if !self.groups.iter().any(|group| matches!(group.charge, Charge::Owed(_))) {
            self.finish(engine, request);
        }
    }

    fn finish(&mut self, engine: &'static str, request: &Request) {
        let lost = self.groups.iter().any(|group| group.charge == Charge::Lost);
        let outcome = match &self.stage {
            Stage::Ask(_) | Stage::Done(_) => return,
            Stage::Back(End::Failed(error)) if !error.kind().is_certain() => Outcome::Unknown(error.clone()),
            Stage::Back(_) if lost => {
                let kind = ErrorKind::Unknown { in_flight: true };
                Outcome::Unknown(Error::new(
                    engine,
                    kind,
                    "it was refused, and what a part of it took may not be refunded",
                ))
            }
            Stage::Back(End::Failed(error)) => Outcome::NotSent(error.clone()),
            Stage::Back(End::Denied) => self.merged(engine, request),
        };
        self.stage = Stage::Done(outcome);
    }

    /// The groups' records as the request's.
    ///
    /// Each node has its own clock, and a record has one instant. A denial is told at the earliest of those who refused: what is
    /// refused later is refused then, too. What passes is told at the latest, when all of it passes; but a take at the earliest
    /// if all of it passes by then, so that a refund that names the instant finds what was taken.
    fn merged(&self, engine: &'static str, request: &Request) -> Outcome {
        let Some(records) = self.groups.iter().map(|group| group.seen.as_ref()).collect::<Option<SmallVec<[_; 4]>>>()
        else {
            return no_outcome(engine);
        };
        let allowed = records.iter().all(|record| record.allowed);
        let instants = records.iter().filter(|record| allowed || !record.allowed).map(|record| record.at);
        let (Some(first), Some(last)) = (instants.clone().min(), instants.max()) else { return no_outcome(engine) };
        let mut layers: SmallVec<[_; 4]> = SmallVec::new();
        for (group, record) in self.groups.iter().zip(&records) {
            layers.extend(group.checks.iter().copied().zip(record.layers.iter().copied()));
        }
        layers.sort_unstable_by_key(|(index, _)| *index);
        let mut merged = Record::new(allowed, first, layers.into_iter().map(|(_, layer)| layer));
        if allowed && (self.op != Op::Take || merged.decisions(request).is_err()) {
            merged.at = last;
        }
        Outcome::decided(merged)
    }
}

impl Group {
    fn checks<'r>(&self, request: &'r Request) -> impl Iterator<Item = &'r Check> {
        self.checks.iter().filter_map(|index| request.checks().get(*index))
    }

    fn want(&self, group: usize, request: &Request, op: Op) -> Want {
        Want { slot: self.slot, group, request: Request::part(op, self.checks(request).cloned()) }
    }
}

/// A driver owes one outcome for each request that it is given.
fn no_outcome(engine: &'static str) -> Outcome {
    let kind = ErrorKind::Unknown { in_flight: true };
    Outcome::Unknown(Error::new(engine, kind, "the call gave no outcome"))
}
