//! The core of limiter: exact rate limiting as pure functions, and an engine that keeps its states in memory.
//!
//! A limit is a promise about *time*, and most limiters break it by a little: they round, they count a denial, they read the
//! clock too early, or they keep half of a state in an expiry. Here a limit is a **state machine without a clock and without
//! I/O**: state, instant and cost go in, a verdict and a new state come out, in whole numbers. 7 per 13 s is 7/13 per second for
//! ever. Whatever keeps the state (this process, Redis, a database) makes the step atomic and adds nothing to it.
//!
//! ```
//! use std::time::Duration;
//! use limiter_core::{Cell, Instant, Key, Limit, Request, decide};
//!
//! let limit = Limit::sliding_log(2, Duration::from_secs(60)).build()?;
//! let request = Request::take(Key::new("tenant-7", "api", ["user-42"]), limit, 1)?;
//! let mut stored = Cell::default(); // a key that was never used
//!
//! let at = |second: u64| Instant::from_micros(second * 1_000_000);
//! for second in [0, 10] {
//!     assert!(decide(&request, at(second)?, &mut stored).allowed);
//! }
//! let denied = decide(&request, at(20)?, &mut stored).decisions(&request)?;
//! assert_eq!(denied.retry_after, Some(Duration::from_secs(40)), "the oldest of the two leaves at 60");
//! assert!(decide(&request, at(60)?, &mut stored).allowed, "and not a microsecond earlier");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The map
//!
//! ```text
//!   Limit ─┐
//!   Key  ──┼─► Check ─► Request ─► Batch ─► Backend::submit ─► Outcome ─► Decisions
//!   cost ──┘    one limit  all or     sent          │            allowed    what the
//!                         nothing   together        │            denied     caller is
//!                                                   ▼            not sent   told
//!                             load, decide, write: the engine's  unknown
//! ```
//!
//! | to | see |
//! | --- | --- |
//! | write down a limit | [`Limit`], its text form, and the five [`Algorithm`]s |
//! | name what is limited | [`Key`]: different parts never share a key |
//! | limit within this process | [`Memory`], whose `take` needs neither a runtime nor the heap |
//! | ask several limits at once | [`Request`]: every layer is charged, or none |
//! | add a store | [`Backend`], [`decide()`] and [`Cells`]: one load, one decide, one write |
//! | keep a state as bytes | [`State::write_bytes`], [`State::from_bytes`] |
//! | check numbers that a store hands back | [`State::check`], [`View::check`] |
//! | check what a store decided | [`Record::decisions`], which derives the answer and compares the verdict |
//! | test or replay | [`Batch::at`] gives the instant; [`ManualClock`] stands still |
//!
//! # What holds
//!
//! - A denial, a peek and a cost of 0 change nothing. A cost that could never pass is an error, and changes nothing either.
//! - At `at + retry_after` the same cost passes, and a microsecond before it does not, if nothing else comes.
//! - `remaining` is the largest cost that would pass; at `reset_after` the key is as good as never used.
//! - A clock that goes back never lets more through. A limit that changes under a live key never locks it out for longer than the new
//!   limit takes to refill.
//!
//! The laws of `tests/laws` say this for random limits and traces, against a second formulation in big rationals.
//!
//! # What it does not do
//!
//! It waits for nobody: sleeping out a `delay` or a `retry_after`, deadlines, retries, what happens when a store is down, and
//! HTTP are the business of the `limiter` crate. It knows no network store; those are crates of their own. [`Backend`] is
//! asynchronous, but the core brings no runtime. And [`Memory`] counts for **one process**: n processes admit n times the limit.
//!
//! # Features
//!
//! `memory` (on by default): the in-memory engine and its clock. `serde`: a [`Limit`] as its text. `fold`: what an engine needs whose
//! store runs the step itself. `script`: the same for Redis, with the script.

mod algorithm;
mod backend;
mod clock;
mod decide;
mod decision;
mod error;
#[cfg(feature = "fold")]
pub mod fold;
mod fraction;
mod instant;
mod key;
mod limit;
#[cfg(feature = "memory")]
mod memory;
mod outcome;
mod request;
#[cfg(feature = "script")]
pub mod script;
mod source;
mod state;

pub use algorithm::bucket::Bucket;
pub use algorithm::fixed_window::FixedWindow;
pub use algorithm::sliding_counter::SlidingCounter;
pub use algorithm::sliding_log::{LogView, SlidingLog};
pub use backend::{Atomicity, Backend, BackendExt, Capabilities, ClockSource, Scope};
#[cfg(feature = "memory")]
pub use clock::CounterClock;
pub use clock::{Clock, ManualClock, SystemClock};
pub use decide::{Cell, Cells, decide};
pub use decision::{Decision, Decisions};
pub use error::{CheckError, Error, ErrorKind};
pub use instant::{Instant, InstantError};
pub use key::{Key, MAX_PART, MAX_PARTS};
pub use limit::{
    Algorithm, Limit, LimitBuilder, LimitError, MAX_AMOUNT, MAX_BURST, MAX_HORIZON, MAX_LOG, MAX_PERIOD, MIN_PERIOD,
};
#[cfg(feature = "memory")]
pub use memory::{Memory, MemoryBuilder};
pub use outcome::{Divergence, Layer, Outcome, Record, Verdict};
pub use request::{Batch, Check, MAX_CHECKS, Op, Request, RequestError};
pub use source::Source;
pub use state::{State, Unsound, View};
