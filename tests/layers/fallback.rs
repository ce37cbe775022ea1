//! What is answered where the store does not decide.

use std::num::NonZeroU32;
use std::sync::Arc;

use limiter::layer::{DenyCache, FailurePolicies, FailurePolicy, Fallback};
use limiter::{Backend, Batch, ErrorKind, Key, Limit, Memory, Op, Outcome, RateLimiter, Request, Source, Stack};

use crate::engine::{Engine, Manner, check, kind, limit, paused, request, submit, take};

const DOWN: [ErrorKind; 3] = [ErrorKind::NotSent, ErrorKind::Refused, ErrorKind::Unknown { in_flight: true }];
const BUSY: [ErrorKind; 3] = [ErrorKind::Full, ErrorKind::Contended, ErrorKind::Overloaded];

fn policies() -> FailurePolicies {
    let policies = FailurePolicies::new(FailurePolicy::Closed);
    policies.set("open", FailurePolicy::Open);
    policies.set("local", FailurePolicy::Local { nodes: NonZeroU32::new(3).unwrap() });
    policies.set("alone", FailurePolicy::Local { nodes: NonZeroU32::MIN });
    policies
}

fn failing(kind: ErrorKind) -> (Arc<Engine>, Fallback) {
    let engine = Engine::new();
    engine.behave(Manner::Fail(kind));
    let fallback = Fallback::new(Arc::<Engine>::clone(&engine), policies());
    (engine, fallback)
}

#[test]
fn a_store_that_decides_is_not_spoken_for() {
    paused().block_on(async {
        let (engine, fallback) = failing(ErrorKind::NotSent);
        engine.behave(Manner::Decide);
        for rule in ["open", "closed", "local"] {
            let ask = take(rule, "1/1h fixed-window");
            for allowed in [true, false] {
                let told = submit(&fallback, &ask).await.decisions(&ask).unwrap();
                assert_eq!((told.allowed, told.source), (allowed, Source::Store));
            }
        }
    });
}

#[test]
fn each_rule_has_its_policy_when_the_store_is_away() {
    for down in DOWN {
        paused().block_on(async {
            let (_, fallback) = failing(down);
            // Open: all pass, none is counted.
            let open = take("open", "1/1h fixed-window");
            for _ in 0..10 {
                let told = submit(&fallback, &open).await.decisions(&open).unwrap();
                assert!(told.allowed && told.source == Source::Open && !told.charged());
                assert!(!told.layers()[0].source.has_numbers());
            }
            assert_eq!(fallback.passed_open(), 10);
            // Closed: the failure as it is, and no denial.
            assert_eq!(kind(&submit(&fallback, &take("closed", "1/1h fixed-window")).await), down);
            // Local: a third of it.
            let local = take("local", "10/1h fixed-window");
            let mut passed = 0;
            for _ in 0..10 {
                let told = submit(&fallback, &local).await.decisions(&local).unwrap();
                assert_eq!((told.source, told.layers()[0].limit), (Source::Local, 3));
                assert_eq!(told.allowed, told.retry_after.is_none());
                passed += u64::from(told.allowed);
            }
            assert_eq!((passed, fallback.passed_local(), fallback.refused_local()), (3, 3, 7));
        });
    }
}

#[test]
fn a_flood_opens_nothing() {
    for busy in BUSY {
        paused().block_on(async {
            let (_, fallback) = failing(busy);
            for rule in ["open", "closed"] {
                assert_eq!(kind(&submit(&fallback, &take(rule, "1/1h fixed-window")).await), busy, "{rule}");
            }
            let local = take("local", "1/1h fixed-window");
            assert!(submit(&fallback, &local).await.decisions(&local).unwrap().allowed);
            assert!(!submit(&fallback, &local).await.decisions(&local).unwrap().allowed);
        });
    }
}

#[test]
fn a_fault_of_the_engine_is_no_outage() {
    paused().block_on(async {
        let (_, fallback) = failing(ErrorKind::Divergence);
        for rule in ["open", "local"] {
            let outcome = submit(&fallback, &take(rule, "1/1h fixed-window")).await;
            assert_eq!(kind(&outcome), ErrorKind::Divergence);
        }
    });
}

#[test]
fn several_limits_go_by_their_own_policies_the_strictest_first() {
    paused().block_on(async {
        let (_, fallback) = failing(ErrorKind::NotSent);
        let of = |rules: &[&str]| request(Op::Take, rules.iter().map(|rule| check(rule, "6/1h sliding-log", 1)));
        // Closed wins, and nothing is counted.
        assert_eq!(kind(&submit(&fallback, &of(&["open", "local", "closed"])).await), ErrorKind::NotSent);
        let both = of(&["open", "local"]);
        for left in [1, 0] {
            let told = submit(&fallback, &both).await.decisions(&both).unwrap();
            assert!(told.allowed && told.source == Source::Open);
            let sources: Vec<Source> = told.layers().iter().map(|layer| layer.source).collect();
            assert_eq!(sources, [Source::Open, Source::Local]);
            assert_eq!(told.layers()[1].remaining, left);
        }
        let told = submit(&fallback, &both).await.decisions(&both).unwrap();
        assert!(!told.allowed && told.retry_after.is_some(), "the local count refuses for both");
        // In the other order of the limits too.
        let turned = of(&["local", "open"]);
        assert!(!submit(&fallback, &turned).await.decisions(&turned).unwrap().allowed);
    });
}

#[test]
fn local_shares_of_all_nodes_are_at_most_the_limit() {
    for text in ["10/1h fixed-window", "10/1h sliding-log", "10/1h sliding-counter", "1/1h token-bucket burst=10"] {
        paused().block_on(async {
            let nodes = [failing(ErrorKind::NotSent).1, failing(ErrorKind::NotSent).1, failing(ErrorKind::NotSent).1];
            let (ask, mut passed) = (take("local", text), 0);
            for round in 0..60 {
                let told = submit(&nodes[round % 3], &ask).await.decisions(&ask).unwrap();
                passed += u64::from(told.allowed);
            }
            assert_eq!(passed, 9, "{text}: three times a third, rounded down");
        });
    }
}

#[test]
fn a_peek_is_answered_and_takes_nothing() {
    paused().block_on(async {
        let (_, fallback) = failing(ErrorKind::NotSent);
        let peek = request(Op::Peek, [check("local", "3/1h fixed-window", 1)]);
        for _ in 0..5 {
            assert!(submit(&fallback, &peek).await.decisions(&peek).unwrap().allowed);
        }
        let ask = take("local", "3/1h fixed-window");
        assert!(submit(&fallback, &ask).await.decisions(&ask).unwrap().allowed);
    });
}

#[test]
fn a_refund_and_a_reset_that_failed_are_told_as_they_are() {
    paused().block_on(async {
        let (engine, fallback) = failing(ErrorKind::Unknown { in_flight: true });
        let ask = take("local", "3/1h fixed-window");
        let told = submit(&fallback, &ask).await.decisions(&ask).unwrap();
        assert!(told.allowed);
        for rule in ["open", "local"] {
            for op in [Op::Refund { taken: told.at }, Op::Reset] {
                let outcome = submit(&fallback, &request(op, [check(rule, "3/1h fixed-window", 1)])).await;
                assert!(matches!(outcome, Outcome::Unknown(_)), "{op} of {rule}");
            }
        }
        assert!(submit(&fallback, &ask).await.decisions(&ask).unwrap().allowed, "a reset forgets what is counted here");
        engine.behave(Manner::Decide);
        assert_eq!(submit(&fallback, &ask).await.decisions(&ask).unwrap().source, Source::Store);
    });
}

#[test]
fn what_was_granted_in_an_outage_is_not_given_back_to_the_store() {
    paused().block_on(async {
        let engine = Engine::new();
        let stack = Stack::builder().rule("api", FailurePolicy::Open).build(Arc::<Engine>::clone(&engine));
        let limiter = RateLimiter::new(Arc::new(stack), "api", limit("2/1h fixed-window"));
        assert!(limiter.check("k").await.unwrap().charged());
        engine.behave(Manner::Fail(ErrorKind::NotSent));
        let open = limiter.check("k").await.unwrap();
        assert!(open.allowed && open.source == Source::Open);
        engine.behave(Manner::Decide);
        let left = limiter.refund("k", 1, &open).await.unwrap();
        assert_eq!(left.remaining, 1, "the store never counted it");
    });
}

#[test]
fn an_outage_of_many_keys_stays_within_the_table() {
    paused().block_on(async {
        let engine = Engine::new();
        engine.behave(Manner::Fail(ErrorKind::NotSent));
        let local = Memory::builder().max_keys(1_000).build();
        let fallback = Fallback::with_memory(Arc::<Engine>::clone(&engine), policies(), local);
        let hourly: Limit = limit("10/1h fixed-window");
        let (mut answered, mut failed) = (0, 0);
        for n in 0..50_000 {
            let ask = Request::take(Key::new("t", "local", [n.to_string()]), hourly, 1).unwrap();
            match submit(&fallback, &ask).await {
                Outcome::Allowed(_) => answered += 1,
                outcome => {
                    assert_eq!(kind(&outcome), ErrorKind::NotSent, "the store's failure");
                    failed += 1;
                }
            }
        }
        assert_eq!((answered, failed, fallback.local_keys()), (1_000, 49_000, 1_000));
    });
}

#[test]
fn a_cost_over_the_share_is_told_as_the_failure_it_is() {
    paused().block_on(async {
        let (_, fallback) = failing(ErrorKind::NotSent);
        let ask = request(Op::Take, [check("local", "10/1h fixed-window", 5)]);
        assert_eq!(kind(&submit(&fallback, &ask).await), ErrorKind::NotSent);
    });
}

#[test]
fn policies_change_while_requests_are_answered() {
    paused().block_on(async {
        let (_, fallback) = failing(ErrorKind::NotSent);
        let ask = take("closed", "1/1h fixed-window");
        assert!(submit(&fallback, &ask).await.record().is_err());
        fallback.policies().set("closed", FailurePolicy::Open);
        assert!(submit(&fallback, &ask).await.record().is_ok());
    });
}

#[test]
fn a_fallback_s_refusal_is_not_taken_for_the_store_s() {
    paused().block_on(async {
        let (engine, fallback) = failing(ErrorKind::NotSent);
        let cached = DenyCache::new(Arc::new(fallback));
        // With one node the share is the limit, so that its state would be believed if it were taken for the store's.
        let ask = take("alone", "1/1h fixed-window");
        for allowed in [true, false, false] {
            let told = submit(&cached, &ask).await.decisions(&ask).unwrap();
            assert_eq!((told.allowed, told.source), (allowed, Source::Local));
        }
        engine.behave(Manner::Decide);
        let told = submit(&cached, &ask).await.decisions(&ask).unwrap();
        assert_eq!((told.allowed, told.source), (true, Source::Store), "the store has counted nothing");
    });
}

#[test]
fn a_batch_is_answered_request_by_request_and_a_replay_hears_the_truth() {
    paused().block_on(async {
        let (_, fallback) = failing(ErrorKind::NotSent);
        let requests: Vec<Request> = ["open", "closed", "local"].map(|rule| take(rule, "3/1h fixed-window")).into();
        let outcomes = fallback.submit(Arc::new(Batch { requests: requests.clone(), at: None })).await;
        assert!(matches!(outcomes[..], [Outcome::Allowed(_), Outcome::NotSent(_), Outcome::Allowed(_)]));
        let at = Some(limiter::Instant::from_micros(1_000_000).unwrap());
        let outcomes = fallback.submit(Arc::new(Batch { requests, at })).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::NotSent(_))));
    });
}
