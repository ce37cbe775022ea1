//! Many checks in one call: what arrives while calls are in flight goes together in the next.

mod arrange;
mod builder;
mod call;
mod lane;
mod queue;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use async_trait::async_trait;
use foldhash::quality::RandomState;
use limiter_core::{Backend, Batch, Capabilities, Outcome, Request};

use self::builder::Bounds;
pub use self::builder::GroupCommitBuilder;
use self::lane::Lane;

/// A layer that sends requests to the store in groups.
///
/// While calls are in flight, arrivals queue; when one ends, all of them go in the next. There is no timer and nothing to tune:
/// alone, a check waits for nobody, and the busier the store, the larger the groups and the cheaper each check. The engine
/// decides a group exactly as it would one by one, in order.
///
/// # Lanes
/// Requests are spread over several lanes. A request of one check goes by its key, so that **a key that is always asked alone rides one
/// lane**. A request of several checks goes by the *scope* of the first: those of one tenant meet in one lane, which they would at the
/// store too. A lane has [one call in flight](GroupCommitBuilder::in_flight) at most, so that the process never races itself for a key, or
/// two where the store takes calls one behind the other and nothing is lost by that. Exactness is the engine's and never depends on either.
///
/// Inside a call, equal requests are put side by side, so that an engine can fold them into one step. Requests that differ and share
/// a key keep the order in which they came, within a call.
///
/// A [`Batch`] that is submitted as such stays together, and goes by its first request; more than a call holds go one call after the
/// other. **A batch with a given instant is passed on as it is**, in its caller's task: replays keep their order.
///
/// # A caller that is dropped
/// The call runs in a task of its own, so a caller that goes leaves nothing half-done and strands nobody. If its request was still queued, it
/// is not sent. If it was in a call, it is applied, and nobody hears of it.
///
/// # Failures
/// A failure of the call reaches each request in it as the engine told it. Besides there are
/// - [`ErrorKind::Overloaded`](limiter_core::ErrorKind::Overloaded), at once, if the lane's queue is full: nothing was applied;
/// - what the [deadline](GroupCommitBuilder::deadline) tells, if the engine does not keep its own;
/// - [`Outcome::Unknown`] for all of a call in which the engine panicked or did not give one outcome for each request. The lane
///   goes on with the next;
/// - [`ErrorKind::NotSent`](limiter_core::ErrorKind::NotSent) outside a Tokio runtime, and, if there is a deadline, in one without a timer.
///
/// # What it prints
/// `GroupCommit(4 lanes, 128 max, memory)`, or, with `{:?}`, what it wraps in full.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use limiter::layer::GroupCommit;
/// use limiter::{Memory, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = Arc::new(Memory::new());
/// let grouped = GroupCommit::builder().lanes(1).deadline(Duration::from_secs(2)).wrap(store);
/// assert_eq!(grouped.to_string(), "GroupCommit(1 lane, 128 max, memory)");
///
/// let limiter = RateLimiter::new(Arc::new(grouped), "login", "5/1m sliding-log".parse()?);
/// assert_eq!(limiter.check("user-42").await?.remaining, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GroupCommit {
    backend: Arc<dyn Backend>,
    /// None: switched off.
    lanes: Box<[Arc<Lane>]>,
    bounds: Bounds,
    hasher: RandomState,
}

impl GroupCommit {
    /// `backend`, asked in groups, with the defaults of [`GroupCommitBuilder`].
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::builder().wrap(backend)
    }

    /// A group commit with lanes and bounds of one's own.
    pub const fn builder() -> GroupCommitBuilder {
        GroupCommitBuilder::new()
    }

    fn of(backend: Arc<dyn Backend>, lanes: usize, bounds: Bounds) -> Self {
        let lanes = (0..lanes).map(|_| Arc::new(Lane::new(Arc::clone(&backend), bounds))).collect();
        Self { backend, lanes, bounds, hasher: RandomState::default() }
    }

    /// How many requests wait for a call now, over all lanes, at about one instant.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queued()).sum()
    }

    /// The lane of `request`. None if there are none.
    fn lane(&self, request: &Request) -> Option<&Arc<Lane>> {
        let key = request.checks().first()?.key.as_str();
        let rides_by = if request.checks().len() == 1 { key } else { scope(key) };
        let hash = usize::try_from(self.hasher.hash_one(rides_by) >> 32).unwrap_or_default();
        self.lanes.get(hash.checked_rem(self.lanes.len())?)
    }
}

/// What is between a key's braces, with all that is before it.
fn scope(key: &str) -> &str {
    key.split_once('}').map_or(key, |(scope, _)| scope)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for GroupCommit {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let lane = batch.requests.first().and_then(|first| self.lane(first));
        let (Some(lane), None) = (lane, batch.at) else {
            return self.backend.submit(batch).await;
        };
        if batch.requests.len() <= self.bounds.max_batch {
            return lane.submit(batch).await;
        }
        let mut outcomes = Vec::with_capacity(batch.requests.len());
        for requests in batch.requests.chunks(self.bounds.max_batch) {
            let part = Batch { requests: requests.to_vec(), at: None };
            outcomes.extend(lane.submit(Arc::new(part)).await);
        }
        outcomes
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

impl GroupCommit {
    fn print(&self, f: &mut fmt::Formatter<'_>, wrapped: fmt::Arguments<'_>) -> fmt::Result {
        match self.lanes.len() {
            0 => write!(f, "GroupCommit(off, {wrapped})"),
            lanes => {
                let plural = if lanes == 1 { "" } else { "s" };
                write!(f, "GroupCommit({lanes} lane{plural}, {} max, {wrapped})", self.bounds.max_batch)
            }
        }
    }
}

impl fmt::Display for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, format_args!("{}", self.capabilities().engine))
    }
}

impl fmt::Debug for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, format_args!("{:?}", self.backend))
    }
}
