//! The replay: each key's calls in the order of their versions, decided again by the core.

use std::fmt;

use limiter_core::{Cell, Check, Instant, Key, Layer, Limit, Op, Record, Request, RequestError, State, View, decide};

use super::life::{Event, lives};
use super::{Answer, Asked, Call, History};
use crate::subject::Numbering;

/// How many differences are told in words.
const TOLD: usize = 5;

/// What the replay of a history found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// Calls in the history.
    pub calls: u64,
    /// Checks that were decided again.
    pub checks: u64,
    /// Units that were admitted, of all keys.
    pub admitted: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that were certainly not applied.
    pub not_sent: u64,
    /// Calls of which it is not known.
    pub unknown: u64,
    /// Answers that were not the core's, and versions that nothing explains.
    pub differences: u64,
    /// The first few of them in words.
    pub told: Vec<String>,
    /// Versions that no call tells of, where a call whose outcome is unknown explains them.
    pub missing: u64,
    /// Checks that could not be decided again, since an unknown call is in their way.
    pub unverified: u64,
    /// Writes that the store lost: versions that went down, or a live state that was fresh again.
    pub lost: Vec<Lost>,
    /// The most that an instant lies before that of an earlier version, in µs.
    pub backward: u64,
}

/// Writes of one key that the store lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The key, by its index in the history.
    pub key: usize,
    /// The version to which it fell back.
    pub version: u64,
    /// Units that were charged by what was lost: the most that may pass in excess.
    pub cost: u64,
}

impl Replay {
    /// Whether every answer was the core's, and no write was lost.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.differences == 0 && self.lost.is_empty()
    }

    pub(super) fn differs(&mut self, text: impl FnOnce() -> String) {
        self.differences += 1;
        if self.told.len() < TOLD {
            self.told.push(text());
        }
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls, {} checks, {} differences, {} units admitted, {} denied, {} not sent, {} unknown, {} missing, \
             {} lost, {} not verified, instants back by {} µs at most",
            self.calls,
            self.checks,
            self.differences,
            self.admitted,
            self.denied,
            self.not_sent,
            self.unknown,
            self.missing,
            self.lost.len(),
            self.unverified,
            self.backward
        )?;
        self.told.iter().try_for_each(|text| write!(f, "\n{text}"))
    }
}

impl History {
    /// Decides the whole history again, in the time that sorting it takes.
    ///
    /// A call that names a key or limit that the history has not counts as a difference.
    #[must_use]
    pub fn replay(&self, numbering: Numbering) -> Replay {
        self.replay_after(numbering, 0)
    }

    /// The same of a history whose beginning nobody recorded: what each key held then is taken from the first call that saw it.
    pub(crate) fn replay_rest(&self, numbering: Numbering) -> Replay {
        self.replay_after(numbering, 1)
    }

    fn replay_after(&self, numbering: Numbering, unseen: u64) -> Replay {
        let mut replay = Replay { calls: u64::try_from(self.calls.len()).unwrap_or(u64::MAX), ..Replay::default() };
        let mut unknown = vec![unseen; self.keys.len()];
        let mut events = Vec::new();
        for call in &self.calls {
            self.sort_in(call, &mut replay, &mut unknown, &mut events);
        }
        events.sort_unstable_by_key(Event::order);
        for events in events.chunk_by(|a, b| a.asked.key == b.asked.key) {
            let Some(key) = events.first().and_then(|event| self.keys.get(event.asked.key)) else { continue };
            let unknown = events.first().and_then(|event| unknown.get(event.asked.key)).copied().unwrap_or_default();
            check_key(&mut replay, &self.limits, key, events, numbering, unknown);
        }
        replay
    }

    /// Counts a call, checks its verdict as a whole, and adds its checks to the events.
    fn sort_in<'h>(&'h self, call: &'h Call, replay: &mut Replay, unknown: &mut [u64], events: &mut Vec<Event<'h>>) {
        let known = |asked: &Asked| self.keys.get(asked.key).is_some() && self.limits.get(asked.limit).is_some();
        if !call.checks.iter().all(known) {
            replay.differs(|| format!("{}: a key or limit that is not in the history", name(call)));
            return;
        }
        match &call.answer {
            Answer::Remembered { .. } => replay.denied += 1,
            Answer::NotSent => replay.not_sent += 1,
            Answer::Unknown => {
                replay.unknown += 1;
                for asked in &call.checks {
                    if let Some(unknown) = unknown.get_mut(asked.key) {
                        *unknown += 1;
                    }
                }
            }
            Answer::Decided { layers, .. } if layers.len() != call.checks.len() => {
                replay.differs(|| format!("{}: {} layers for {} checks", name(call), layers.len(), call.checks.len()));
            }
            Answer::Decided { allowed, at, layers } => {
                let admits = |(asked, layer): (&Asked, &Layer)| {
                    self.limits.get(asked.limit).is_some_and(|limit| layer.view.admits(limit, *at, asked.cost))
                };
                let due = !matches!(call.op, Op::Take | Op::Peek) || call.checks.iter().zip(layers).all(admits);
                if due != *allowed {
                    replay.differs(|| format!("{}: allowed is {allowed}, and of its layers {due}", name(call)));
                }
                replay.denied += u64::from(!allowed);
                if *allowed && call.op == Op::Take {
                    replay.admitted += call.checks.iter().map(|asked| asked.cost).sum::<u64>();
                }
                for (asked, layer) in call.checks.iter().zip(layers) {
                    events.push(Event { call, asked: *asked, layer: *layer, at: *at, allowed: *allowed });
                }
            }
        }
    }
}

pub(super) fn name(call: &Call) -> String {
    format!("{} {} of task {} of process {}", call.op, call.id, call.task, call.process)
}

fn check_key(
    replay: &mut Replay,
    limits: &[Limit],
    key: &Key,
    events: &[Event<'_>],
    numbering: Numbering,
    unknown: u64,
) {
    let mut start = OneKey::new(limits, key, Cell::default(), numbering, unknown);
    let mut before: Vec<Event<'_>> = Vec::new();
    for life in lives(events) {
        if let Some(floor) = life.fell_to {
            // The store fell back: what it fell back to is decided again up to there, without being counted twice.
            let cost = life.lost.iter().map(|event| event.asked.cost).sum();
            let index = life.events.first().map_or(0, |event| event.asked.key);
            replay.lost.push(Lost { key: index, version: floor, cost });
            before.retain(|event| event.layer.version <= floor);
            let mut quiet = Replay::default();
            for event in &before {
                start.decide(&mut quiet, event);
            }
            // The first write after the fall may be one of which nobody was told: then it fell further than is seen.
            start.fell = true;
            start.unknown = unknown;
        }
        let mut one = start.clone();
        for event in &life.events {
            one.decide(replay, event);
        }
        before = life.events;
    }
}

/// One key on its way through its versions.
#[derive(Clone)]
struct OneKey<'h> {
    limits: &'h [Limit],
    key: &'h Key,
    cell: Cell,
    /// When the state is as good as never used: from then on the store may have forgotten it.
    expires: Instant,
    numbering: Numbering,
    /// Unknown calls that may still explain a missing version.
    unknown: u64,
    /// Until then an unknown entry of a log may count.
    unsure_until: u64,
    newest: Instant,
    /// Whether the store has just fallen back.
    fell: bool,
}

impl<'h> OneKey<'h> {
    fn new(limits: &'h [Limit], key: &'h Key, cell: Cell, numbering: Numbering, unknown: u64) -> Self {
        let (expires, newest) = (Instant::EPOCH, Instant::EPOCH);
        Self { limits, key, cell, expires, numbering, unknown, unsure_until: 0, newest, fell: false }
    }

    fn decide(&mut self, replay: &mut Replay, event: &Event<'_>) {
        let Some(limit) = self.limits.get(event.asked.limit).copied() else { return };
        replay.checks += 1;
        replay.backward = replay.backward.max(self.newest.micros().saturating_sub(event.at.micros()));
        if !self.find_state(replay, event, &limit) {
            return;
        }
        if event.at.micros() < self.unsure_until {
            replay.unverified += 1;
            self.charge_unseen(event, &limit);
            return;
        }
        match self.step(event, limit) {
            Ok(record) => self.compare(replay, event, &limit, &record),
            Err(error) => replay.differs(|| format!("{}: {error}", name(event.call))),
        }
        if event.writes() {
            self.cell.version = event.layer.version;
            self.newest = self.newest.max(event.at);
            self.expires = self.cell.state.as_ref().map_or(Instant::EPOCH, |state| state.reset_at(&limit));
        }
    }

    /// Brings the cell to the state that the event saw. False if nothing can be said of it.
    fn find_state(&mut self, replay: &mut Replay, event: &Event<'_>, limit: &Limit) -> bool {
        let due = self.cell.version + u64::from(event.writes());
        let version = event.layer.version;
        let fell = std::mem::take(&mut self.fell);
        if version == due && self.cell.state.is_some() && !fell {
            return true;
        }
        let told = |view: View| view.decision(limit, event.at, event.asked.cost, false);
        let fresh = told(event.layer.view) == told(View::fresh(limit.algorithm()));
        let Some(state) = &self.cell.state else {
            // Another call, of which nobody was told, may have made the key.
            if !fresh {
                self.unseen(replay, event, limit, 1);
            }
            return true;
        };
        let as_known = told(event.layer.view) == told(state.view(limit, event.at, event.asked.cost));
        let left = state.view(limit, event.at, 0).decision(limit, event.at, 0, false).remaining;
        // Numbers that only grow tell nothing of what is missing; and a store may have fallen further than its next write shows.
        if version == due || (self.numbering == Numbering::Growing && event.writes() && version > due) {
            if !as_known {
                self.unseen(replay, event, limit, 1);
            }
            return true;
        }
        if matches!(event.call.op, Op::Refund { .. } | Op::Reset) && version == self.cell.version {
            // It changed nothing, and its engine did not write for that.
            return true;
        }
        let missing = version.saturating_sub(due);
        // Before its end is looked at: a write that is missing may have prolonged it.
        if missing > 0 && self.unseen(replay, event, limit, missing) {
            return true;
        }
        if event.at >= self.expires {
            self.cell.state = None;
            // Forgotten, and made anew by a call of which nobody was told: its first version is its instant.
            if !fresh {
                self.unseen(replay, event, limit, 1);
            }
            return true;
        }
        if version > due && (fresh || self.unknown > 0) {
            // As a restarted store does it: the key is fresh again, although it had a live debt.
            replay.lost.push(Lost { key: event.asked.key, version: 0, cost: limit.capacity() - left });
            self.cell.state = None;
            return fresh || self.unseen(replay, event, limit, 1);
        }
        let seen = self.cell.version;
        replay.differs(|| format!("{}: version {version} of {} after {seen}", name(event.call), self.key));
        if event.writes() {
            self.cell.version = version;
        }
        false
    }

    /// Explains what the event saw by so many unknown calls, if there are as many.
    fn unseen(&mut self, replay: &mut Replay, event: &Event<'_>, limit: &Limit, writes: u64) -> bool {
        if writes > self.unknown {
            return false;
        }
        replay.missing += writes;
        self.unknown -= writes;
        self.cell.version = event.layer.version - u64::from(event.writes());
        self.take_from_view(event, limit);
        true
    }

    /// After an unknown call the state is what the engine saw; of a log that is not all.
    fn take_from_view(&mut self, event: &Event<'_>, limit: &Limit) {
        match event.layer.view {
            View::FixedWindow(state) => self.cell.state = Some(State::FixedWindow(state)),
            View::SlidingCounter(state) => self.cell.state = Some(State::SlidingCounter(state)),
            View::Bucket(state) => self.cell.state = Some(State::Bucket(state)),
            _ => self.unsure_until = event.at.saturating_add(limit.period()).micros(),
        }
    }

    /// Takes what was admitted, where nothing can be compared.
    fn charge_unseen(&mut self, event: &Event<'_>, limit: &Limit) {
        if event.writes() && event.call.op == Op::Take {
            let state = self.cell.state.get_or_insert_with(|| State::fresh(limit.algorithm()));
            state.take(limit, event.at, event.asked.cost);
            self.expires = state.reset_at(limit);
            self.cell.version = event.layer.version;
        }
    }

    /// The core's own decision on this check. A layer of a request that was refused elsewhere took nothing: a peek.
    fn step(&mut self, event: &Event<'_>, limit: Limit) -> Result<Record, RequestError> {
        let op = if event.call.op == Op::Take && !event.writes() { Op::Peek } else { event.call.op };
        let request = Request::new(op, [Check::new(self.key.clone(), limit, event.asked.cost)])?;
        Ok(decide(&request, event.at, &mut self.cell))
    }

    fn compare(&self, replay: &mut Replay, event: &Event<'_>, limit: &Limit, record: &Record) {
        let Some(core) = record.layers().first() else { return };
        if event.writes() && !record.allowed {
            replay.differs(|| format!("{}: admitted by {}, refused by the core", name(event.call), self.key));
            return;
        }
        if core.view == event.layer.view {
            return;
        }
        let asks = matches!(event.call.op, Op::Take | Op::Peek);
        let cost = if asks { event.asked.cost } else { 0 };
        let charged = event.writes() && event.call.op == Op::Take;
        let told = |view: View| view.decision(limit, event.at, cost, charged);
        if told(core.view) != told(event.layer.view) {
            replay.differs(|| {
                format!(
                    "{}, version {} of {} under {limit} at {}:\n  the engine tells {}\n  the core tells   {}",
                    name(event.call),
                    event.layer.version,
                    self.key,
                    event.at,
                    crate::twin::one_told(&told(event.layer.view)),
                    crate::twin::one_told(&told(core.view))
                )
            });
        }
    }
}
