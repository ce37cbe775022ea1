//! A state as a store hands it back.

use limiter_core::{Cell, Check, Decision, Instant, Key, Limit, MAX_BURST, Op, Request, State, decide};

use crate::draw::Draw;

/// Bytes are one spelling of a sound state, or refused; a sound state stays so whatever is done, and each answer says what is.
///
/// A byte tells how many of the next are the state's; what is done follows.
///
/// # Panics
/// If not.
pub fn state_bytes(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let length = usize::from(draw.byte());
    let stored = draw.take(length);
    let Ok(state) = State::from_bytes(stored) else { return };
    assert_eq!(bytes_of(&state), stored, "another spelling of {state:?}");
    let mut cell = Cell { state: Some(state), version: 7 };
    for _ in 0..16 {
        if draw.is_empty() {
            return;
        }
        let Some(limit) = draw.limit() else { continue };
        let known = cell.state.as_ref().map_or(Instant::EPOCH, State::latest);
        let now = draw.instant(known);
        let op = match draw.byte() % 8 {
            0..=3 => Op::Take,
            4 => Op::Peek,
            5 => Op::Refund { taken: known },
            6 => Op::Refund { taken: draw.instant(known) },
            _ => Op::Reset,
        };
        let most = if matches!(op, Op::Refund { .. }) { MAX_BURST } else { limit.capacity() };
        step(&mut cell, op, &limit, draw.up_to(most), now);
    }
}

fn step(cell: &mut Cell, op: Op, limit: &Limit, cost: u64, now: Instant) {
    let request = Request::new(op, [Check::new(Key::new("t", "r", ["k"]), *limit, cost)]).expect("a sound request");
    let before = cell.clone();
    let record = decide(&request, now, cell);
    let decisions = record.decisions(&request).expect("the core agrees with itself");
    assert_eq!(record.layers()[0].view.check(), Ok(()));
    if let Some(state) = &cell.state {
        // By its bytes: a log that has dropped entries is the same as one that never had them.
        let bytes = bytes_of(state);
        let again = State::from_bytes(&bytes).map(|state| bytes_of(&state));
        assert_eq!(again, Ok(bytes), "after {op} {cost} at {now:?} by {limit}");
    }
    let asks = matches!(op, Op::Take | Op::Peek);
    if op == Op::Peek || asks && (cost == 0 || !decisions.allowed) {
        assert_eq!(*cell, before, "{op} {cost} at {now:?} by {limit} changed it");
    }
    let cost = if asks { cost } else { 0 };
    if op != Op::Peek || cost == 0 || !decisions.allowed {
        told(cell, &decisions.layers()[0], limit, cost, now);
    }
}

/// What remains, and when more will.
fn told(after: &Cell, told: &Decision, limit: &Limit, cost: u64, now: Instant) {
    let fresh = State::fresh(limit.algorithm());
    let state = after.state.as_ref().unwrap_or(&fresh);
    let admits = |at: Instant, cost: u64| state.view(limit, at, cost).admits(limit, at, cost);
    let context = || format!("{told:?} of {state:?} by {limit}, asked for {cost} at {now:?}");
    assert!(told.remaining <= limit.capacity(), "{}", context());
    assert!(admits(now, told.remaining), "less remains: {}", context());
    assert!(told.remaining == limit.capacity() || !admits(now, told.remaining + 1), "more remains: {}", context());
    let later = |wait: u128| u64::try_from(wait).ok().and_then(|wait| Instant::from_micros(now.micros() + wait).ok());
    assert_eq!(told.retry_after.is_none(), told.allowed, "{}", context());
    if let Some(wait) = told.retry_after {
        assert!(!wait.is_zero(), "{}", context());
        // Past the last instant nobody asks.
        assert!(later(wait.as_micros()).is_none_or(|at| admits(at, cost)), "a longer wait: {}", context());
        assert!(later(wait.as_micros() - 1).is_none_or(|at| !admits(at, cost)), "a shorter wait: {}", context());
    }
    let reset = later(told.reset_after.as_micros());
    assert!(reset.is_none_or(|at| admits(at, limit.capacity())), "reset later: {}", context());
}

fn bytes_of(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.write_bytes(&mut bytes);
    bytes
}
