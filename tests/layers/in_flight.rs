//! Refusals that are overtaken on their way: what opened the key meanwhile counts.

use std::sync::Arc;
use std::time::Duration;

use limiter::layer::DenyCache;
use limiter::{Backend, Batch, Op, Outcome, Request};
use tokio::task::{JoinHandle, yield_now};
use tokio::time;

use crate::engine::{Engine, check, paused, request, submit, take};

const LIMIT: &str = "1/1h sliding-log";

struct Held {
    engine: Arc<Engine>,
    cached: Arc<DenyCache>,
}

impl Held {
    /// An engine whose one unit is taken, and that holds its answers from now on.
    async fn exhausted() -> Self {
        let engine = Engine::new();
        let cached = Arc::new(DenyCache::new(Arc::<Engine>::clone(&engine)));
        assert!(matches!(submit(&*cached, &take("0", LIMIT)).await, Outcome::Allowed(_)));
        engine.hold(true);
        Self { engine, cached }
    }

    async fn ask(&self, request: Request) -> JoinHandle<Outcome> {
        let cached = Arc::clone(&self.cached);
        let task = tokio::spawn(async move { submit(&*cached, &request).await });
        for _ in 0..10 {
            yield_now().await;
        }
        task
    }

    /// Whether the key is open, asked through the cache.
    async fn is_open(&self) -> bool {
        self.engine.hold(false);
        matches!(submit(&*self.cached, &take("0", LIMIT)).await, Outcome::Allowed(_))
    }
}

fn reset() -> Request {
    request(Op::Reset, [check("0", LIMIT, 0)])
}

#[test]
fn a_refusal_that_comes_after_a_reset_is_not_believed() {
    paused().block_on(async {
        let held = Held::exhausted().await;
        let refused = held.ask(take("0", LIMIT)).await;
        // The reset passes it on the way.
        held.engine.hold(false);
        assert!(matches!(submit(&*held.cached, &reset()).await, Outcome::Allowed(_)));
        held.engine.release(1);
        assert!(matches!(refused.await.unwrap(), Outcome::Denied(_)));
        assert!(held.is_open().await);
    });
}

#[test]
fn a_refusal_from_while_a_reset_was_in_flight_is_not_believed() {
    paused().block_on(async {
        let held = Held::exhausted().await;
        // Refused, remembered, and then opened by a reset whose answer is still on its way.
        let refused = held.ask(take("0", LIMIT)).await;
        let resetting = held.ask(reset()).await;
        held.engine.release(2);
        assert!(matches!(refused.await.unwrap(), Outcome::Denied(_)));
        assert!(matches!(resetting.await.unwrap(), Outcome::Allowed(_)));
        assert!(held.is_open().await);
    });
}

#[test]
fn a_refusal_that_overtook_a_reset_is_not_believed_once_that_is_done() {
    paused().block_on(async {
        let held = Held::exhausted().await;
        held.engine.hold(false);
        // The reset takes the long road; a take that is asked later is decided before it.
        held.engine.road(Duration::from_millis(100), Duration::ZERO);
        let resetting = held.ask(reset()).await;
        held.engine.road(Duration::ZERO, Duration::ZERO);
        assert!(matches!(submit(&*held.cached, &take("0", LIMIT)).await, Outcome::Denied(_)));
        assert!(matches!(resetting.await.unwrap(), Outcome::Allowed(_)));
        assert!(held.is_open().await);
    });
}

#[test]
fn a_reset_whose_caller_goes_is_seen_as_well() {
    paused().block_on(async {
        let held = Held::exhausted().await;
        let resetting = held.ask(reset()).await;
        resetting.abort();
        assert!(resetting.await.unwrap_err().is_cancelled());
        assert!(held.is_open().await, "the engine had applied it");
    });
}

#[test]
fn a_batch_of_a_reset_and_a_take_is_decided_in_order() {
    paused().block_on(async {
        let held = Held::exhausted().await;
        held.engine.hold(false);
        assert!(matches!(submit(&*held.cached, &take("0", LIMIT)).await, Outcome::Denied(_)));
        let batch = Batch { requests: vec![reset(), take("0", LIMIT), take("0", LIMIT)], at: None };
        let outcomes = held.cached.submit(Arc::new(batch)).await;
        assert!(matches!(outcomes[..], [Outcome::Allowed(_), Outcome::Allowed(_), Outcome::Denied(_)]));
    });
}

#[test]
fn a_replay_is_passed_on_and_may_open_a_key() {
    paused().block_on(async {
        let engine = Engine::new();
        let cached = DenyCache::builder().max_age(Duration::from_hours(1)).wrap(Arc::<Engine>::clone(&engine));
        let minute = take("0", "1/1m fixed-window");
        let first = submit(&cached, &minute).await;
        assert!(matches!(submit(&cached, &minute).await, Outcome::Denied(_)));
        let later = first.record().unwrap().at.saturating_add(Duration::from_mins(1));
        let replay = Batch { requests: vec![minute.clone()], at: Some(later) };
        assert!(matches!(cached.submit(Arc::new(replay)).await[..], [Outcome::Allowed(_)]));
        let calls = engine.calls();
        let _ = submit(&cached, &minute).await;
        assert_eq!(engine.calls(), calls + 1, "the store is asked anew");
        time::advance(Duration::from_secs(1)).await;
    });
}
