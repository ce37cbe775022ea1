//! What an engine reports, and the audit that turns it into decisions.

use std::fmt;

use smallvec::SmallVec;

use crate::algorithm::fixed_window::FixedWindow;
use crate::decision::{Decision, Decisions};
use crate::error::Error;
use crate::instant::Instant;
use crate::limit::Limit;
use crate::request::{MAX_CHECKS, Op, Request};
use crate::source::{Basis, Source};
use crate::state::View;

/// What became of one request.
#[derive(Clone, Debug)]
#[must_use = "an outcome may be a denial or a failure"]
pub enum Outcome {
    /// Every limit passed and was charged; or the request was a peek that would pass, a refund or a reset.
    Allowed(Record),
    /// A limit refused, and nothing was charged.
    Denied(Record),
    /// The store did not apply it, for certain. Safe to repeat.
    NotSent(Error),
    /// The store may have applied it. Repeating a take may charge twice; a refund must never be repeated.
    Unknown(Error),
}

impl Outcome {
    /// The outcome of a decided request.
    pub fn decided(record: Record) -> Self {
        if record.allowed { Self::Allowed(record) } else { Self::Denied(record) }
    }

    /// The record, if the store decided.
    ///
    /// # Errors
    /// The failure, if it did not or if that is not known.
    pub fn record(&self) -> Result<&Record, &Error> {
        match self {
            Self::Allowed(record) | Self::Denied(record) => Ok(record),
            Self::NotSent(error) | Self::Unknown(error) => Err(error),
        }
    }

    /// What the caller is told; `request` is the one that was asked.
    ///
    /// # Errors
    /// The engine's failure, or an error of kind [`ErrorKind::Divergence`](crate::ErrorKind::Divergence) if its
    /// verdict is not the core's.
    pub fn decisions(&self, request: &Request) -> Result<Decisions, Error> {
        let record = self.record().map_err(Clone::clone)?;
        record.decisions(request).map_err(Error::divergence)
    }
}

/// A decided request: the verdict, and what it was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The verdict on the whole request.
    pub allowed: bool,
    /// The instant at which it was decided.
    pub at: Instant,
    pub(crate) layers: SmallVec<[Layer; 1]>,
    pub(crate) basis: Basis,
}

/// What one check was decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The state before a take or a peek, and after a refund or a reset.
    pub view: View,
    /// The version of the state after the request: a new one where it wrote, else the one that it saw. 0 if there
    /// never was a state.
    pub version: u64,
}

/// In place of what was not asked. It is never read.
const NOTHING: Layer = Layer { view: View::FixedWindow(FixedWindow { start: 0, count: 0 }), version: 0 };

impl Record {
    /// A request's verdict and instant, and a layer for each of its checks, in the request's order.
    #[must_use]
    pub fn new(allowed: bool, at: Instant, layers: impl IntoIterator<Item = Layer>) -> Self {
        Self { allowed, at, layers: layers.into_iter().collect(), basis: Basis::Store }
    }

    /// A refusal from memory, at `at`: what the store told of each check earlier and that still refuses, or None for a check that is
    /// not asked because another refuses.
    #[must_use]
    pub fn from_cache(at: Instant, layers: impl IntoIterator<Item = Option<Layer>>) -> Self {
        let mut unasked = 0;
        let layers = layers.into_iter().take(MAX_CHECKS).enumerate().map(|(check, layer)| {
            layer.unwrap_or_else(|| {
                unasked |= 1 << check;
                NOTHING
            })
        });
        let layers = layers.collect();
        Self { allowed: false, at, layers, basis: Basis::Cache { unasked } }
    }

    /// A verdict in place of the store's: for each check what counted it and the share of the limit that it was counted by, or None if
    /// nothing did and it passes.
    #[must_use]
    pub fn from_fallback(allowed: bool, at: Instant, layers: impl IntoIterator<Item = Option<(Layer, Limit)>>) -> Self {
        let (layers, shares): (SmallVec<[Layer; 1]>, Vec<Option<Limit>>) = layers
            .into_iter()
            .map(|counted| counted.map_or((NOTHING, None), |(layer, share)| (layer, Some(share))))
            .unzip();
        Self { allowed, at, layers, basis: Basis::Fallback(shares.into()) }
    }

    /// Whose word it is.
    #[must_use]
    pub fn source(&self) -> Source {
        self.basis.source()
    }

    /// What each check was decided on, in the request's order.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Derives what the caller is told, and checks the verdict on the way: the engine's has to be the core's.
    ///
    /// # Errors
    /// [`Divergence`] if it is not, or if the record does not fit the request.
    pub fn decisions(&self, request: &Request) -> Result<Decisions, Divergence> {
        let checks = request.checks();
        if checks.len() != self.layers.len() {
            return Err(Divergence::layers(self.allowed));
        }
        // A refund and a reset are no questions: what is left is told as for a cost of 0, which always passes.
        let cost = |asked: u64| if matches!(request.op(), Op::Take | Op::Peek) { asked } else { 0 };
        let charged = self.allowed && request.op() == Op::Take;
        let layers: SmallVec<[Decision; 1]> = checks
            .iter()
            .zip(&self.layers)
            .enumerate()
            .map(|(index, (check, layer))| {
                let (source, share) = self.basis.of(index);
                if !source.has_numbers() {
                    return Decision::uncounted(check.limit.capacity(), self.at, source);
                }
                let (limit, cost) = (share.unwrap_or(&check.limit), cost(check.cost));
                Decision { source, ..layer.view.decision(limit, self.at, cost, charged && cost > 0) }
            })
            .collect();
        let core = layers.iter().all(|layer| layer.allowed);
        if core != self.allowed {
            return Err(Divergence { engine: self.allowed, core: Some(core) });
        }
        Ok(Decisions::of(core, self.at, self.source(), layers))
    }
}

/// The answer to one check on the synchronous path: the verdict, and all that a [`Decision`] is derived from if it is asked for.
///
/// It borrows the limit: a copy of it would be most of what a check has to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whether it may go on is in `allowed()`"]
pub struct Verdict<'l> {
    view: View,
    at: Instant,
    limit: &'l Limit,
    cost: u64,
    allowed: bool,
}

impl Verdict<'_> {
    #[cfg(feature = "memory")]
    pub(crate) const fn new(allowed: bool, at: Instant, limit: &Limit, cost: u64, view: View) -> Verdict<'_> {
        Verdict { view, at, limit, cost, allowed }
    }

    /// Whether it may go on.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// The whole decision, with what remains and the waits.
    #[inline]
    pub fn decision(&self) -> Decision {
        self.view.decision(self.limit, self.at, self.cost, self.allowed && self.cost > 0)
    }
}

/// An engine and the core disagree on a verdict: a fault in one of them, never an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Whether the engine allowed the request.
    pub engine: bool,
    /// Whether the core would have. None if the record has not one layer for each check.
    pub core: Option<bool>,
}

impl Divergence {
    /// A record that has not one layer for each check.
    pub(crate) const fn layers(engine: bool) -> Self {
        Self { engine, core: None }
    }
}

impl std::error::Error for Divergence {}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = |allowed: bool| if allowed { "allowed" } else { "denied" };
        match self.core {
            Some(core) => write!(f, "the engine {} what the core {}", verdict(self.engine), verdict(core)),
            None => f.write_str("the engine's record has not one layer for each check"),
        }
    }
}
