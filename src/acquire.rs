//! Waiting for a limit: the loop, and the units that a dropped wait gives back.

use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Backend, BackendExt, Check, CheckError, Decision, Error, ErrorKind, Instant, Op};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time;

/// Why nothing was acquired.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The wait would be longer than the caller allows. Nothing stays taken.
    #[error("it would take {wait:?} more, past the deadline")]
    Deadline {
        /// How much longer it would have taken, had nothing else come.
        wait: Duration,
    },
    /// The store did not decide, or the request is unsound.
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// Units that were waited for and may be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    decision: Decision,
}

impl Permit {
    /// The decision that granted them, as a refund of units that were not used after all needs it.
    pub const fn decision(&self) -> Decision {
        self.decision
    }
}

/// Takes `check`, waiting for it up to `within`.
pub(crate) async fn acquire(backend: Arc<dyn Backend>, check: Check, within: Duration) -> Result<Permit, AcquireError> {
    // Past what the timer can tell there is no deadline.
    let deadline = time::Instant::now().checked_add(within);
    let left = || deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(time::Instant::now()));
    loop {
        let (decision, held) = take(Arc::clone(&backend), check.clone()).await?;
        let wait = decision.retry_after.unwrap_or(decision.delay);
        if wait > left() {
            // What a leaky bucket granted too late goes back when `held` is dropped.
            return Err(AcquireError::Deadline { wait });
        }
        time::sleep(wait).await;
        if decision.allowed {
            // What the store did not charge is not held.
            if let Some(held) = held {
                held.keep();
            }
            return Ok(Permit { decision });
        }
    }
}

/// A take that may be dropped at any point: it runs in a task of its own, and units that nobody is left to use go back.
async fn take(backend: Arc<dyn Backend>, check: Check) -> Result<(Decision, Option<Held>), CheckError> {
    let (answer, asked) = oneshot::channel();
    let runtime = Handle::current();
    let engine = backend.capabilities().engine;
    runtime.clone().spawn(async move {
        let decided = backend.ask_one(Op::Take, check.clone()).await.map(|decision| {
            let held = decision.charged().then(|| Held { backend, check, taken: decision.at, runtime, kept: false });
            (decision, held)
        });
        // If the caller is gone, what is held is dropped here.
        drop(answer.send(decided));
    });
    match asked.await {
        Ok(decided) => decided,
        // The task always answers, unless an engine panics or the runtime is shutting down.
        Err(_) => {
            Err(CheckError::Unknown(Error::new(engine, ErrorKind::Unknown { in_flight: false }, "the call broke off")))
        }
    }
}

/// Units that were taken and are not in use yet. Dropped, it gives them back.
struct Held {
    backend: Arc<dyn Backend>,
    check: Check,
    taken: Instant,
    runtime: Handle,
    kept: bool,
}

impl Held {
    /// The units are used.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let (backend, check) = (Arc::clone(&self.backend), self.check.clone());
        let refund = Op::Refund { taken: self.taken };
        // Asked once: a refund whose outcome is unknown must not be repeated. The units then come back with time.
        self.runtime.spawn(async move { drop(backend.ask_one(refund, check).await) });
    }
}
