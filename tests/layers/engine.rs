//! Engines on the runtime's clock, which stands still until a test moves it: slow ones, failing ones, and one that holds its answers.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use limiter::{
    Backend, Batch, Capabilities, Check, Clock, Error, ErrorKind, Instant, Key, Limit, Memory, Op, Outcome, Request,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time;

/// Some instant in the middle of all windows.
const BEGIN: u64 = 1_764_559_423_123_456;

/// The runtime's time, as a wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokioClock(time::Instant);

impl TokioClock {
    pub(crate) fn start() -> Self {
        Self(time::Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::from_micros(BEGIN).unwrap().saturating_add(self.0.elapsed())
    }
}

/// A runtime whose clock stands still.
pub(crate) fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// What an engine does with a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Manner {
    #[default]
    Decide,
    Fail(ErrorKind),
    /// Decides and never answers.
    Hang,
}

/// Memory behind a road that takes a while each way, and that a test can close.
pub(crate) struct Engine {
    pub(crate) memory: Memory<TokioClock>,
    manner: Mutex<Manner>,
    road: Mutex<[Duration; 2]>,
    calls: AtomicUsize,
    holds: AtomicBool,
    gate: Semaphore,
}

impl Engine {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::builder().clock(TokioClock::start()).build(),
            manner: Mutex::default(),
            road: Mutex::default(),
            calls: AtomicUsize::new(0),
            holds: AtomicBool::new(false),
            gate: Semaphore::new(0),
        })
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// How long a request travels, and how long its answer.
    pub(crate) fn road(&self, to: Duration, back: Duration) {
        *self.road.lock().unwrap() = [to, back];
    }

    /// How many calls came.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// From now on decided calls wait for [`release`](Self::release), or no longer.
    pub(crate) fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }

    pub(crate) fn release(&self, calls: usize) {
        self.gate.add_permits(calls);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

#[async_trait]
impl Backend for Engine {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let [to, back] = *self.road.lock().unwrap();
        if !to.is_zero() {
            time::sleep(to).await;
        }
        let manner = *self.manner.lock().unwrap();
        if let Manner::Fail(kind) = manner {
            let error = Error::new("engine", kind, "as told");
            let failed = if kind.is_certain() { Outcome::NotSent(error) } else { Outcome::Unknown(error) };
            return vec![failed; batch.requests.len()];
        }
        let outcomes = self.memory.submit(batch).await;
        if matches!(manner, Manner::Hang) {
            std::future::pending::<()>().await;
        }
        if self.holds.load(Ordering::SeqCst) {
            self.gate.acquire().await.unwrap().forget();
        }
        if !back.is_zero() {
            time::sleep(back).await;
        }
        outcomes
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
}

pub(crate) fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

pub(crate) fn key(rule: &str) -> Key {
    Key::new("t", rule, ["k"])
}

pub(crate) fn check(rule: &str, limit_text: &str, cost: u64) -> Check {
    Check::new(key(rule), limit(limit_text), cost)
}

pub(crate) fn request(op: Op, checks: impl IntoIterator<Item = Check>) -> Request {
    Request::new(op, checks).unwrap()
}

pub(crate) fn take(rule: &str, limit_text: &str) -> Request {
    request(Op::Take, [check(rule, limit_text, 1)])
}

pub(crate) async fn submit(backend: &dyn Backend, request: &Request) -> Outcome {
    backend.submit(Arc::new(Batch::of(request.clone()))).await.remove(0)
}

pub(crate) fn kind(outcome: &Outcome) -> ErrorKind {
    outcome.record().unwrap_err().kind()
}
