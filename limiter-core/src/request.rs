//! What is asked of an engine: requests of one or more checks, and batches of requests.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::instant::Instant;
use crate::key::Key;
use crate::limit::{Limit, MAX_BURST};

/// The most checks in one request. A store decides them in one step, and holds everything else up that long.
pub const MAX_CHECKS: usize = 64;

/// One key, the limit that it has to pass, and how many units are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Where the state is kept.
    pub key: Key,
    /// The limit that counts it.
    pub limit: Limit,
    /// Units asked for. 0 asks without taking.
    pub cost: u64,
}

impl Check {
    /// `cost` units of `key` under `limit`.
    #[must_use]
    pub const fn new(key: Key, limit: Limit, cost: u64) -> Self {
        Self { key, limit, cost }
    }
}

/// What a request does with its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Charges every check if all of them pass, and none otherwise.
    Take,
    /// The decision that a take would get, taking nothing.
    Peek,
    /// Gives back units that a take at this instant, by its decision's `at`, was charged.
    ///
    /// Never above full; a window or log that has since rolled on is left alone. Never repeat a refund whose
    /// outcome is unknown: done twice, it admits its cost once too often.
    Refund {
        /// When they were taken.
        taken: Instant,
    },
    /// Forgets the keys.
    Reset,
}

/// One or more checks that are decided together, all or nothing.
///
/// A request that exists is sound: its costs can pass and its keys differ, so that nothing a client sends
/// turns into an error of the store.
///
/// It is cheap to clone, and two clones are equal at a glance.
#[derive(Clone, PartialEq, Eq)]
pub struct Request(Arc<Asked>);

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    op: Op,
    checks: SmallVec<[Check; 4]>,
}

impl Request {
    /// A request of `op` on these checks.
    ///
    /// # Errors
    /// [`RequestError`] if there is no check or more than [`MAX_CHECKS`], a key is there twice, or a cost
    /// can never pass. A refund may be larger than the limit, which may have been lowered; it is still at most
    /// [`MAX_BURST`].
    pub fn new(op: Op, checks: impl IntoIterator<Item = Check>) -> Result<Self, RequestError> {
        let checks: SmallVec<[Check; 4]> = checks.into_iter().collect();
        if checks.is_empty() || checks.len() > MAX_CHECKS {
            return Err(RequestError::Count { checks: checks.len() });
        }
        for (index, check) in checks.iter().enumerate() {
            let most = if matches!(op, Op::Refund { .. }) { MAX_BURST } else { check.limit.capacity() };
            if check.cost > most {
                return Err(RequestError::CostExceedsLimit { index, cost: check.cost, limit: most });
            }
            if checks.iter().take(index).any(|earlier| earlier.key == check.key) {
                return Err(RequestError::KeyTwice { index, key: check.key.clone() });
            }
        }
        Ok(Self(Arc::new(Asked { op, checks })))
    }

    /// A [`Op::Take`] of one check.
    ///
    /// # Errors
    /// As [`Request::new`].
    pub fn take(key: Key, limit: Limit, cost: u64) -> Result<Self, RequestError> {
        Self::new(Op::Take, [Check::new(key, limit, cost)])
    }

    /// Some of the checks of a sound request, for one of the steps that it takes.
    #[cfg(feature = "script")]
    pub(crate) fn part(op: Op, checks: impl Iterator<Item = Check>) -> Self {
        Self(Arc::new(Asked { op, checks: checks.collect() }))
    }

    /// What is done.
    #[must_use]
    pub fn op(&self) -> Op {
        self.0.op
    }

    /// The checks, at least one.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.0.checks
    }
}

/// Requests that go to the store together. Each is decided by itself, in order, and sees what those before it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The requests. An engine answers one outcome for each, in this order.
    pub requests: Vec<Request>,
    /// The instant of all of them, for a replay or a test. None: the engine's clock says.
    pub at: Option<Instant>,
}

impl Batch {
    /// A batch of one request, at the engine's own time.
    #[must_use]
    pub fn of(request: Request) -> Self {
        Self { requests: vec![request], at: None }
    }
}

/// Why a request can't be asked. Never a fault of the store, and nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A cost that can never pass, whatever the wait.
    #[error("cost-exceeds-limit: cost {cost} of check {index} is over its bound of {limit}")]
    CostExceedsLimit {
        /// The check, from 0.
        index: usize,
        /// The cost asked for.
        cost: u64,
        /// The most that can pass.
        limit: u64,
    },
    /// One state key twice in one request.
    #[error("key {key} of check {index} is in the request twice")]
    KeyTwice {
        /// The second check that names it, from 0.
        index: usize,
        /// The key.
        key: Key,
    },
    /// No checks, or too many.
    #[error("a request has {checks} checks; its bounds are 1 to {MAX_CHECKS}")]
    Count {
        /// How many there were.
        checks: usize,
    },
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("op", &self.0.op).field("checks", &self.0.checks).finish()
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Take => "take",
            Self::Peek => "peek",
            Self::Refund { .. } => "refund",
            Self::Reset => "reset",
        })
    }
}
