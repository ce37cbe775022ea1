//! The pure core of limiter.

mod algorithm;
mod backend;
mod clock;
mod decide;
mod decision;
mod error;
mod fraction;
mod instant;
mod key;
mod limit;
#[cfg(feature = "memory")]
mod memory;
mod outcome;
mod request;
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
pub use state::{State, View};
