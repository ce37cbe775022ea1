//! Recorded histories, and the proof that one is exact.
//!
//! A history is what every client saw of every call: when it began and ended on the machine's clock, what was asked, and the
//! engine's record with the store's instant and each key's version. [`replay`](History::replay) puts the calls of each key in
//! the order of their versions and lets the core decide them again: every verdict, remaining and wait has to be the same.
//! [`windows`](History::windows) trusts no version: it counts what passed in real time. [`ledger`](History::ledger) holds what
//! was admitted against what the store says was consumed.
//!
//! ```
//! use limiter_conformance::history::{Answer, Asked, Call, History};
//! use limiter_conformance::Numbering;
//! use limiter_core::{Key, Memory, Op, Outcome, Request};
//!
//! let (memory, key) = (Memory::new(), Key::new("t", "r", ["k"]));
//! let limit = "2/1h sliding-log".parse()?;
//! let mut history = History::new(vec![key.clone()], vec![limit]);
//! for id in 0..5 {
//!     let outcome = memory.decide(&Request::take(key.clone(), limit, 1)?, None);
//!     let checks = vec![Asked { key: 0, limit: 0, cost: 1 }];
//!     let (op, answer) = (Op::Take, Answer::from(&outcome));
//!     history.calls.push(Call { process: 0, task: 0, id, op, checks, invoked: id, returned: id, answer });
//! }
//! let replay = history.replay(Numbering::Dense);
//! assert!(replay.is_exact(), "{replay}");
//! assert_eq!(replay.admitted, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use limiter_core::{Instant, Key, Layer, Limit, Op, Outcome, Record, Source};

mod ledger;
mod life;
pub(crate) mod line;
mod replay;
mod steady;
mod window;

pub use ledger::Ledger;
pub(crate) use ledger::admitted_between;
pub use replay::{Lost, Replay};
pub(crate) use steady::Steady;
pub use window::Window;

/// Calls of any number of clients, in any order, on these keys and limits.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The keys that calls name by index.
    pub keys: Vec<Key>,
    /// The limits that calls name by index.
    pub limits: Vec<Limit>,
    /// The calls.
    pub calls: Vec<Call>,
}

/// One call, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which process made it.
    pub process: u32,
    /// Which of its tasks.
    pub task: u32,
    /// Its number, unique in its task.
    pub id: u64,
    /// What was asked.
    pub op: Op,
    /// Of which keys.
    pub checks: Vec<Asked>,
    /// When it began, in µs on the machine's monotonic clock.
    pub invoked: u64,
    /// When it ended, on the same clock.
    pub returned: u64,
    /// What came back.
    pub answer: Answer,
}

/// One check of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The key, by its index in the history.
    pub key: usize,
    /// The limit, by its index.
    pub limit: usize,
    /// Units asked for.
    pub cost: u64,
}

/// What came back from a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The engine decided.
    Decided {
        /// The verdict.
        allowed: bool,
        /// The store's instant.
        at: Instant,
        /// What each check was decided on.
        layers: Vec<Layer>,
    },
    /// A layer refused from what it remembered of an earlier refusal, and the store was not asked. It changed nothing and tells of no
    /// version, so there is nothing to replay. That the limit is reached all the same is what cases of steady demand show.
    Remembered {
        /// The layer's instant.
        at: Instant,
    },
    /// It was certainly not applied.
    NotSent,
    /// It may have been applied.
    Unknown,
}

impl From<&Outcome> for Answer {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Denied(record) if record.source() == Source::Cache => Self::Remembered { at: record.at },
            Outcome::Allowed(record) | Outcome::Denied(record) => {
                let Record { allowed, at, .. } = record;
                Self::Decided { allowed: *allowed, at: *at, layers: record.layers().to_vec() }
            }
            Outcome::NotSent(_) => Self::NotSent,
            Outcome::Unknown(_) => Self::Unknown,
        }
    }
}

impl History {
    /// A history without calls.
    #[must_use]
    pub const fn new(keys: Vec<Key>, limits: Vec<Limit>) -> Self {
        Self { keys, limits, calls: Vec::new() }
    }
}
