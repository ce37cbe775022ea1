//! A store that is dead costs nothing: after a few silent calls it is not asked for a while.

mod machine;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use limiter_core::{Backend, Batch, Capabilities, Error, ErrorKind, Outcome};
use tokio::time::Instant;

pub use self::machine::BreakerState;
use self::machine::{Evidence, Machine, Rules, Ticket};
use super::figures::{Count, Gauge};

/// The layer's name in its own errors.
const LAYER: &str = "breaker";

/// A layer that stops asking a store which does not answer, and finds out by itself when it is back.
///
/// It opens after [`failures`](BreakerBuilder::failures) silent calls within [`window`](BreakerBuilder::window), if no more than that
/// were answered since the first of them. Silent is a call of which every request was not sent or is unknown: a store that is
/// gone, and one that is slower than the [`Deadline`](super::Deadline) beneath, are the same. A store that refuses, is full or contended,
/// answers; and requests that found no room in this process say nothing of the store. A request that is unsound never gets here.
/// What fails within 10 ms counts as one incident, so that a single broken connection opens nothing.
///
/// While it is open, each request is [not sent](Outcome::NotSent), at once. After a [pause](BreakerBuilder::pause) one call at a time tries the
/// store; when [`probes`](BreakerBuilder::probes) were answered, all is as before, and when one was not, the pause doubles.
///
/// A batch with a given instant is passed on as it is: a replay wants to know, not to be spared.
///
/// ```
/// use std::sync::Arc;
/// use limiter::layer::{Breaker, BreakerState};
/// use limiter::{Memory, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let breaker = Arc::new(Breaker::new(Arc::new(Memory::new())));
/// let limiter = RateLimiter::new(breaker.clone(), "login", "5/1m sliding-log".parse()?);
/// assert!(limiter.check("user-42").await?.allowed);
/// assert_eq!(breaker.state(), BreakerState::Closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Breaker {
    backend: Arc<dyn Backend>,
    machine: Mutex<Machine>,
    origin: Instant,
    spared: Count,
    gauge: Gauge,
}

/// A [`Breaker`] that is still being set up.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `wrap` is called"]
pub struct BreakerBuilder(Rules);

impl BreakerBuilder {
    /// How many silent calls open it, by default 5. 0 counts as 1.
    pub fn failures(mut self, calls: u32) -> Self {
        self.0.failures = calls.max(1);
        self
    }

    /// How long the first of them is remembered, by default 10 s.
    pub fn window(mut self, window: Duration) -> Self {
        self.0.window = window;
        self
    }

    /// How long it stays open the first time and at the most, by default 100 ms and 500 ms: each probe in vain doubles it. A store that is
    /// back is used again after the longest pause and a probe or two.
    pub fn pause(mut self, first: Duration, most: Duration) -> Self {
        self.0.pause = (first, most.max(first));
        self
    }

    /// How many probes in a row have to be answered before it closes, by default 2. 0 counts as 1.
    pub fn probes(mut self, calls: u32) -> Self {
        self.0.probes = calls.max(1);
        self
    }

    /// Wraps `backend`.
    #[must_use]
    pub fn wrap(self, backend: Arc<dyn Backend>) -> Breaker {
        let engine = backend.capabilities().engine;
        Breaker {
            machine: Mutex::new(Machine::new(self.0)),
            origin: Instant::now(),
            spared: Count::new(
                "limiter_breaker_spared_total",
                "Requests that were not sent because the breaker is open",
                engine,
            ),
            gauge: Gauge::new("limiter_breaker_state", "0 closed, 1 half-open, 2 open", engine),
            backend,
        }
    }
}

impl Default for BreakerBuilder {
    fn default() -> Self {
        Self(Rules {
            failures: 5,
            window: Duration::from_secs(10),
            pause: (Duration::from_millis(100), Duration::from_millis(500)),
            probes: 2,
        })
    }
}

impl Breaker {
    /// `backend` behind a breaker with the defaults of [`BreakerBuilder`].
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::builder().wrap(backend)
    }

    /// A breaker with rules of one's own.
    pub fn builder() -> BreakerBuilder {
        BreakerBuilder::default()
    }

    /// Where it stands. One whose pause is over is open until the next request comes.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.lock().state()
    }

    /// How many requests were not sent because it was open.
    #[must_use]
    pub fn spared(&self) -> u64 {
        self.spared.get()
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        // Nothing under the lock panics half-way through a change.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the machine do something, and tells if it is in another state afterwards.
    fn with<T>(&self, act: impl FnOnce(&mut Machine, Duration) -> T) -> T {
        let now = self.origin.elapsed();
        let (result, before, after) = {
            let mut machine = self.lock();
            let before = machine.state();
            (act(&mut machine, now), before, machine.state())
        };
        if before != after {
            self.tell(before, after);
        }
        result
    }

    #[cold]
    fn tell(&self, before: BreakerState, after: BreakerState) {
        let engine = self.backend.capabilities().engine;
        match after {
            BreakerState::Open if before == BreakerState::Closed => {
                tracing::warn!(engine, "the store does not answer: it is not asked for now");
            }
            BreakerState::Open => tracing::debug!(engine, "the store does not answer yet"),
            BreakerState::HalfOpen => tracing::debug!(engine, "trying whether the store answers"),
            BreakerState::Closed => tracing::info!(engine, "the store answers again"),
        }
        self.gauge.set(match after {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        });
    }
}

/// A call that is out. Dropped without an answer, it gives its place back.
struct Out<'a> {
    breaker: &'a Breaker,
    ticket: Ticket,
    evidence: Evidence,
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.breaker.with(|machine, now| machine.report(self.ticket, self.evidence, now));
    }
}

/// What the outcomes of a call say of the store: one answer is enough to know that it answers.
fn evidence(outcomes: &[Outcome]) -> Evidence {
    let of = |outcome: &Outcome| match outcome.record().map_err(Error::kind) {
        Err(ErrorKind::NotSent | ErrorKind::Unknown { .. }) => Evidence::Silent,
        Err(ErrorKind::Overloaded) => Evidence::None,
        _ => Evidence::Answered,
    };
    let mut seen = Evidence::None;
    for outcome in outcomes {
        match of(outcome) {
            Evidence::Answered => return Evidence::Answered,
            Evidence::Silent => seen = Evidence::Silent,
            Evidence::None => {}
        }
    }
    seen
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Breaker {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        if batch.at.is_some() {
            return self.backend.submit(batch).await;
        }
        let Some(ticket) = self.with(Machine::admit) else {
            let requests = batch.requests.len();
            self.spared.add(requests);
            let error = Error::new(LAYER, ErrorKind::NotSent, "the store did not answer lately, so it was not asked");
            return vec![Outcome::NotSent(error); requests];
        };
        let mut out = Out { breaker: self, ticket, evidence: Evidence::None };
        let outcomes = self.backend.submit(batch).await;
        out.evidence = evidence(&outcomes);
        drop(out);
        outcomes
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Breaker({}, {:?})", self.state().name(), self.backend)
    }
}
