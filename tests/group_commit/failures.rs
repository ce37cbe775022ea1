//! Engines that fail, panic, miscount or never come back, and runtimes that are not there.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limiter::layer::GroupCommit;
use limiter::{Backend, Batch, ErrorKind, Outcome};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time;

use crate::engine::{Manner, Recorder, ask, kind, settle, take};

const UNKNOWN: ErrorKind = ErrorKind::Unknown { in_flight: false };
const IN_FLIGHT: ErrorKind = ErrorKind::Unknown { in_flight: true };

/// A call of one and a call of three, both of which meet the engine in this manner.
async fn all_meet(manner: Manner) -> Vec<Outcome> {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().lanes(1).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "b"] {
        tasks.push(ask(&layer, take(name, 1)).await);
    }
    engine.behave(manner);
    engine.let_in(2);
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    assert_eq!(engine.begun(), [1, 3]);
    engine.behave(Manner::Decide);
    engine.let_in(1);
    assert!(ask(&layer, take("d", 1)).await.await.unwrap().record().is_ok(), "the lane goes on after {manner:?}");
    outcomes
}

#[tokio::test]
async fn a_failure_reaches_each_that_waits() {
    for (manner, expected) in [
        (Manner::NotSent, ErrorKind::NotSent),
        (Manner::Unknown, IN_FLIGHT),
        (Manner::Panic, IN_FLIGHT),
        (Manner::Short(1), UNKNOWN),
        (Manner::Short(9), UNKNOWN),
        (Manner::Long, UNKNOWN),
    ] {
        for outcome in all_meet(manner).await {
            assert_eq!(kind(&outcome), expected, "{manner:?}");
            assert_eq!(matches!(outcome, Outcome::NotSent(_)), expected.is_certain());
        }
    }
}

#[tokio::test]
async fn a_miscount_names_the_engine() {
    let outcome = all_meet(Manner::Long).await.remove(0);
    let text = "memory: unknown: the engine did not give one outcome for each request";
    assert_eq!(outcome.record().unwrap_err().to_string(), text);
}

/// The instant at which each is told, in seconds from now.
async fn told(tasks: Vec<JoinHandle<Outcome>>) -> Vec<(u64, ErrorKind)> {
    let start = time::Instant::now();
    let mut told = Vec::new();
    for task in tasks {
        let outcome = task.await.unwrap();
        told.push((start.elapsed().as_secs(), kind(&outcome)));
    }
    told
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_past_the_deadline() {
    let engine = Recorder::gated(0);
    let layer =
        Arc::new(GroupCommit::builder().lanes(1).max_batch(2).deadline(Duration::from_secs(10)).wrap(engine.clone()));
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        tasks.push(ask(&layer, take(name, 1)).await);
    }
    time::sleep(Duration::from_secs(4)).await;
    let mut after = vec![ask(&layer, take("e", 1)).await];
    // `a` is in flight all the time, and `b`, `c`, `d` are never sent; `e` goes when the call is given up, at 10, and has 4 s left.
    assert_eq!(
        told(tasks).await,
        [(6, IN_FLIGHT), (6, ErrorKind::NotSent), (6, ErrorKind::NotSent), (6, ErrorKind::NotSent)]
    );
    settle().await;
    assert_eq!(engine.begun(), [1, 1]);
    after.push(ask(&layer, take("f", 1)).await);
    assert_eq!(told(after).await, [(4, IN_FLIGHT), (10, ErrorKind::NotSent)]);
    // The call of `e` has its own 10 s, until 20; then the lane goes on.
    engine.let_in(1);
    assert!(ask(&layer, take("g", 1)).await.await.unwrap().record().is_ok());
    assert_eq!(engine.begun(), [1, 1, 1]);
    assert_eq!(engine.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_still_waits_is_told_in_time_while_a_call_goes_on() {
    let engine = Recorder::gated(0);
    let layer =
        Arc::new(GroupCommit::builder().lanes(1).max_batch(1).deadline(Duration::from_secs(10)).wrap(engine.clone()));
    let first = ask(&layer, take("a", 1)).await;
    let tasks = vec![ask(&layer, take("b", 1)).await, ask(&layer, take("c", 1)).await];
    time::sleep(Duration::from_secs(3)).await;
    engine.let_in(1);
    assert!(first.await.unwrap().record().is_ok());
    settle().await;
    assert_eq!(engine.begun(), [1, 1], "the call of `b` may go on until 13");
    assert_eq!(told(tasks).await, [(7, IN_FLIGHT), (7, ErrorKind::NotSent)]);
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_a_caller_waits_as_long_as_the_engine() {
    let engine = Recorder::gated(0);
    let layer = Arc::new(GroupCommit::builder().deadline(None).wrap(engine.clone()));
    let waiting = ask(&layer, take("a", 1)).await;
    time::sleep(Duration::from_hours(24)).await;
    assert!(!waiting.is_finished());
    engine.let_in(1);
    assert!(waiting.await.unwrap().record().is_ok());
}

#[test]
fn outside_a_runtime_nothing_is_sent() {
    let engine = Recorder::open();
    let layer = GroupCommit::new(engine.clone());
    let asked = pin!(layer.submit(Arc::new(Batch::of(take("a", 1)))));
    let Poll::Ready(outcomes) = asked.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it must not wait for a runtime");
    };
    assert_eq!(kind(&outcomes[0]), ErrorKind::NotSent);
    assert!(engine.begun().is_empty());
}

#[test]
fn without_a_timer_nothing_is_sent_unless_no_deadline_is_kept() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let engine = Recorder::open();
    let asked = |layer: GroupCommit| runtime.block_on(layer.submit(Arc::new(Batch::of(take("a", 1))))).remove(0);
    assert_eq!(kind(&asked(GroupCommit::new(engine.clone()))), ErrorKind::NotSent);
    assert!(engine.begun().is_empty());
    assert!(asked(GroupCommit::builder().deadline(None).wrap(engine.clone())).record().is_ok());
}
