//! Whether numbers that come from outside can be a state at all.
//!
//! The machines add and subtract without looking, within the bounds that [`Limit`](crate::Limit) and [`Instant`] enforce. What
//! a store hands back was written by this code, or it is corrupt: here the two are told apart, once, before any arithmetic. The
//! bounds are those of the types and not of one limit, since a limit may change while its keys are live. A state within them
//! survives every operation, and what comes out is within them again (`tests/stored.rs`).

use super::{State, View};
use crate::instant::Instant;
use crate::limit::{MAX_AMOUNT, MAX_HORIZON, MAX_LOG, MAX_PERIOD};

/// A number that no state can have, or bytes that are no state: what was read was not written by an engine.
///
/// Its text names the field and its bound, and no value: it is safe to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsound {
    /// A number is over its bound.
    #[error("a stored state's {field} is over its bound of {bound}")]
    OverBound {
        /// The machine and the field.
        field: &'static str,
        /// The largest value that it can have.
        bound: u64,
    },
    /// A log whose entries are out of order, or have no units.
    #[error("a stored sliding-log has entries that are out of order or empty")]
    LogOrder,
    /// Bytes that are cut short, go on past the end, or are not of this form at all.
    #[error("a stored state is not of the form that this version reads")]
    Form,
}

/// The largest instant, in µs.
const LAST: u64 = Instant::MAX.micros();
/// The longest horizon, in µs.
const HORIZON: u64 = 1 << 52;
/// The longest period, in µs.
const PERIOD: u64 = 366 * 24 * 60 * 60 * 1_000_000;

const _: () = assert!(MAX_HORIZON.as_micros() == 1 << 52 && MAX_PERIOD.as_micros() == 31_622_400_000_000);

fn at_most(field: &'static str, value: u64, bound: u64) -> Result<(), Unsound> {
    if value > bound { Err(Unsound::OverBound { field, bound }) } else { Ok(()) }
}

impl State {
    /// Whether the numbers can be a state: to be asked of each state that was read from a store, before it is decided on.
    ///
    /// A sound state stays sound under each operation at each instant and limit, and none of them overflows.
    ///
    /// ```
    /// use limiter_core::{FixedWindow, State};
    ///
    /// assert!(State::FixedWindow(FixedWindow { start: 60_000_000, count: 3 }).check().is_ok());
    /// assert!(State::FixedWindow(FixedWindow { start: u64::MAX, count: 3 }).check().is_err());
    /// ```
    ///
    /// # Errors
    /// [`Unsound`], with the first field that is out of its bound.
    pub fn check(&self) -> Result<(), Unsound> {
        match self {
            Self::FixedWindow(state) => View::FixedWindow(*state).check(),
            Self::SlidingCounter(state) => View::SlidingCounter(*state).check(),
            Self::Bucket(state) => View::Bucket(*state).check(),
            Self::SlidingLog(log) => {
                let (mut newest, mut sum) = (None, 0_u64);
                for (at, units) in log.entries() {
                    if newest.is_some_and(|newest| at <= newest) || units == 0 {
                        return Err(Unsound::LogOrder);
                    }
                    newest = Some(at);
                    sum = sum.saturating_add(units);
                }
                at_most("sliding-log newest instant", newest.unwrap_or_default(), LAST)?;
                at_most("sliding-log sum of units", sum, MAX_LOG)
            }
        }
    }
}

impl View {
    /// Whether the numbers can be what a state shows: to be asked of each view that was read from a store, before anything
    /// is derived from it. No operation on a sound view overflows, at whatever instant, limit and cost.
    ///
    /// # Errors
    /// [`Unsound`], with the first field that is out of its bound.
    pub fn check(&self) -> Result<(), Unsound> {
        match *self {
            Self::FixedWindow(state) => {
                at_most("fixed-window start", state.start, LAST)?;
                at_most("fixed-window count", state.count, MAX_AMOUNT)
            }
            Self::SlidingLog(view) => {
                at_most("sliding-log live units", view.live, MAX_LOG)?;
                at_most("sliding-log newest instant", view.newest, LAST)?;
                at_most("sliding-log opening instant", view.opens_at, LAST + PERIOD)
            }
            Self::SlidingCounter(state) => {
                at_most("sliding-counter start", state.start, LAST)?;
                at_most("sliding-counter current count", state.current, MAX_AMOUNT)?;
                at_most("sliding-counter previous count", state.previous, MAX_AMOUNT)
            }
            Self::Bucket(state) => {
                at_most("bucket last instant", state.seen, LAST)?;
                // The debt was within some horizon when it was written.
                at_most("bucket arrival time", state.tat, state.seen + HORIZON)?;
                at_most("bucket rest", state.rest, MAX_AMOUNT - 1)
            }
        }
    }
}
