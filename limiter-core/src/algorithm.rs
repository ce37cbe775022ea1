//! The five state machines: pure functions of a state, an instant and a cost.
//!
//! ```text
//!            state, now, cost
//!                  │
//!        view ─────┴──► what the decision reads        (all of the state, but for the log)
//!                  │
//!        admits ───┴──► may the cost pass?             (compares fractions, rounds nothing)
//!                  │ yes, and the other layers too
//!        take ─────┴──► the new state                  (a denial never gets here: it changes nothing)
//!
//!        decision(view, now, cost, charged) ──► remaining, waits      (rounded once, at the very end)
//! ```
//!
//! Each machine is one file with the same items in the same order: its state, `admits`, `take`,
//! `refund`, `decision`. None reads a clock, none does I/O, none uses floating point.
//!
//! All arithmetic is in whole numbers within the bounds that [`Limit`] and
//! [`Instant`] enforce: instants below 2^53, periods and horizons at most 2^52, amounts at
//! most 10^12. Sums of a few of them stay far below 2^64; products go through `fraction`.

pub(crate) mod bucket;
pub(crate) mod fixed_window;
pub(crate) mod sliding_counter;
pub(crate) mod sliding_log;

use crate::decision::Decision;
use crate::instant::Instant;
use crate::limit::Limit;

/// The start of the window of the epoch's grid that `at` lies in.
fn window_start(limit: &Limit, at: u64) -> u64 {
    at - at % limit.period_micros()
}

/// What a machine has to say about one cost: the fields that differ between algorithms, in µs.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    allowed: bool,
    remaining: u64,
    /// When the cost passes if nothing else comes; read only if it is refused.
    retry_at: u64,
    /// When the key is as good as never used.
    reset_at: u64,
    delay: u64,
}

impl Answer {
    #[inline]
    fn decision(self, limit: &Limit, now: Instant) -> Decision {
        let wait = |until: u64| until.saturating_sub(now.micros());
        Decision::from_micros(
            self.allowed,
            limit.capacity(),
            self.remaining,
            (!self.allowed).then(|| wait(self.retry_at)),
            wait(self.reset_at),
            self.delay,
            now,
        )
    }
}
