//! Callers that go before their answer comes, and the layer's own end.

use std::sync::Arc;
use std::time::Duration;

use limiter::layer::GroupCommit;
use limiter::{Backend, Batch, ErrorKind, Request};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time;

use crate::engine::{Recorder, ask, kind, settle, take};

fn one_lane(engine: &Arc<Recorder>) -> Arc<GroupCommit> {
    Arc::new(GroupCommit::builder().lanes(1).max_queue(2).wrap(engine.clone()))
}

fn seen(engine: &Recorder) -> Vec<Request> {
    engine.calls().concat().into_iter().map(|(request, _)| request).collect()
}

#[tokio::test]
async fn a_caller_that_goes_while_it_waits_is_not_sent() {
    let engine = Recorder::gated(0);
    let layer = one_lane(&engine);
    let first = ask(&layer, take("first", 1)).await;
    let gone = ask(&layer, take("gone", 1)).await;
    let stays = ask(&layer, take("stays", 1)).await;
    gone.abort();
    settle().await;
    engine.let_in(9);
    first.await.unwrap().record().unwrap();
    stays.await.unwrap().record().unwrap();
    assert_eq!(seen(&engine), [take("first", 1), take("stays", 1)]);
}

#[tokio::test]
async fn a_caller_that_goes_frees_its_place() {
    let engine = Recorder::gated(0);
    let layer = one_lane(&engine);
    let first = ask(&layer, take("first", 1)).await;
    for _ in 0..10 {
        let (one, other) = (ask(&layer, take("a", 1)).await, ask(&layer, take("b", 1)).await);
        assert_eq!(kind(&ask(&layer, take("c", 1)).await.await.unwrap()), ErrorKind::Overloaded);
        assert!(!one.is_finished() && !other.is_finished(), "both found a place");
        one.abort();
        other.abort();
        settle().await;
    }
    engine.let_in(9);
    first.await.unwrap().record().unwrap();
    settle().await;
    assert_eq!(engine.begun(), [1], "nobody is left to send for");
}

#[tokio::test]
async fn a_caller_that_goes_while_the_call_is_in_flight_is_applied_once() {
    let engine = Recorder::gated(0);
    let layer = one_lane(&engine);
    let gone = ask(&layer, take("a", 40)).await;
    let follower = ask(&layer, take("a", 60)).await;
    gone.abort();
    settle().await;
    engine.let_in(9);
    assert!(follower.await.unwrap().record().unwrap().allowed, "the follower is not stranded");
    assert!(!ask(&layer, take("a", 1)).await.await.unwrap().record().unwrap().allowed, "40 and 60 were taken");
    assert_eq!(seen(&engine), [take("a", 40), take("a", 60), take("a", 1)]);
}

#[tokio::test]
async fn a_future_that_is_never_polled_again_asks_for_nothing() {
    let engine = Recorder::open();
    let layer = one_lane(&engine);
    drop(layer.submit(Arc::new(Batch::of(take("a", 1)))));
    settle().await;
    assert!(engine.begun().is_empty());
}

#[tokio::test]
async fn no_task_is_left_when_nobody_waits_or_the_layer_is_dropped() {
    let engine = Recorder::gated(0);
    let layer = one_lane(&engine);
    let alive = || Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive(), 0, "an idle layer has none");
    let waiting = ask(&layer, take("a", 1)).await;
    assert_eq!(alive(), 2, "the caller and the lane");
    waiting.abort();
    drop(layer);
    settle().await;
    engine.let_in(1);
    settle().await;
    assert_eq!(alive(), 0);
    assert_eq!(seen(&engine), [take("a", 1)], "the call came to its end");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_keeps_no_task_past_the_deadline() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().deadline(Duration::from_secs(3)).wrap(engine.clone()));
    let waiting = ask(&layer, take("a", 1)).await;
    waiting.abort();
    drop(layer);
    time::sleep(Duration::from_secs(4)).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

/// Waits until calls of that many requests have begun, and that many wait.
fn until(engine: &Recorder, layer: &GroupCommit, calls: &[usize], queued: usize) {
    while (&*engine.begun(), layer.queued()) != (calls, queued) {
        std::thread::yield_now();
    }
}

/// A layer may be shared by runtimes, and outlive the one that has a call in flight.
#[test]
fn a_runtime_that_ends_strands_nobody() {
    let engine = Recorder::gated(0);
    let layer = one_lane(&engine);
    let (first, second) = (runtime(), runtime());
    let caller = |runtime: &Runtime, name: &str| runtime.block_on(ask(&layer, take(name, 1)));
    // The lane's task is the first runtime's; who waits is the second's.
    drop(caller(&first, "in flight"));
    until(&engine, &layer, &[1], 0);
    let waits = caller(&second, "waits");
    until(&engine, &layer, &[1], 1);
    first.shutdown_timeout(Duration::from_secs(5));
    assert_eq!(kind(&second.block_on(waits).unwrap()), ErrorKind::NotSent);
    // The lane is free for a task of the second.
    engine.let_in(1);
    second.block_on(async { ask(&layer, take("after", 1)).await.await.unwrap().record().unwrap().allowed });
    assert_eq!(seen(&engine), [take("after", 1)]);
}

#[test]
fn a_runtime_that_ends_leaves_those_who_wait_to_another_call() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(1).in_flight(2).wrap(engine.clone()));
    let (first, second) = (runtime(), runtime());
    let caller = |runtime: &Runtime, name: &str| runtime.block_on(ask(&layer, take(name, 1)));
    drop(caller(&first, "of the first"));
    until(&engine, &layer, &[1], 0);
    let own = caller(&second, "of the second");
    until(&engine, &layer, &[1, 1], 0);
    let waits = caller(&second, "waits");
    until(&engine, &layer, &[1, 1], 1);
    first.shutdown_timeout(Duration::from_secs(5));
    engine.let_in(2);
    for task in [own, waits] {
        assert!(second.block_on(task).unwrap().record().unwrap().allowed);
    }
    assert_eq!(seen(&engine), [take("of the second", 1), take("waits", 1)]);
    // The place of the call that broke off is free.
    engine.let_in(1);
    assert!(second.block_on(async { ask(&layer, take("after", 1)).await.await.unwrap().record().unwrap().allowed }));
}
