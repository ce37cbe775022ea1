//! Callers that go away: each request is applied as a whole, or not at all.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use limiter_core::{Backend, Batch, Check, Instant, Key, Limit, Op, Outcome, Request};

use super::{Failure, case_list, ensure};
use crate::subject::BoxFuture;
use crate::trial::{Trial, at};

case_list! { Cancellation:
    at_every_await "the future is dropped after 0, 1, 2 … polls",
    at_random_times "the future is dropped after a random while",
    of_one_of_many "cancelled calls between others that go through: the limit is reached exactly",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

/// How long a call that was given up may take to settle.
const SETTLE: Duration = Duration::from_secs(5);

/// Two layers with room for all calls of a case.
struct Layers {
    checks: [(Key, Limit); 2],
    capacity: u64,
    now: Instant,
}

impl Layers {
    fn new(trial: &Trial, rule: &str, capacity: u64) -> Result<Self, Failure> {
        let log: Limit = format!("{capacity}/1h sliding-log").parse()?;
        let bucket: Limit = format!("{capacity}/1h token-bucket").parse()?;
        let checks = [(trial.key(rule, ["log"]), log), (trial.key(rule, ["bucket"]), bucket)];
        Ok(Self { checks, capacity, now: at(T)? })
    }

    fn batch(&self, op: Op, cost: u64) -> Result<Arc<Batch>, Failure> {
        let checks = self.checks.iter().map(|(key, limit)| Check::new(key.clone(), *limit, cost));
        Ok(Arc::new(Batch { requests: vec![Request::new(op, checks)?], at: Some(self.now) }))
    }

    /// What each layer has left, once no call is on its way any more.
    async fn left(&self, trial: &Trial, client: &Arc<dyn Backend>) -> Result<[u64; 2], Failure> {
        let started = std::time::Instant::now();
        let mut before = None;
        let mut same = 0;
        loop {
            let batch = self.batch(Op::Peek, 0)?;
            let request = batch.requests.first().ok_or_else(|| Failure::new("an empty batch"))?;
            let decisions = trial.ask(client, request.clone(), Some(self.now)).await?;
            let [log, bucket] = *decisions.layers() else { return Err(Failure::new("a peek of two layers")) };
            let left = [log.remaining, bucket.remaining];
            same = if before == Some(left) { same + 1 } else { 0 };
            if same == 3 {
                return Ok(left);
            }
            ensure!(started.elapsed() < SETTLE, "still changing {SETTLE:?} after the last call was given up");
            before = Some(left);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Both layers were charged alike: at least what was told, at most what was asked for.
    async fn audit(&self, trial: &Trial, client: &Arc<dyn Backend>, told: u64, unknown: u64) -> Result<(), Failure> {
        let [log, bucket] = self.left(trial, client).await?;
        ensure!(log == bucket, "half applied: {log} and {bucket} left in two layers of the same requests");
        let taken = self.capacity - log;
        ensure!((told..=told + unknown).contains(&taken), "{taken} taken, but {told} told and {unknown} given up");
        // And the rest is still there, to the last unit, but for a call that was given up and comes only now.
        let mut rest = 0;
        for _ in 0..log + 3 {
            let batch = self.batch(Op::Take, 1)?;
            let request = batch.requests.first().ok_or_else(|| Failure::new("an empty batch"))?;
            rest += u64::from(trial.ask(client, request.clone(), Some(self.now)).await?.allowed);
        }
        trial.counters.reached(taken + rest, self.capacity);
        let late = told + unknown - taken;
        ensure!(
            (log.saturating_sub(late)..=log).contains(&rest),
            "{rest} admitted of the {log} that were left, and {late} calls may have come late"
        );
        let [log, bucket] = self.left(trial, client).await?;
        ensure!(log == 0 && bucket == 0, "{log} and {bucket} left in two layers that refuse");
        Ok(())
    }
}

/// Polls a future so many times at most, and drops it.
async fn polled<T>(mut future: BoxFuture<'_, T>, polls: usize) -> Option<T> {
    let mut left = polls;
    poll_fn(|context| {
        let Some(fewer) = left.checked_sub(1) else { return Poll::Ready(None) };
        left = fewer;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Units that were told to be taken: 1 or 0.
fn told(outcomes: &[Outcome]) -> u64 {
    u64::from(matches!(outcomes, [Outcome::Allowed(_)]))
}

async fn at_every_await(trial: &Trial) -> Result<(), Failure> {
    let client = trial.client().await?;
    let layers = Layers::new(trial, "polls", 100)?;
    let (mut done, mut given_up) = (0, 0);
    for call in 0..80 {
        let batch = layers.batch(Op::Take, 1)?;
        trial.counters.called(1);
        match polled(client.submit(batch), call % 10).await {
            Some(outcomes) => done += told(&outcomes),
            None => given_up += 1,
        }
    }
    layers.audit(trial, &client, done, given_up).await
}

async fn at_random_times(trial: &Trial) -> Result<(), Failure> {
    let client = trial.client().await?;
    let layers = Layers::new(trial, "times", 200)?;
    let mut random = trial.random();
    let (mut done, mut given_up) = (0, 0);
    for _ in 0..100 {
        let batch = layers.batch(Op::Take, 1)?;
        let wait = Duration::from_micros(random.below(1_500));
        trial.counters.called(1);
        match tokio::time::timeout(wait, client.submit(batch)).await {
            Ok(outcomes) => done += told(&outcomes),
            Err(_) => given_up += 1,
        }
    }
    layers.audit(trial, &client, done, given_up).await
}

async fn of_one_of_many(trial: &Trial) -> Result<(), Failure> {
    let client = trial.client().await?;
    let layers = Arc::new(Layers::new(trial, "many", 300)?);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..12_usize {
        let (client, layers) = (Arc::clone(&client), Arc::clone(&layers));
        tasks.spawn(async move {
            let (mut done, mut given_up) = (0, 0);
            for call in 0..20 {
                let batch = layers.batch(Op::Take, 1)?;
                // Every third task goes away in the middle; the others wait.
                let polls = if task % 3 == 0 { call % 4 } else { usize::MAX };
                match polled(client.submit(batch), polls).await {
                    Some(outcomes) => done += told(&outcomes),
                    None => given_up += 1,
                }
            }
            Ok::<_, Failure>((done, given_up))
        });
    }
    let (mut done, mut given_up) = (0, 0);
    while let Some(joined) = tasks.join_next().await {
        let (more, unknown) = joined??;
        done += more;
        given_up += unknown;
    }
    trial.counters.called(240);
    layers.audit(trial, &client, done, given_up).await
}
