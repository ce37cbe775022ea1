//! One load, one decide, one write: the only place where a request meets its states.
//!
//! The memory engine calls [`decide`] under its locks, an engine with row locks or compare-and-put between
//! its load and its write, a checker on a recorded history. So there is one definition of all-or-nothing,
//! of what a denial changes (nothing) and of how versions count.

use smallvec::SmallVec;

use crate::instant::Instant;
use crate::outcome::{Layer, Record};
use crate::request::{Check, Op, Request};
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
    fn view(&self, check: &Check, now: Instant) -> View {
        match &self.state {
            Some(state) => state.view(&check.limit, now, check.cost),
            None => View::fresh(check.limit.algorithm()),
        }
    }

    fn take(&mut self, check: &Check, now: Instant) {
        self.version = if self.state.is_some() { self.version + 1 } else { now.micros().max(self.version + 1) };
        self.state.get_or_insert_with(|| State::fresh(check.limit.algorithm())).take(&check.limit, now, check.cost);
    }

    fn refund(&mut self, check: &Check, now: Instant, taken: Instant) {
        if let Some(state) = &mut self.state {
            state.refund(&check.limit, now, check.cost, taken);
            self.version += 1;
        }
    }
}

/// The cells of a request's checks, by the check's index. The keys of one request differ, hence so do its cells.
pub trait Cells {
    /// The cell of check `index`, which is below the number of checks.
    fn cell(&mut self, index: usize) -> &mut Cell;
}

/// Decides one request at `now` and changes the cells accordingly.
///
/// A cost of 0, a peek and a denial change no cell. A refund or a reset is always allowed; its record shows
/// what is left.
pub fn decide(request: &Request, now: Instant, cells: &mut impl Cells) -> Record {
    let mut allowed = true;
    let mut layers: SmallVec<[Layer; 4]> = SmallVec::new();
    for (index, check) in request.checks().iter().enumerate() {
        let cell = cells.cell(index);
        match request.op() {
            Op::Take | Op::Peek => {}
            Op::Refund { taken } => cell.refund(check, now, taken),
            Op::Reset => cell.state = None,
        }
        let view = cell.view(check, now);
        if matches!(request.op(), Op::Take | Op::Peek) {
            allowed &= view.admits(&check.limit, now, check.cost);
        }
        layers.push(Layer { view, version: cell.version });
    }
    if allowed && request.op() == Op::Take {
        for ((index, check), layer) in request.checks().iter().enumerate().zip(&mut layers) {
            if check.cost > 0 {
                let cell = cells.cell(index);
                cell.take(check, now);
                layer.version = cell.version;
            }
        }
    }
    Record { allowed, at: now, layers }
}
