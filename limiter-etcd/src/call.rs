//! One call of the engine: a batch, and what has become of each of its requests.
//!
//! A caller never waits beyond its deadline, whatever the store and the tasks that talk to it do. What then has no outcome was
//! either not begun, and will not be; or it is on its way, and not known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use limiter_core::{Batch, Instant as At, Outcome, Request};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::error::{not_sent, unknown};

#[derive(Debug)]
pub(crate) struct Call {
    batch: Arc<Batch>,
    pub(crate) deadline: Instant,
    progress: Mutex<Progress>,
    done: Notify,
}

#[derive(Debug)]
struct Progress {
    steps: Vec<Step>,
    open: usize,
}

#[derive(Debug)]
enum Step {
    Waiting,
    Begun,
    /// The caller has gone before it was begun.
    Cancelled,
    Settled(Box<Outcome>),
}

impl Call {
    pub(crate) fn new(batch: Arc<Batch>, deadline: Instant) -> Arc<Self> {
        let steps: Vec<Step> = batch.requests.iter().map(|_| Step::Waiting).collect();
        let open = steps.len();
        Arc::new(Self { batch, deadline, progress: Mutex::new(Progress { steps, open }), done: Notify::new() })
    }

    pub(crate) fn len(&self) -> usize {
        self.batch.requests.len()
    }

    pub(crate) fn at(&self) -> Option<At> {
        self.batch.at
    }

    /// One of its requests. The index is below [`len`](Self::len).
    pub(crate) fn request(&self, index: usize) -> Option<&Request> {
        self.batch.requests.get(index)
    }

    /// Whether the request is still wanted: then it is on its way from here on.
    pub(crate) fn begin(&self, index: usize) -> bool {
        let mut progress = self.progress();
        match progress.steps.get_mut(index) {
            Some(step @ Step::Waiting) => {
                *step = Step::Begun;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn settle(&self, index: usize, outcome: Outcome) {
        let mut progress = self.progress();
        if let Some(step @ (Step::Waiting | Step::Begun)) = progress.steps.get_mut(index) {
            *step = Step::Settled(Box::new(outcome));
            progress.open -= 1;
            if progress.open == 0 {
                self.done.notify_one();
            }
        }
    }

    /// Waits until all is settled, and no longer than the deadline. If this future is dropped, what was not begun never is.
    pub(crate) async fn outcomes(&self) -> Vec<Outcome> {
        struct Leave<'c>(&'c Call);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        let leave = Leave(self);
        let _ = timeout_at(self.deadline, self.done.notified()).await;
        drop(leave);
        let mut progress = self.progress();
        let steps = std::mem::take(&mut progress.steps);
        steps
            .into_iter()
            .map(|step| match step {
                Step::Settled(outcome) => *outcome,
                Step::Begun => Outcome::Unknown(unknown(true, "the store did not answer in time")),
                Step::Waiting | Step::Cancelled => {
                    Outcome::NotSent(not_sent("its turn did not come in time: others wait for the same store"))
                }
            })
            .collect()
    }

    fn leave(&self) {
        for step in &mut self.progress().steps {
            if matches!(step, Step::Waiting) {
                *step = Step::Cancelled;
            }
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
