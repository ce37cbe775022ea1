//! One load, one decide, one write: the only place where a request meets its states.
//!
//! The memory engine calls [`decide`] under its locks, an engine with row locks or compare-and-put between
//! its load and its write, a checker on a recorded history. So there is one definition of all-or-nothing,
//! of what a denial changes (nothing) and of how versions count.

use smallvec::SmallVec;

use crate::instant::Instant;
use crate::limit::Limit;
use crate::outcome::{Layer, Record};
use crate::request::{Op, Request};
use crate::source::Basis;
use crate::state::{State, View};

/// What is kept for one key: its state, and the number of that state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// None for a key that was never used, was reset or was collected.
    pub state: Option<State>,
    /// The state's version: it grows by 1 with each write. A fresh key's starts from its instant, so that
    /// collecting a key never looks like losing writes. Without a state it is a floor for the next.
    pub version: u64,
}

impl Cell {
    #[inline]
    fn view(&self, limit: &Limit, now: Instant, cost: u64) -> View {
        match &self.state {
            Some(state) => state.view(limit, now, cost),
            None => View::fresh(limit.algorithm()),
        }
    }

    #[inline]
    fn take(&mut self, limit: &Limit, now: Instant, cost: u64) {
        self.version = if self.state.is_some() { self.version + 1 } else { now.micros().max(self.version + 1) };
        self.state.get_or_insert_with(|| State::fresh(limit.algorithm())).take(limit, now, cost);
    }

    fn refund(&mut self, limit: &Limit, now: Instant, cost: u64, taken: Instant) {
        if let Some(state) = &mut self.state
            && cost > 0
        {
            state.refund(limit, now, cost, taken);
            self.version += 1;
        }
    }
}

/// The cells of a request's checks, by the check's index. The keys of one request differ, hence so do its cells.
pub trait Cells {
    /// The cell of check `index`, which is below the number of checks.
    fn cell(&mut self, index: usize) -> &mut Cell;
}

impl Cells for Cell {
    /// One check has one cell.
    fn cell(&mut self, _index: usize) -> &mut Cell {
        self
    }
}

/// Decides one request at `now` and changes the cells accordingly.
///
/// A cost of 0, a peek and a denial change no cell. A refund or a reset is always allowed; its record shows
/// what is left.
pub fn decide(request: &Request, now: Instant, cells: &mut impl Cells) -> Record {
    decide_terms(request.op(), request.checks().iter().map(|check| (&check.limit, check.cost)), now, cells)
}

/// A take of one check, as [`decide`] decides it, for a path where even its list of layers is too much.
#[cfg(feature = "memory")]
#[inline]
pub(crate) fn take_one(limit: &Limit, cost: u64, now: Instant, cell: &mut Cell) -> (bool, View) {
    let Some(state) = &mut cell.state else {
        let view = View::fresh(limit.algorithm());
        let allowed = view.admits(limit, now, cost);
        if allowed && cost > 0 {
            cell.take(limit, now, cost);
        }
        return (allowed, view);
    };
    let (allowed, view) = state.take_if(limit, now, cost);
    cell.version += u64::from(allowed && cost > 0);
    (allowed, view)
}

/// [`decide`] for checks whose keys the caller has already turned into cells.
pub(crate) fn decide_terms<'a>(
    op: Op,
    terms: impl Iterator<Item = (&'a Limit, u64)> + Clone,
    now: Instant,
    cells: &mut impl Cells,
) -> Record {
    let mut allowed = true;
    let mut layers: SmallVec<[Layer; 1]> = SmallVec::with_capacity(terms.size_hint().0);
    for (index, (limit, cost)) in terms.clone().enumerate() {
        let cell = cells.cell(index);
        match op {
            Op::Take | Op::Peek => {}
            Op::Refund { taken } => cell.refund(limit, now, cost, taken),
            Op::Reset => cell.state = None,
        }
        let view = cell.view(limit, now, cost);
        if matches!(op, Op::Take | Op::Peek) {
            allowed &= view.admits(limit, now, cost);
        }
        layers.push(Layer { view, version: cell.version });
    }
    if allowed && op == Op::Take {
        for ((index, (limit, cost)), layer) in terms.enumerate().zip(&mut layers) {
            if cost > 0 {
                let cell = cells.cell(index);
                cell.take(limit, now, cost);
                layer.version = cell.version;
            }
        }
    }
    Record { allowed, at: now, layers, basis: Basis::Store }
}
