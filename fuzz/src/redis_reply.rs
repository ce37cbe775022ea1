//! The script's reply.

use std::sync::Arc;

use limiter_core::fold::Plan;
use limiter_core::script::{Answer, Exchange};
use limiter_core::{Batch, Check, Instant, Key, MAX_BURST, Op, Outcome, Request};

use crate::draw::Draw;

const NONCE: u64 = 77;

/// Whatever the server replies there is one outcome for each request, which is the core's verdict or not known.
///
/// The batch is drawn first; the rest is the reply, or the numbers of one that has the right form.
///
/// # Panics
/// If not.
pub fn redis_reply(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let kind = draw.byte();
    let at = (kind & 1 == 1).then(|| draw.instant(Instant::EPOCH));
    let mut requests: Vec<Request> = Vec::new();
    for _ in 0..=draw.byte() % 8 {
        if let Some(last) = requests.last()
            && draw.byte() % 2 == 0
        {
            requests.push(last.clone());
        } else {
            requests.extend(request(&mut draw));
        }
    }
    let batch = Arc::new(Batch { requests, at });
    let reply = match kind >> 1 & 3 {
        0 => draw.0.to_vec(),
        1 => [&NONCE.to_le_bytes(), draw.0].concat(),
        2 => composed(&mut draw, &batch),
        _ => [&composed(&mut draw, &batch), draw.0].concat(),
    };
    let mut exchange = Exchange::new("fuzz", Arc::clone(&batch), NONCE);
    exchange.answer(Answer::Reply(&reply));
    assert!(exchange.command().is_none(), "a reply is the end of it");
    let outcomes = exchange.outcomes();
    assert_eq!(outcomes.len(), batch.requests.len());
    for (outcome, request) in outcomes.iter().zip(&batch.requests) {
        let allowed = match outcome {
            Outcome::Allowed(_) => true,
            Outcome::Denied(_) => false,
            Outcome::Unknown(error) => {
                assert!(!error.kind().is_certain(), "{error}");
                continue;
            }
            Outcome::NotSent(error) => panic!("there was a reply: {error}"),
        };
        let decisions = outcome.decisions(request).expect("the core agrees");
        assert_eq!(decisions.allowed, allowed);
        assert!(batch.at.is_none_or(|at| at == decisions.at), "another instant than the one that was given");
        assert_eq!(decisions.layers().len(), request.checks().len());
    }
}

fn request(draw: &mut Draw<'_>) -> Option<Request> {
    let kind = draw.byte();
    let op = match kind % 8 {
        0..=4 => Op::Take,
        5 => Op::Peek,
        6 => Op::Refund { taken: draw.instant(Instant::EPOCH) },
        _ => Op::Reset,
    };
    let mut checks = Vec::new();
    for _ in 0..=kind >> 3 & 3 {
        let key = Key::new("t", "r", [[draw.byte() % 4]]);
        let limit = draw.limit()?;
        let most = if matches!(op, Op::Refund { .. }) { MAX_BURST } else { limit.capacity() };
        checks.push(Check::new(key, limit, draw.up_to(most)));
    }
    Request::new(op, checks).ok()
}

/// A reply of the right form, and of any numbers.
fn composed(draw: &mut Draw<'_>, batch: &Batch) -> Vec<u8> {
    let mut reply = NONCE.to_le_bytes().to_vec();
    let now = batch.at.unwrap_or_else(|| draw.instant(Instant::EPOCH));
    put(&mut reply, i64::try_from(now.micros()).unwrap_or_default());
    for step in Plan::of(batch).steps() {
        let count = draw.byte();
        let count = if count == 255 { u32::MAX } else { u32::from(count) % (step.count() + 2) };
        reply.extend_from_slice(&count.to_le_bytes());
        for _ in 0..4 * step.numbers().len() {
            number(&mut reply, draw, now);
        }
    }
    reply
}

fn number(reply: &mut Vec<u8>, draw: &mut Draw<'_>, now: Instant) {
    let known = i64::try_from(now.micros()).unwrap_or_default();
    match draw.byte() % 8 {
        0 => put(reply, 0),
        1 => put(reply, known),
        2 => put(reply, known + i64::try_from(draw.number(6)).unwrap_or_default()),
        3 => put(reply, known - i64::try_from(draw.number(6)).unwrap_or_default()),
        4 => put(reply, -1 - i64::from(draw.byte())),
        5 => put(reply, i64::try_from(draw.up_to(1 << 53)).unwrap_or_default()),
        6 => reply.extend_from_slice(&draw.number(8).to_le_bytes()),
        _ => put(reply, i64::try_from(draw.number(2)).unwrap_or_default()),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number that is not exact is one more that a store may send")]
fn put(reply: &mut Vec<u8>, number: i64) {
    reply.extend_from_slice(&(number as f64).to_le_bytes());
}
