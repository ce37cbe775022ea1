//! The conversation with Redis, played with made-up answers: what is sent, what is sent again, and what each answer means.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::sync::Arc;

use limiter_core::script::{Answer, Exchange, Program, TEXT, digest};
use limiter_core::{Batch, Check, Error, ErrorKind, Instant, Key, Limit, Op, Outcome, Request};

const NONCE: u64 = 77;

fn batch(requests: usize) -> Arc<Batch> {
    let limit: Limit = "5/1s fixed-window".parse().unwrap();
    let request = Request::take(Key::new("t", "api", ["a"]), limit, 1).unwrap();
    Arc::new(Batch { requests: vec![request; requests], at: None })
}

fn exchange(requests: usize) -> Exchange {
    Exchange::new("test", batch(requests), NONCE)
}

/// A reply to equal requests of one fixed window: `allowed` of them, with 3 of 5 units taken before.
fn reply(nonce: u64, allowed: u32) -> Vec<u8> {
    let mut reply = nonce.to_le_bytes().to_vec();
    reply.extend_from_slice(&1_000_000_f64.to_le_bytes());
    reply.extend_from_slice(&allowed.to_le_bytes());
    for number in [1_000_000_f64, 3.0, 0.0, 42.0] {
        reply.extend_from_slice(&number.to_le_bytes());
    }
    reply
}

fn kinds(exchange: Exchange) -> Vec<Option<ErrorKind>> {
    exchange.outcomes().iter().map(|outcome| outcome.record().err().map(Error::kind)).collect()
}

#[test]
fn a_script_that_the_server_lacks_is_sent_along_once() {
    let mut exchange = exchange(1);
    let first = exchange.command().unwrap();
    assert_eq!(first.program, Program::Digest(digest()));
    let (keys, argument) = (first.keys.to_vec(), first.argument.to_vec());
    exchange.answer(Answer::NoScript);
    let second = exchange.command().unwrap();
    assert_eq!(second.program.words(), ["EVAL", TEXT]);
    assert_eq!((second.keys, second.argument), (&keys[..], &argument[..]), "the same call");
    exchange.answer(Answer::NoScript);
    assert!(exchange.command().is_none());
    assert_eq!(kinds(exchange), [Some(ErrorKind::Refused)]);
}

#[test]
fn equal_requests_travel_once_and_come_back_in_order() {
    let (mut five, one) = (exchange(5), exchange(1));
    assert_eq!(five.command().unwrap().argument.len(), one.command().unwrap().argument.len());
    five.answer(Answer::Reply(&reply(NONCE, 2)));
    let outcomes = five.outcomes();
    let told: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            let record = outcome.record().unwrap();
            let decision = record.decisions(&batch(1).requests[0]).unwrap().layers()[0];
            (record.allowed, record.layers()[0].version, decision.remaining)
        })
        .collect();
    assert_eq!(told, [(true, 41, 1), (true, 42, 0), (false, 42, 0), (false, 42, 0), (false, 42, 0)]);
}

#[test]
fn others_at_other_keys_do_not_keep_equal_requests_apart() {
    let limit: Limit = "5/1s fixed-window".parse().unwrap();
    let take = |part: &str| Request::take(Key::new("t", "api", [part]), limit, 1).unwrap();
    let both =
        Request::new(Op::Take, ["a", "b"].map(|part| Check::new(Key::new("t", "api", [part]), limit, 1))).unwrap();
    let steps = |requests: Vec<Request>| {
        let exchange = Exchange::new("test", Arc::new(Batch { requests, at: None }), NONCE);
        let argument = exchange.command().unwrap().argument.to_vec();
        u32::from_le_bytes(argument[21..25].try_into().unwrap())
    };
    assert_eq!(steps(vec![take("a"), take("b"), take("a"), take("b")]), 2);
    assert_eq!(steps(vec![take("a"), both.clone(), take("a"), take("c"), both.clone()]), 5);
    assert_eq!(steps(vec![both.clone(), take("c"), both.clone(), take("b"), both]), 4);
}

#[test]
fn a_reply_to_another_call_is_noticed() {
    let mut exchange = exchange(2);
    exchange.answer(Answer::Reply(&reply(NONCE - 1, 2)));
    assert_eq!(kinds(exchange), [Some(ErrorKind::Unknown { in_flight: true }); 2]);
}

#[test]
fn a_verdict_that_is_not_the_cores_is_no_answer() {
    // 2 of 5 units are left, and the script says that all three passed, or only one.
    for allowed in [3, 1] {
        let mut exchange = exchange(3);
        exchange.answer(Answer::Reply(&reply(NONCE, allowed)));
        assert!(kinds(exchange).contains(&Some(ErrorKind::Divergence)), "{allowed}");
    }
}

#[test]
fn whatever_a_server_replies_there_is_an_outcome_for_each_request() {
    let good = reply(NONCE, 1);
    let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|length| good[..length].to_vec()).collect();
    bad.extend((8..good.len()).map(|at| {
        let mut reply = good.clone();
        reply[at] ^= 0xff;
        reply
    }));
    bad.push([&good[..], &[0]].concat());
    bad.push(reply(NONCE, 2));
    for reply in bad {
        let mut exchange = exchange(1);
        exchange.answer(Answer::Reply(&reply));
        // Another version or start is no less sound than the right one; all else is an error.
        for outcome in exchange.outcomes() {
            match outcome {
                Outcome::Allowed(record) => assert!(record.decisions(&batch(1).requests[0]).unwrap().allowed),
                Outcome::Unknown(_) => {}
                other => panic!("{reply:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_failure_is_every_requests_and_says_whether_it_was_applied() {
    for (kind, sent) in
        [(ErrorKind::NotSent, false), (ErrorKind::Refused, false), (ErrorKind::Unknown { in_flight: true }, true)]
    {
        let mut exchange = exchange(3);
        exchange.answer(Answer::Failed(Error::new("test", kind, "why")));
        assert!(exchange.command().is_none(), "nothing is repeated");
        for outcome in exchange.outcomes() {
            assert_eq!(matches!(outcome, Outcome::Unknown(_)), sent, "{kind:?}");
        }
    }
    assert_eq!(kinds(exchange(2)), [Some(ErrorKind::Unknown { in_flight: true }); 2], "given up");
}

#[test]
fn an_empty_batch_needs_no_call() {
    let exchange = Exchange::new("test", Arc::new(Batch::default()), NONCE);
    assert!(exchange.command().is_none());
    assert!(exchange.outcomes().is_empty());
}

#[test]
fn the_instant_is_the_given_one_or_there_is_no_answer() {
    let given = Batch { at: Some(Instant::EPOCH), ..Batch::clone(&batch(1)) };
    let mut exchange = Exchange::new("test", Arc::new(given), NONCE);
    exchange.answer(Answer::Reply(&reply(NONCE, 1)));
    assert_eq!(kinds(exchange), [Some(ErrorKind::Unknown { in_flight: false })]);
}
