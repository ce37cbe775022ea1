//! The script's reply as outcomes: each step is unfolded by playing its requests through the core.

use smallvec::SmallVec;

use super::codec::{Call, Step};
use super::number::Reader;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::algorithm::sliding_log::LogView;
use crate::error::Error;
use crate::instant::Instant;
use crate::limit::{Algorithm, Limit};
use crate::outcome::{Divergence, Layer, Outcome, Record};
use crate::request::{Batch, Op, Request};
use crate::state::View;

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It belongs to another call.
    Stale,
    /// It has not the form that the call asks for.
    Form,
}

/// One outcome for each request of the batch.
pub(super) fn outcomes(reply: &[u8], call: &Call, batch: &Batch, nonce: u64) -> Result<Vec<Outcome>, Fault> {
    let mut reader = Reader(reply);
    if reader.bytes().map(u64::from_le_bytes) != Some(nonce) {
        return Err(Fault::Stale);
    }
    let now = reader.whole().and_then(|micros| Instant::from_micros(micros).ok()).ok_or(Fault::Form)?;
    if batch.at.is_some_and(|at| at != now) {
        return Err(Fault::Form);
    }
    let steps = call.steps.iter().map(|step| read(&mut reader, step, batch));
    let mut folds: Vec<Fold> = steps.collect::<Option<_>>().ok_or(Fault::Form)?;
    if !reader.is_empty() {
        return Err(Fault::Form);
    }
    let requests = batch.requests.iter().zip(&call.places);
    requests.map(|(request, step)| Ok(folds.get_mut(*step).ok_or(Fault::Form)?.unfold(request, now))).collect()
}

/// A decided step, some of whose requests have their outcome.
struct Fold {
    /// How many of the requests are allowed: the first.
    allowed: u32,
    /// How many have their outcome.
    done: u32,
    layers: SmallVec<[Layer; 4]>,
}

/// A step's part of the reply. None if it has not the form.
fn read(reader: &mut Reader<'_>, step: &Step, batch: &Batch) -> Option<Fold> {
    let request = batch.requests.get(step.request)?;
    let allowed = reader.count()?;
    let whole = match request.op() {
        Op::Take => allowed <= step.count,
        Op::Peek => allowed == 0 || allowed == step.count,
        Op::Refund { .. } | Op::Reset => allowed == step.count,
    };
    let layers = request.checks().iter().map(|check| {
        let view = view(reader, &check.limit)?;
        Some(Layer { view, version: reader.whole()? })
    });
    let layers = layers.collect::<Option<_>>()?;
    whole.then_some(Fold { allowed, done: 0, layers })
}

fn view(reader: &mut Reader<'_>, limit: &Limit) -> Option<View> {
    Some(match limit.algorithm() {
        Algorithm::FixedWindow => {
            let window = FixedWindow { start: reader.whole()?, count: reader.whole()? };
            reader.whole()?;
            View::FixedWindow(window)
        }
        Algorithm::SlidingLog => {
            let (live, newest) = (reader.whole()?, reader.whole()?);
            // The script tells the entry that has to expire, or −1.
            let opens_at = match u64::try_from(reader.signed()?) {
                Ok(at) => at + limit.period_micros(),
                Err(_) => 0,
            };
            View::SlidingLog(LogView { live, newest, opens_at })
        }
        Algorithm::SlidingCounter => View::SlidingCounter(SlidingCounter {
            start: reader.whole()?,
            current: reader.whole()?,
            previous: reader.whole()?,
        }),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let (seen, ahead, rest) = (reader.whole()?, reader.signed()?, reader.whole()?);
            View::Bucket(Bucket { tat: seen.checked_add_signed(ahead)?, rest, seen })
        }
    })
}

impl Fold {
    /// The outcome of the next of the step's requests. `layers` is what that one is decided on, and is moved on by it.
    fn unfold(&mut self, request: &Request, now: Instant) -> Outcome {
        let charges = request.op() == Op::Take && self.done < self.allowed;
        let allowed = charges || (request.op() != Op::Take && self.allowed > 0);
        // Admissions that are still to come in this step: the version is the one after them all.
        let later = if charges { u64::from(self.allowed - self.done - 1) } else { 0 };
        self.done += 1;
        let mut layers: SmallVec<[Layer; 4]> = SmallVec::with_capacity(self.layers.len());
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
        Outcome::decided(Record { allowed, at: now, layers })
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
