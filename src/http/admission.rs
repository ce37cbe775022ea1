//! Whether one request may go on, and the wait until it does.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::grpc;
use super::layer::Settings;
use crate::policy::{Answer, PolicyLimiter, Receipt, Verdict};

/// A request's answer, and how long the decision took.
pub(super) struct Admission {
    pub(super) answer: Answer,
    pub(super) took: Duration,
}

/// Asks for a request, and waits as long as its leaky buckets say.
pub(super) fn admit(settings: &Arc<Settings>, parts: &Parts) -> impl Future<Output = Admission> + Send + use<> {
    let begun = Instant::now();
    let asked = settings.ask(parts, PolicyLimiter::check);
    let callers = settings.deadline.as_ref().and_then(|deadline| deadline(parts));
    let callers = [callers, grpc::timeout(&parts.headers)].into_iter().flatten().min();
    let within = callers.map_or(settings.max_delay, |callers| callers.min(settings.max_delay));
    let settings = Arc::clone(settings);
    async move {
        let answer = asked.await;
        let took = begun.elapsed();
        if !answer.is_allowed() || answer.delay.is_zero() {
            return Admission { answer, took };
        }
        let delay = answer.delay;
        let held = Held::new(settings.limiter.clone(), answer.receipt().cloned());
        // The decision is a part of the caller's wait.
        let left = within.saturating_sub(took);
        let place = settings.waiting.try_acquire();
        if delay > left || place.is_err() {
            // Told once the place in the queue is free again, so that whoever comes back finds it.
            held.give_back().await;
            let wait = if delay > left { delay.saturating_sub(left) } else { delay };
            return Admission { answer: too_late(answer, wait), took };
        }
        sleep(delay).await;
        held.keep();
        Admission { answer, took }
    }
}

/// The refusal of a request that was granted a place too far back.
fn too_late(mut answer: Answer, wait: Duration) -> Answer {
    answer.verdict = Verdict::Limited;
    answer.refused_by = answer.rules.iter().max_by_key(|rule| rule.decision.delay).map(|rule| Arc::clone(&rule.rule));
    answer.retry_after = Some(wait);
    answer.delay = Duration::ZERO;
    answer
}

/// Units of a request that still waits. Dropped, as when its client hangs up, it gives them back.
struct Held {
    limiter: PolicyLimiter,
    receipt: Option<Receipt>,
}

impl Held {
    fn new(limiter: PolicyLimiter, receipt: Option<Receipt>) -> Self {
        Self { limiter, receipt }
    }

    fn keep(mut self) {
        self.receipt = None;
    }

    async fn give_back(mut self) {
        if let Some(receipt) = self.receipt.take() {
            give_back(&self.limiter, receipt).await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let (Some(receipt), Ok(runtime)) = (self.receipt.take(), Handle::try_current()) {
            let limiter = self.limiter.clone();
            runtime.spawn(async move { drop(limiter.refund(receipt).await) });
        }
    }
}

/// Gives back in a task of its own, which goes on if the caller is dropped. Asked once: what failed comes back with time.
pub(super) async fn give_back(limiter: &PolicyLimiter, receipt: Receipt) {
    let limiter = limiter.clone();
    let task = tokio::spawn(async move { drop(limiter.refund(receipt).await) });
    drop(task.await);
}
