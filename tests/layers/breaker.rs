//! The breaker and the deadline around engines that fail.

use std::sync::Arc;
use std::time::Duration;

use limiter::layer::{Breaker, BreakerState, Deadline};
use limiter::{Backend, Batch, Error, ErrorKind, Outcome};
use tokio::time::{self, Instant};

use crate::engine::{Engine, Manner, kind, paused, submit, take};

const LIMIT: &str = "1000/1h fixed-window";
const WITHIN: Duration = Duration::from_millis(50);

fn guarded(engine: &Arc<Engine>) -> Breaker {
    Breaker::new(Arc::new(Deadline::new(Arc::<Engine>::clone(engine), WITHIN)))
}

/// Asks every 10 ms until the breaker is open.
async fn until_open(breaker: &Breaker) -> Vec<ErrorKind> {
    let mut kinds = Vec::new();
    while breaker.state() != BreakerState::Open {
        kinds.push(kind(&submit(breaker, &take("0", LIMIT)).await));
        time::advance(Duration::from_millis(10)).await;
        assert!(kinds.len() < 100, "it never opens: {kinds:?}");
    }
    kinds
}

#[test]
fn a_dead_store_and_a_slow_one_are_left_alone_alike_and_found_again() {
    for manner in
        [Manner::Fail(ErrorKind::NotSent), Manner::Fail(ErrorKind::Unknown { in_flight: false }), Manner::Hang]
    {
        paused().block_on(async {
            let engine = Engine::new();
            let breaker = guarded(&engine);
            assert!(submit(&breaker, &take("0", LIMIT)).await.record().is_ok());
            engine.behave(manner);
            assert_eq!(until_open(&breaker).await.len(), 5, "{manner:?}");
            let (calls, begun) = (engine.calls(), Instant::now());
            for _ in 0..1_000 {
                assert_eq!(kind(&submit(&breaker, &take("0", LIMIT)).await), ErrorKind::NotSent);
            }
            assert_eq!((engine.calls(), begun.elapsed()), (calls, Duration::ZERO), "a dead store costs nothing");
            assert_eq!(breaker.spared(), 1_000);
            // It stays dead for ten seconds: two probes a second at most, and no call longer than the deadline.
            for _ in 0..1_000 {
                time::advance(Duration::from_millis(10)).await;
                let asked = Instant::now();
                assert!(submit(&breaker, &take("0", LIMIT)).await.record().is_err());
                assert!(asked.elapsed() <= WITHIN + Duration::from_millis(1));
            }
            assert!(engine.calls() - calls <= 25, "{} probes", engine.calls() - calls);
            engine.behave(Manner::Decide);
            let healed = Instant::now();
            while submit(&breaker, &take("0", LIMIT)).await.record().is_err() {
                time::advance(Duration::from_millis(10)).await;
            }
            assert!(healed.elapsed() <= Duration::from_millis(510), "{:?}", healed.elapsed());
            assert!(submit(&breaker, &take("0", LIMIT)).await.record().is_ok());
            assert_eq!(breaker.state(), BreakerState::Closed);
        });
    }
}

#[test]
fn a_store_that_says_no_is_there() {
    for kind in [ErrorKind::Refused, ErrorKind::Full, ErrorKind::Contended, ErrorKind::Overloaded] {
        paused().block_on(async {
            let engine = Engine::new();
            let breaker = guarded(&engine);
            engine.behave(Manner::Fail(kind));
            for _ in 0..1_000 {
                assert_eq!(crate::engine::kind(&submit(&breaker, &take("0", LIMIT)).await), kind);
                time::advance(Duration::from_millis(10)).await;
            }
            assert_eq!((breaker.state(), engine.calls()), (BreakerState::Closed, 1_000), "{kind:?}");
        });
    }
}

#[test]
fn a_probe_whose_caller_goes_does_not_keep_it_open() {
    paused().block_on(async {
        let engine = Engine::new();
        let breaker = guarded(&engine);
        engine.behave(Manner::Hang);
        until_open(&breaker).await;
        time::advance(Duration::from_millis(100)).await;
        let given_up = time::timeout(Duration::from_millis(1), submit(&breaker, &take("0", LIMIT))).await;
        assert!(given_up.is_err() && breaker.state() == BreakerState::HalfOpen);
        engine.behave(Manner::Decide);
        for _ in 0..2 {
            assert!(submit(&breaker, &take("0", LIMIT)).await.record().is_ok());
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    });
}

#[test]
fn what_was_sent_and_not_answered_is_unknown_and_counted_once() {
    paused().block_on(async {
        let engine = Engine::new();
        let deadline = Deadline::new(Arc::<Engine>::clone(&engine), WITHIN);
        engine.behave(Manner::Hang);
        let outcome = submit(&deadline, &take("0", "10/1h fixed-window")).await;
        assert!(matches!(outcome, Outcome::Unknown(_)));
        assert_eq!((kind(&outcome), deadline.missed()), (ErrorKind::Unknown { in_flight: true }, 1));
        engine.behave(Manner::Decide);
        let left = submit(&deadline, &take("0", "10/1h fixed-window")).await;
        let ask = take("0", "10/1h fixed-window");
        assert_eq!(left.decisions(&ask).unwrap().layers()[0].remaining, 8, "the first was applied, once");
    });
}

#[test]
fn a_replay_is_never_spared() {
    paused().block_on(async {
        let engine = Engine::new();
        let breaker = guarded(&engine);
        engine.behave(Manner::Fail(ErrorKind::NotSent));
        until_open(&breaker).await;
        let calls = engine.calls();
        let at = Some(limiter::Instant::from_micros(1_000_000).unwrap());
        let outcomes = breaker.submit(Arc::new(Batch { requests: vec![take("0", LIMIT)], at })).await;
        assert_eq!(outcomes[0].record().map_err(Error::engine).unwrap_err(), "engine");
        assert_eq!(engine.calls(), calls + 1);
    });
}
