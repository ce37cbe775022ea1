//! Decided steps as outcomes: each is unfolded by playing its requests through the core.

use smallvec::SmallVec;

use super::plan::{Plan, Step};
use crate::error::Error;
use crate::instant::Instant;
use crate::limit::Limit;
use crate::outcome::{Divergence, Layer, Outcome, Record};
use crate::request::{Batch, Op, Request};
use crate::source::Basis;
use crate::state::View;

/// What a store answered to a step.
#[derive(Clone, Debug)]
pub struct Decided {
    /// How many of the step's requests are allowed: the first ones.
    allowed: u32,
    /// How many have their outcome.
    done: u32,
    layers: SmallVec<[Layer; 1]>,
}

impl Decided {
    /// `allowed` of the step's requests passed, the first ones. A layer for each of its checks: the view before a take or a peek
    /// and after a refund or a reset, and the version after the step. Of a log, `opens_at` is told for the requests that were
    /// not charged.
    #[must_use]
    pub fn new(allowed: u32, layers: impl IntoIterator<Item = Layer>) -> Self {
        Self { allowed, done: 0, layers: layers.into_iter().collect() }
    }

    /// Whether this can be an answer to the step.
    fn fits(&self, step: &Step, request: &Request) -> bool {
        let whole = match request.op() {
            Op::Take => self.allowed <= step.count(),
            Op::Peek => self.allowed == 0 || self.allowed == step.count(),
            Op::Refund { .. } | Op::Reset => self.allowed == step.count(),
        };
        whole && self.layers.len() == request.checks().len()
    }

    /// The outcome of the next of the step's requests. `layers` is what that one is decided on, and is moved on by it.
    fn unfold(&mut self, request: &Request, now: Instant) -> Outcome {
        let charges = request.op() == Op::Take && self.done < self.allowed;
        let allowed = charges || (request.op() != Op::Take && self.allowed > 0);
        // Admissions that are still to come in this step: the version is the one after them all.
        let later = if charges { u64::from(self.allowed - self.done - 1) } else { 0 };
        self.done += 1;
        let mut layers: SmallVec<[Layer; 1]> = SmallVec::with_capacity(self.layers.len());
        let mut core = true;
        for (check, layer) in request.checks().iter().zip(&mut self.layers) {
            let mut view = layer.view;
            if charges {
                open(&mut view);
            }
            if matches!(request.op(), Op::Take | Op::Peek) {
                core &= view.admits(&check.limit, now, check.cost);
            }
            let paid = charges && check.cost > 0;
            layers.push(Layer { view, version: layer.version.saturating_sub(if paid { later } else { 0 }) });
            if paid {
                charge(&mut layer.view, &check.limit, now, check.cost);
            }
        }
        if core != allowed {
            return Outcome::Unknown(Error::divergence(Divergence { engine: allowed, core: Some(core) }));
        }
        Outcome::decided(Record { allowed, at: now, layers, basis: Basis::Store })
    }
}

impl Plan {
    /// One outcome for each request of the batch that this is the plan of, in its order, from one answer for each step. None if
    /// the answers can't be those of this plan's steps.
    #[must_use]
    pub fn outcomes(&self, batch: &Batch, now: Instant, decided: Vec<Decided>) -> Option<Vec<Outcome>> {
        let mut decided = decided;
        if decided.len() != self.steps().len() || batch.requests.len() != self.places.len() {
            return None;
        }
        for (step, decided) in self.steps().iter().zip(&decided) {
            if !decided.fits(step, batch.requests.get(step.request())?) {
                return None;
            }
        }
        let requests = batch.requests.iter().zip(&self.places);
        requests.map(|(request, step)| Some(decided.get_mut(*step)?.unfold(request, now))).collect()
    }
}

/// A log's `opens_at` is told for the requests of a step that were not charged. Those that were pass at once.
fn open(view: &mut View) {
    if let View::SlidingLog(log) = view {
        log.opens_at = 0;
    }
}

/// What is seen of a state once `cost` was charged.
fn charge(view: &mut View, limit: &Limit, now: Instant, cost: u64) {
    match view {
        View::FixedWindow(state) => state.take(limit, now, cost),
        View::SlidingLog(log) => {
            log.live += cost;
            log.newest = log.newest.max(now.micros());
        }
        View::SlidingCounter(state) => state.take(limit, now, cost),
        View::Bucket(state) => state.take(limit, now, cost),
    }
}
