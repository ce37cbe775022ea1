//! A store that does not decide: what each rule says of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use limiter::policy::{PolicyLimiter, Query, Verdict};
use limiter::{Atomicity, Backend, Batch, Capabilities, ClockSource, Error, ErrorKind, Memory, Outcome, Scope};
use tokio::time::Instant;

use super::policy;

/// A store that decides, is away, is full, or never answers.
#[derive(Debug, Default)]
struct Store {
    memory: Memory,
    state: AtomicU8,
}

impl Store {
    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }
}

const AWAY: u8 = 1;
const FULL: u8 = 2;
const STUCK: u8 = 3;

#[async_trait]
impl Backend for Store {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let kind = match self.state.load(Ordering::Relaxed) {
            AWAY => ErrorKind::NotSent,
            FULL => ErrorKind::Full,
            STUCK => std::future::pending().await,
            _ => return self.memory.submit(batch).await,
        };
        let failure = || Outcome::NotSent(Error::new("test", kind, "away"));
        batch.requests.iter().map(|_| failure()).collect()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("test", ClockSource::Node, Scope::Process, Atomicity::AllKeys)
    }
}

fn limiter(on_failure: &[&str]) -> (Arc<Store>, PolicyLimiter) {
    let rules: Vec<String> = on_failure
        .iter()
        .enumerate()
        .map(|(index, on_failure)| {
            format!("[[rule]]\nname = \"r{index}\"\nkey = \"user\"\nlimit = \"8/1h fixed-window\"\non_failure = \"{on_failure}\"\n")
        })
        .collect();
    let store = Arc::new(Store::default());
    let backend: Arc<dyn Backend> = Arc::<Store>::clone(&store);
    (store, PolicyLimiter::new(backend, policy(&format!("deadline = \"20ms\"\n{}", rules.concat()))))
}

async fn passes(limiter: &PolicyLimiter, times: usize) -> usize {
    let mut passes = 0;
    for _ in 0..times {
        let answer = limiter.check(&Query::new().user("u")).await;
        assert!(answer.degraded && answer.receipt().is_none());
        passes += usize::from(answer.is_allowed());
    }
    passes
}

#[tokio::test]
async fn open_passes_and_makes_no_numbers_up() {
    let (store, limiter) = limiter(&["open"]);
    store.set(AWAY);
    assert_eq!(passes(&limiter, 100).await, 100);
    let answer = limiter.check(&Query::new().user("u")).await;
    assert!(answer.rules.is_empty() && answer.tightest().is_none());
    assert_eq!(limiter.counts()[0].degraded, 101);
    // What a flood can bring about does not switch the limit off.
    store.set(FULL);
    assert_eq!(passes(&limiter, 3).await, 0);
    store.set(0);
    let answer = limiter.check(&Query::new().user("u")).await;
    assert!(answer.is_allowed() && !answer.degraded);
}

#[tokio::test]
async fn closed_refuses_and_is_no_limit() {
    let (store, limiter) = limiter(&["open", "closed", "local"]);
    store.set(AWAY);
    let answer = limiter.check(&Query::new().user("u")).await;
    assert_eq!((answer.verdict, answer.refused_by.as_deref()), (Verdict::Unavailable, Some("r1")));
    assert!(answer.degraded && answer.retry_after.is_none());
}

#[tokio::test]
async fn local_counts_a_nodes_share() {
    let (store, limiter) = limiter(&["open", "local nodes=4"]);
    store.set(AWAY);
    assert_eq!(passes(&limiter, 10).await, 2);
    let refused = limiter.check(&Query::new().user("u")).await;
    assert_eq!((refused.verdict, refused.refused_by.as_deref()), (Verdict::Limited, Some("r1")));
    // Four nodes that each let 8 pass would let 32 pass, under a limit of 8.
    let costly = limiter.check(&Query::new().user("v").cost(8)).await;
    assert_eq!((costly.verdict, costly.degraded), (Verdict::Unavailable, true), "more than the share");
    assert!(limiter.check(&Query::new().user("v").cost(2)).await.is_allowed(), "all of the share");
    assert!(!limiter.check(&Query::new().user("v")).await.is_allowed());
    store.set(0);
    assert_eq!(
        limiter.check(&Query::new().user("u")).await.rules[1].decision.remaining,
        7,
        "the store counts by itself"
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_the_wait() {
    let (store, limiter) = limiter(&["open"]);
    store.set(STUCK);
    let begun = Instant::now();
    assert_eq!(passes(&limiter, 5).await, 5);
    assert_eq!(begun.elapsed(), Duration::from_millis(100));
    limiter.refund(limiter::policy::Receipt::default()).await.unwrap();
}
