//! How a group commit is set up.

use std::sync::Arc;
use std::time::Duration;

use limiter_core::Backend;

use super::GroupCommit;

/// What a lane keeps to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) in_flight: usize,
    pub(super) max_batch: usize,
    pub(super) max_queue: usize,
    pub(super) deadline: Option<Duration>,
}

/// A [`GroupCommit`] that is still being set up.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `wrap` is called"]
pub struct GroupCommitBuilder {
    /// None: as is best for the engine, as of the next.
    lanes: Option<usize>,
    in_flight: Option<usize>,
    max_batch: usize,
    max_queue: usize,
    deadline: Option<Duration>,
    enabled: bool,
}

impl GroupCommitBuilder {
    /// The most lanes.
    pub const MAX_LANES: usize = 256;

    pub(super) const fn new() -> Self {
        let deadline = Some(Duration::from_secs(10));
        Self { lanes: None, in_flight: None, max_batch: 128, max_queue: 16_384, deadline, enabled: true }
    }

    /// How many lanes there are, 1 to [`MAX_LANES`](Self::MAX_LANES); by default 2 if the engine is
    /// [pipelined](limiter_core::Capabilities::pipelined), else 4. What is outside counts as the nearest.
    ///
    /// One lane makes the fullest batches. More pay where a call takes long and keys are many: from about 1000 checks at a time
    /// on Redis, from about 100 on Postgres, which locks rows and so gains nothing on few keys.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes.clamp(1, Self::MAX_LANES));
        self
    }

    /// How many calls each lane may have in flight; by default 2 if the engine is [pipelined](limiter_core::Capabilities::pipelined), else 1. 0
    /// counts as 1.
    ///
    /// With two, the store decides one call while this process is busy with the other. They are decided in whichever order they reach
    /// the store: of a key too, but none of their callers has been answered then. Where calls of one key wait for each other at the store,
    /// or lose to each other, one is best.
    pub fn in_flight(mut self, calls: usize) -> Self {
        self.in_flight = Some(calls.max(1));
        self
    }

    /// The most requests in one call, by default 128. 0 counts as 1.
    ///
    /// A request that repeats the one before it counts as an eighth, since an engine decides the two in one step: of one busy key there
    /// may be up to eight times as many.
    ///
    /// A store is held up for as long as a call takes, and everybody in it is answered when it ends.
    pub fn max_batch(mut self, requests: usize) -> Self {
        self.max_batch = requests.max(1);
        self
    }

    /// The most requests that wait in each lane, by default 16 384, at some 800 bytes each. One always may, so 0 counts as 1.
    ///
    /// A request that finds no room is not sent, and fails at once with
    /// [`ErrorKind::Overloaded`](limiter_core::ErrorKind::Overloaded). Of the places of callers that are gone, up to a sixteenth
    /// may count as taken.
    pub fn max_queue(mut self, requests: usize) -> Self {
        self.max_queue = requests.max(1);
        self
    }

    /// The longest that a caller waits for its answer, by default 10 s; None for no bound.
    ///
    /// It is there for an engine that breaks its promise to end its calls. It should be more than twice the engine's own
    /// timeout, since a request may wait for one call and be in the next, and the engine's word is the more exact. Once it is over, a request
    /// that still waits is not sent ([`ErrorKind::NotSent`](limiter_core::ErrorKind::NotSent)), and what became of one that was sent is unknown
    /// ([`ErrorKind::Unknown`](limiter_core::ErrorKind::Unknown), in flight). A call that takes that long is dropped, and its lane
    /// goes on.
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> Self {
        self.deadline = deadline.into();
        self
    }

    /// Whether it does anything. False, for a comparison: each request is a call of its own, in its caller's task.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Wraps `backend`.
    #[must_use]
    pub fn wrap(self, backend: Arc<dyn Backend>) -> GroupCommit {
        let Self { lanes, in_flight, max_batch, max_queue, deadline, enabled } = self;
        // Four calls in flight in all, either way.
        let (best_lanes, best_in_flight) = if backend.capabilities().pipelined { (2, 2) } else { (4, 1) };
        let lanes = if enabled { lanes.unwrap_or(best_lanes) } else { 0 };
        let in_flight = in_flight.unwrap_or(best_in_flight);
        GroupCommit::of(backend, lanes, Bounds { in_flight, max_batch, max_queue, deadline })
    }
}
