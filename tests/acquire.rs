//! Waiting for a limit, on a clock that runs only while everybody waits.

#![allow(clippy::unwrap_used, reason = "a test stops on the first thing that is not as it should be")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use limiter::{AcquireError, Backend, Batch, Capabilities, Clock, Instant, Memory, Outcome, RateLimiter};
use tokio::time;

/// Tokio's time as the store's clock, from the epoch on: paused time moves both.
#[derive(Debug)]
struct TokioClock(time::Instant);

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::EPOCH.saturating_add(self.0.elapsed())
    }
}

fn limiter(limit: &str) -> RateLimiter {
    let memory = Memory::builder().clock(TokioClock(time::Instant::now())).build();
    RateLimiter::new(Arc::new(memory), "jobs", limit.parse().unwrap())
}

const LONG: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_token_bucket_is_waited_for() {
    let limiter = limiter("2/1s token-bucket burst=1");
    let start = time::Instant::now();
    for _ in 0..5 {
        limiter.acquire("a", LONG).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(2), "one at once, four more half a second apart");
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_sleeps_its_delay() {
    let limiter = limiter("2/1s leaky-bucket queue=10");
    let start = time::Instant::now();
    let waits = (0..4).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            limiter.acquire("a", LONG).await.unwrap();
            start.elapsed().as_millis()
        })
    });
    let mut left = Vec::new();
    for wait in waits.collect::<Vec<_>>() {
        left.push(wait.await.unwrap());
    }
    left.sort_unstable();
    assert_eq!(left, [0, 500, 1_000, 1_500], "work leaves at exactly 2 per second");
}

#[tokio::test(start_paused = true)]
async fn a_wait_past_the_deadline_fails_at_once_and_takes_nothing() {
    for limit in ["1/10s token-bucket", "1/10s sliding-log", "1/10s leaky-bucket queue=5"] {
        let limiter = limiter(limit);
        limiter.acquire("a", Duration::ZERO).await.unwrap();
        let before = limiter.peek("a", 0).await.unwrap();
        let start = time::Instant::now();
        let error = limiter.acquire("a", Duration::from_secs(9)).await.unwrap_err();
        assert!(
            matches!(error, AcquireError::Deadline { wait } if wait == Duration::from_secs(10)),
            "{limit}: {error}"
        );
        assert_eq!(start.elapsed(), Duration::ZERO, "{limit}: known at once");
        time::sleep(Duration::from_millis(1)).await;
        assert_eq!(limiter.peek("a", 0).await.unwrap().remaining, before.remaining, "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_gives_its_units_back() {
    let limiter = limiter("1/10s leaky-bucket queue=5");
    limiter.acquire("a", LONG).await.unwrap();
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire_n("a", 3, LONG).await }
    });
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(limiter.peek("a", 0).await.unwrap().remaining, 1, "3 wait, and the first is in service");
    waiting.abort();
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(limiter.peek("a", 0).await.unwrap().remaining, 4);
}

/// An engine that takes a second to answer.
#[derive(Debug)]
struct Slow(Memory<TokioClock>);

#[async_trait]
impl Backend for Slow {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let outcomes = self.0.submit(batch).await;
        time::sleep(Duration::from_secs(1)).await;
        outcomes
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_while_the_store_answers_gives_its_units_back() {
    let memory = Memory::builder().clock(TokioClock(time::Instant::now())).build();
    let limiter = RateLimiter::new(Arc::new(Slow(memory)), "jobs", "5/1h sliding-log".parse().unwrap());
    let gone = time::timeout(Duration::from_millis(500), limiter.acquire_n("a", 5, LONG)).await;
    assert!(gone.is_err(), "the store is slower than the caller");
    time::sleep(Duration::from_secs(3)).await;
    assert_eq!(limiter.peek("a", 0).await.unwrap().remaining, 5);
}

#[tokio::test(start_paused = true)]
async fn many_waiters_get_exactly_the_rate() {
    let limiter = limiter("7/13s token-bucket burst=1");
    let start = time::Instant::now();
    let tasks: Vec<_> = (0..15)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("a", LONG).await.map(|_| start.elapsed()) })
        })
        .collect();
    let mut last = Duration::ZERO;
    for task in tasks {
        last = last.max(task.await.unwrap().unwrap());
    }
    // 14 more than the first, at 13/7 s each; the timer rounds each wait up to a millisecond.
    assert!(last >= Duration::from_secs(26), "{last:?}");
    assert!(last <= Duration::from_secs(26) + Duration::from_millis(15), "{last:?}");
}
