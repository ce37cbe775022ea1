//! Peek, refund and reset.

use limiter_core::{Check, Instant, Key, Limit, Op, Request};

use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};

case_list! { Operations:
    peek_takes_nothing "however often one asks, nothing is taken",
    cost_of_nothing "a cost of 0 is allowed, even of an exhausted key, and takes nothing",
    denials_write_nothing "a key that is asked in vain opens when it should",
    impossible_cost_leaves_no_trace "a cost over the capacity is an error, and the rest goes on",
    remaining_counts_down "five of five pass with 4, 3, 2, 1, 0 left, and the sixth does not",
    refund_gives_back_once "what was given back can be taken once more, and no more",
    refund_never_above_full "a refund of more than was taken leaves a full key",
    refund_after_the_window "a refund leaves a window or log that has rolled on alone",
    refund_of_layers "a refund of all layers of one request",
    reset_forgets "after a reset the key is as good as never used",
    random_walk "random operations at random instants, also going back",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

const LIMITS: [&str; 5] =
    ["5/10s fixed-window", "5/10s sliding-log", "5/10s sliding-counter", "5/10s token-bucket", "5/10s leaky-bucket"];

/// A limit of each algorithm, and a key for it.
fn subjects(trial: &Trial) -> Result<Vec<(Limit, Key)>, Failure> {
    LIMITS.into_iter().map(|text| Ok((text.parse()?, trial.key("key", [text])))).collect()
}

async fn peek_takes_nothing(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let mut twin = trial.twin().await?;
        for _ in 0..10 {
            let decision = twin.one(Op::Peek, &key, limit, 5, Some(at(T)?)).await?;
            ensure!(decision.allowed && decision.remaining == 5, "{limit}: a fresh key shows {decision:?}");
        }
        let decision = twin.take(&key, limit, 5, Some(at(T)?)).await?;
        ensure!(decision.allowed, "{limit}: peeks have taken something");
        let decision = twin.one(Op::Peek, &key, limit, 1, Some(at(T)?)).await?;
        ensure!(!decision.allowed, "{limit}: a peek would admit what is exhausted");
    }
    Ok(())
}

async fn cost_of_nothing(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let mut twin = trial.twin().await?;
        for cost in [0, 5, 0, 0, 1, 0] {
            let decision = twin.take(&key, limit, cost, Some(at(T)?)).await?;
            ensure!(decision.allowed == (cost != 1), "{limit}: cost {cost} gave {decision:?}");
        }
    }
    Ok(())
}

async fn denials_write_nothing(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let mut twin = trial.twin().await?;
        let _ = twin.take(&key, limit, 5, Some(at(T)?)).await?;
        let first = twin.take(&key, limit, 1, Some(at(T)?)).await?;
        let Some(wait) = first.retry_after else {
            return Err(Failure::new(format!("{limit}: the sixth was admitted")));
        };
        let opens = u64::try_from(wait.as_micros())?;
        // Asking in vain, up to the last µs, must not move the instant at which it opens.
        for part in 1..20 {
            let _ = twin.take(&key, limit, 1, Some(at(T + opens * part / 20)?)).await?;
        }
        let last = twin.take(&key, limit, 1, Some(at(T + opens - 1)?)).await?;
        ensure!(!last.allowed, "{limit}: admitted 1 µs before its wait of {opens} µs");
        let open = twin.take(&key, limit, 1, Some(at(T + opens)?)).await?;
        ensure!(open.allowed, "{limit}: denied after its wait of {opens} µs, having asked in vain");
    }
    Ok(())
}

async fn impossible_cost_leaves_no_trace(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let refused = Request::new(Op::Take, [Check::new(key.clone(), limit, limit.capacity() + 1)]);
        ensure!(refused.is_err(), "{limit}: a cost that can never pass can be asked for");
        let mut twin = trial.twin().await?;
        let decision = twin.take(&key, limit, limit.capacity(), Some(at(T)?)).await?;
        ensure!(decision.allowed && decision.remaining == 0, "{limit}: the whole capacity gave {decision:?}");
    }
    Ok(())
}

async fn remaining_counts_down(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let mut twin = trial.twin().await?;
        let mut admitted = 0;
        for left in [4, 3, 2, 1, 0, 0] {
            let decision = twin.take(&key, limit, 1, Some(at(T)?)).await?;
            ensure!(decision.remaining == left, "{limit}: {} left, and not {left}", decision.remaining);
            admitted += u64::from(decision.allowed);
        }
        trial.counters.reached(admitted, 5);
        ensure!(admitted == 5, "{limit}: {admitted} of 6 admitted");
    }
    Ok(())
}

fn refund(taken: Instant) -> Op {
    Op::Refund { taken }
}

async fn refund_gives_back_once(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let now = at(T)?;
        let mut twin = trial.twin().await?;
        let _ = twin.take(&key, limit, 5, Some(now)).await?;
        let left = twin.one(refund(now), &key, limit, 2, Some(now)).await?.remaining;
        ensure!(left == 2, "{limit}: {left} left after a refund of 2");
        let mut again = 0;
        for _ in 0..4 {
            again += u64::from(twin.take(&key, limit, 1, Some(now)).await?.allowed);
        }
        trial.counters.reached(again, 2);
        ensure!(again == 2, "{limit}: {again} admitted after a refund of 2");
    }
    Ok(())
}

async fn refund_never_above_full(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let now = at(T)?;
        let mut twin = trial.twin().await?;
        // Of a key that was never used there is nothing to give back.
        let _ = twin.one(refund(now), &key, limit, 3, Some(now)).await?;
        let _ = twin.take(&key, limit, 1, Some(now)).await?;
        let left = twin.one(refund(now), &key, limit, 5, Some(now)).await?.remaining;
        ensure!(left == 5, "{limit}: {left} of 5 left after a refund of more than was taken");
        let decision = twin.take(&key, limit, 5, Some(now)).await?;
        ensure!(decision.allowed, "{limit}: a full key denies its capacity");
        ensure!(!twin.take(&key, limit, 1, Some(now)).await?.allowed, "{limit}: more than full after a refund");
    }
    Ok(())
}

async fn refund_after_the_window(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let (taken, later) = (at(T)?, at(T + 20_000_000)?);
        let mut twin = trial.twin().await?;
        let _ = twin.take(&key, limit, 5, Some(taken)).await?;
        let _ = twin.take(&key, limit, 3, Some(later)).await?;
        let left = twin.one(refund(taken), &key, limit, 2, Some(later)).await?.remaining;
        let bucket = limit.to_string().contains("bucket");
        let due = if bucket { 4 } else { 2 };
        ensure!(left == due, "{limit}: {left} left after a late refund, and not {due}");
    }
    Ok(())
}

async fn refund_of_layers(trial: &Trial) -> Result<(), Failure> {
    let now = at(T)?;
    let mut twin = trial.twin().await?;
    let subjects = subjects(trial)?;
    let checks = |cost: u64| subjects.iter().map(move |(limit, key)| Check::new(key.clone(), *limit, cost));
    let _ = twin.ask(Request::new(Op::Take, checks(4))?, Some(now)).await?;
    let _ = twin.ask(Request::new(refund(now), checks(3))?, Some(now)).await?;
    let decisions = twin.ask(Request::new(Op::Take, checks(4))?, Some(now)).await?;
    ensure!(decisions.allowed, "3 of 4 given back to every layer, and 4 of 5 do not pass");
    let decisions = twin.ask(Request::new(Op::Take, checks(1))?, Some(now)).await?;
    ensure!(!decisions.allowed, "more passed than was given back");
    Ok(())
}

async fn reset_forgets(trial: &Trial) -> Result<(), Failure> {
    for (limit, key) in subjects(trial)? {
        let now = at(T)?;
        let neighbour = trial.key("key", [limit.to_string().as_str(), "neighbour"]);
        let mut twin = trial.twin().await?;
        let _ = twin.take(&key, limit, 5, Some(now)).await?;
        let _ = twin.take(&neighbour, limit, 5, Some(now)).await?;
        let _ = twin.one(Op::Reset, &key, limit, 0, Some(now)).await?;
        let decision = twin.take(&key, limit, 5, Some(now)).await?;
        ensure!(decision.allowed, "{limit}: not as good as never used after a reset");
        ensure!(!twin.take(&neighbour, limit, 1, Some(now)).await?.allowed, "{limit}: a reset forgot another key");
        let _ = twin.one(Op::Reset, &key, limit, 0, Some(now)).await?;
        let _ = twin.one(Op::Reset, &key, limit, 0, Some(now)).await?;
    }
    Ok(())
}

async fn random_walk(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    for (limit, key) in subjects(trial)? {
        let mut twin = trial.twin().await?;
        let mut now = T;
        let mut taken = at(T)?;
        for _ in 0..150 {
            now = match random.below(10) {
                0 => now - random.below(5_000_000),
                1 => now + random.below(30_000_000),
                2..5 => now,
                _ => now + random.below(2_000_000),
            };
            let instant = at(now)?;
            let op = match random.below(20) {
                0 => Op::Reset,
                1..4 => Op::Peek,
                4..7 => refund(taken),
                _ => Op::Take,
            };
            let decision = twin.one(op, &key, limit, random.below(4), Some(instant)).await?;
            if op == Op::Take && decision.allowed {
                taken = instant;
            }
        }
    }
    Ok(())
}
