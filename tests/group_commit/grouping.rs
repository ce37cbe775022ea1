//! Which requests go together, and when.

use std::sync::Arc;
use std::time::Duration;

use limiter::layer::GroupCommit;
use limiter::{Backend, Batch, ErrorKind, Instant, Memory, Outcome, RateLimiter, Request};
use tokio::time;

use crate::engine::{Recorder, ask, hourly, kind, layered, settle, take};

fn one_lane(engine: &Arc<Recorder>) -> Arc<GroupCommit> {
    Arc::new(GroupCommit::builder().lanes(1).wrap(engine.clone()))
}

#[tokio::test(start_paused = true)]
async fn alone_a_check_is_a_call_and_waits_for_nobody() {
    let engine = Recorder::open();
    let layer = one_lane(&engine);
    let start = time::Instant::now();
    for _ in 0..10 {
        let batch = Arc::new(Batch::of(take("a", 1)));
        assert!(matches!(&*layer.submit(batch).await, [Outcome::Allowed(_)]));
    }
    assert_eq!(engine.begun(), [1; 10]);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn what_arrives_while_a_call_is_in_flight_goes_together_in_the_next() {
    let engine = Recorder::gated(0);
    let layer = one_lane(&engine);
    let mut tasks = vec![ask(&layer, take("first", 1)).await];
    for number in 0..50 {
        tasks.push(ask(&layer, take(&format!("{number}"), 1)).await);
    }
    assert_eq!((engine.begun(), layer.queued()), (vec![1], 50));
    engine.let_in(1);
    settle().await;
    assert_eq!((engine.begun(), layer.queued()), (vec![1, 50], 0), "one follow-up call, with all that waited");
    engine.let_in(1);
    for task in tasks {
        assert!(task.await.unwrap().record().unwrap().allowed);
    }
    assert_eq!((engine.begun(), engine.most()), (vec![1, 50], 1));
}

#[tokio::test]
async fn a_lane_may_have_several_calls_in_flight_and_then_all_others_wait() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(1).in_flight(2).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for _ in 0..12 {
        tasks.push(ask(&layer, take("a", 1)).await);
    }
    assert_eq!((engine.begun(), layer.queued()), (vec![1, 1], 10));
    engine.let_in(1);
    settle().await;
    assert_eq!((engine.begun(), layer.queued()), (vec![1, 1, 10], 0), "whichever ends first, all that wait go");
    tasks.push(ask(&layer, take("a", 1)).await);
    assert_eq!(layer.queued(), 1, "two calls are in flight again");
    engine.let_in(3);
    for task in tasks {
        assert!(task.await.unwrap().record().unwrap().allowed);
    }
    assert_eq!((engine.begun(), engine.most()), (vec![1, 1, 10, 1], 2));
    // Both tasks have ended, and a lone check starts one of them anew.
    engine.let_in(1);
    assert!(ask(&layer, take("a", 1)).await.await.unwrap().record().is_ok());
}

#[tokio::test]
async fn a_call_holds_no_more_than_its_bound_and_keeps_the_order_of_arrival() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(1).max_batch(4).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for number in 0..11 {
        tasks.push(ask(&layer, take(&format!("{number}"), 1)).await);
    }
    engine.let_in(10);
    for task in tasks {
        task.await.unwrap().record().unwrap();
    }
    assert_eq!(engine.begun(), [1, 4, 4, 2]);
    let seen: Vec<Request> = engine.calls().concat().into_iter().map(|(request, _)| request).collect();
    assert_eq!(seen, (0..11).map(|number| take(&format!("{number}"), 1)).collect::<Vec<_>>());
}

#[tokio::test]
async fn requests_that_repeat_the_one_before_them_take_an_eighth_of_the_room() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(1).max_batch(4).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for number in 0..63 {
        // One that differs among the last.
        tasks.push(ask(&layer, take(if number == 60 { "other" } else { "busy" }, 1)).await);
    }
    engine.let_in(10);
    for task in tasks {
        task.await.unwrap().record().unwrap();
    }
    // Of a room of 32 eighths the first takes 8, and each after it one; the one that differs and the next take 8 each, and the last finds no room.
    assert_eq!(engine.begun(), [1, 25, 25, 11, 1]);
}

#[tokio::test]
async fn a_key_rides_one_lane_and_each_lane_has_one_call_in_flight() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(8).max_batch(5).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for round in 0..5 {
        for number in 0..100 {
            tasks.push(ask(&layer, take(&format!("{number}"), 1 + round % 2)).await);
        }
        assert_eq!(engine.begun().len(), 8, "100 keys fill 8 lanes, and each waits for its one call");
    }
    engine.let_in(1_000);
    for task in tasks {
        task.await.unwrap().record().unwrap();
    }
    assert_eq!((engine.most(), engine.races()), (8, 0), "no key was in two calls at a time");
}

#[tokio::test]
async fn layered_requests_of_one_scope_ride_one_lane() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(8).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for number in 0..50 {
        tasks.push(ask(&layer, layered("tenant-7", &[&format!("user-{number}"), "tenant"])).await);
    }
    assert_eq!((engine.begun(), layer.queued()), (vec![1], 49));
    for number in 0..50 {
        tasks.push(ask(&layer, layered(&format!("tenant-{number}"), &["user", "tenant"])).await);
    }
    assert_eq!(engine.begun().len(), 8, "other scopes ride other lanes");
    engine.let_in(100);
    for task in tasks {
        task.await.unwrap().record().unwrap();
    }
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_says_so() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(1).max_queue(3).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(ask(&layer, take("a", 1)).await);
    }
    let refused = ask(&layer, take("a", 1)).await.await.unwrap();
    assert_eq!(kind(&refused), ErrorKind::Overloaded);
    assert!(kind(&refused).is_certain());
    assert_eq!(
        refused.record().unwrap_err().to_string(),
        "group-commit: overloaded: 3 requests wait for the store already"
    );
    engine.let_in(2);
    for task in tasks {
        task.await.unwrap().record().unwrap();
    }
    assert_eq!(engine.begun(), [1, 3]);
    engine.let_in(1);
    assert!(ask(&layer, take("a", 1)).await.await.unwrap().record().is_ok(), "there is room again");
}

#[tokio::test]
async fn a_batch_with_a_given_instant_is_passed_on_as_it_is() {
    let engine = Recorder::gated(0);
    let layer = one_lane(&engine);
    let waiting = ask(&layer, take("a", 1)).await;
    let at = Instant::from_micros(77_000_000).unwrap();
    let requests = vec![take("b", 1), take("c", 1), take("b", 1)];
    let replay = Arc::new(Batch { requests: requests.clone(), at: Some(at) });
    let replayed = tokio::spawn({
        let layer = Arc::clone(&layer);
        async move { layer.submit(replay).await }
    });
    settle().await;
    assert_eq!(engine.begun(), [1, 3], "it waits for no call");
    engine.let_in(2);
    assert!(replayed.await.unwrap().iter().all(|outcome| outcome.record().unwrap().at == at));
    waiting.await.unwrap().record().unwrap();
    let seen: Vec<Request> = engine.calls()[1].iter().map(|(request, _)| request.clone()).collect();
    assert_eq!(seen, requests, "and nothing in it is moved");
}

#[tokio::test]
async fn a_batch_stays_together_and_a_large_one_goes_in_parts() {
    let engine = Recorder::open();
    let layer = GroupCommit::builder().max_batch(4).wrap(engine.clone());
    // Equal ones apart, so that they are moved and the outcomes have to be moved back.
    let requests: Vec<Request> = (0..10).map(|number| take(if number % 2 == 0 { "a" } else { "b" }, 30)).collect();
    let outcomes = layer.submit(Arc::new(Batch { requests, at: None })).await;
    let allowed: Vec<bool> = outcomes.iter().map(|outcome| outcome.record().unwrap().allowed).collect();
    assert_eq!(allowed, [true, true, true, true, true, true, false, false, false, false]);
    assert_eq!(engine.begun(), [4, 4, 2]);
    assert!(layer.submit(Arc::new(Batch::default())).await.is_empty());
}

#[tokio::test]
async fn switched_off_each_request_is_a_call_of_its_own() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().enabled(false).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(ask(&layer, take(&format!("{number}"), 1)).await);
    }
    assert_eq!((engine.begun(), layer.queued()), (vec![1; 20], 0));
    engine.let_in(20);
    for task in tasks {
        task.await.unwrap().record().unwrap();
    }
}

#[tokio::test]
async fn it_prints_what_it_wraps() {
    let memory: Arc<dyn Backend> = Arc::new(Memory::new());
    let inner = format!("{memory:?}");
    let layer = GroupCommit::builder().lanes(8).wrap(Arc::clone(&memory));
    assert_eq!(layer.to_string(), "GroupCommit(8 lanes, 128 max, memory)");
    assert_eq!(format!("{layer:?}"), format!("GroupCommit(8 lanes, 128 max, {inner})"));
    assert_eq!(layer.capabilities(), memory.capabilities());
    assert_eq!(GroupCommit::builder().enabled(false).wrap(memory).to_string(), "GroupCommit(off, memory)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_thousand_checks_of_a_hot_key_admit_exactly_the_limit() {
    let layer = GroupCommit::builder().max_queue(100_000).wrap(Arc::new(Memory::new()));
    let limiter = RateLimiter::new(Arc::new(layer), "hot", hourly(7_777));
    let tasks: Vec<_> = (0..100_000)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("a").await.unwrap().allowed })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += u32::from(task.await.unwrap());
    }
    assert_eq!(admitted, 7_777);
}

/// A lane that falls idle just as somebody arrives: the arrival has to be taken by the task that ends, or start its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lane_that_falls_idle_strands_nobody() {
    let layer = GroupCommit::builder().lanes(1).wrap(Arc::new(Memory::new()));
    let limiter = RateLimiter::new(Arc::new(layer), "idle", hourly(50_000));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for _ in 0..10_000 {
                    assert!(limiter.check("a").await.unwrap().allowed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
