//! What a replay counts on its way.

use limiter::{Decisions, Instant, Request};

use super::bins::{Bins, WorstMinute};
use super::check::Check;
use super::top::Denied;
use crate::exit::Exit;

/// The counters of a run. Their memory is bounded, however long the trace is.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Lines that are not blank.
    pub(super) lines: u64,
    pub(super) unreadable: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Checks whose cost can never pass.
    pub(super) over_cost: u64,
    /// Checks that the store did not decide, and did not charge.
    pub(super) not_sent: u64,
    /// Checks that the store may have charged.
    pub(super) unknown: u64,
    /// Checks whose instant is before an earlier line's.
    pub(super) back: u64,
    /// The first and the last instant, in time.
    pub(super) span: Option<(Instant, Instant)>,
    pub(super) keys: Denied,
    pub(super) minutes: WorstMinute,
    pub(super) bins: Bins,
    /// Some of the limits that were met, in the order in which they came.
    pub(super) limits: Vec<limiter::Limit>,
}

impl Tally {
    /// How many different limits are remembered for headings.
    pub(super) const LIMITS: usize = 4;

    /// A line that could be read, in the order of the input.
    pub(super) fn read(&mut self, at: Instant) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.back += u64::from(at < last);
        self.span = Some((first.min(at), last.max(at)));
    }

    /// A check that was decided.
    pub(super) fn decided(&mut self, check: &Check, request: &Request, decisions: &Decisions) {
        if decisions.allowed {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
        self.minutes.add(check.at, decisions.allowed);
        self.bins.add(check.at, decisions.allowed);
        for (index, (asked, layer)) in request.checks().iter().zip(decisions.layers()).enumerate() {
            if !decisions.allowed && !layer.allowed {
                self.keys.add(&asked.key, asked.limit, || check.name(index));
            }
            if self.limits.len() < Self::LIMITS && !self.limits.contains(&asked.limit) {
                self.limits.push(asked.limit);
            }
        }
    }

    /// How the run ends, if nothing worse happened: what the store did not decide weighs more than a bad line.
    pub(super) fn exit(&self) -> Exit {
        if self.not_sent + self.unknown > 0 {
            Exit::Undecided
        } else if self.unreadable > 0 || self.lines == 0 {
            Exit::Unreadable
        } else {
            Exit::Done
        }
    }
}
