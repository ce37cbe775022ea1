//! Several requests in one batch: each decided in order, each seeing what those before it did.

use limiter_core::{Check, Key, Limit, Op, Request};

use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};

case_list! { Batches:
    empty "no requests, no outcomes",
    equal_ones "equal requests of one key admit as many, in order, as one by one",
    mixed_costs "a large cost that is refused leaves room for the small ones after it",
    mixed_operations "take, peek, refund and reset of one key, in one batch",
    layers_in_a_batch "layered requests that share keys with single ones",
    big "a thousand requests on a hundred keys",
    own_clock "batches at the engine's own instants",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

const LIMITS: [&str; 5] =
    ["10/1s fixed-window", "10/1s sliding-log", "10/1s sliding-counter", "10/1s token-bucket", "10/1s leaky-bucket"];

fn single(op: Op, key: &Key, limit: Limit, cost: u64) -> Result<Request, Failure> {
    Ok(Request::new(op, [Check::new(key.clone(), limit, cost)])?)
}

async fn empty(trial: &Trial) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    let outcomes = twin.batch(Vec::new(), None).await?;
    ensure!(outcomes.is_empty(), "{} outcomes for no requests", outcomes.len());
    Ok(())
}

async fn equal_ones(trial: &Trial) -> Result<(), Failure> {
    for text in LIMITS {
        let limit: Limit = text.parse()?;
        for size in [2, 5, 16, 128] {
            let key = trial.key("equal", [text, &size.to_string()]);
            let mut twin = trial.twin().await?;
            let mut admitted = 0;
            for _ in 0..=20 / size {
                let requests = (0..size).map(|_| single(Op::Take, &key, limit, 1)).collect::<Result<_, _>>()?;
                let decisions = twin.batch(requests, Some(at(T)?)).await?;
                admitted += decisions.iter().filter(|decision| decision.allowed).count();
            }
            trial.counters.reached(u64::try_from(admitted)?, 10);
            ensure!(admitted == 10, "{text}, {size} a batch: {admitted} admitted, and not 10");
        }
    }
    Ok(())
}

async fn mixed_costs(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    for text in LIMITS {
        let limit: Limit = text.parse()?;
        let key = trial.key("mixed", [text]);
        let mut twin = trial.twin().await?;
        let requests = [7, 4, 2, 5, 1, 1, 0, 3].map(|cost| single(Op::Take, &key, limit, cost));
        let decisions = twin.batch(requests.into_iter().collect::<Result<_, _>>()?, Some(at(T)?)).await?;
        let verdicts: Vec<bool> = decisions.iter().map(|decision| decision.allowed).collect();
        let due = [true, false, true, false, true, false, true, false];
        ensure!(verdicts == due, "{text}: costs 7 4 2 5 1 1 0 3 of 10 gave {verdicts:?}");
        for step in 1..20 {
            let requests = (0..random.below(12) + 2)
                .map(|_| single(Op::Take, &key, limit, random.below(6)))
                .collect::<Result<_, _>>()?;
            twin.batch(requests, Some(at(T + step * 170_000)?)).await?;
        }
    }
    Ok(())
}

async fn mixed_operations(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    for text in LIMITS {
        let limit: Limit = text.parse()?;
        let keys = ["a", "b"].map(|name| trial.key("operations", [text, name]));
        let mut twin = trial.twin().await?;
        for step in 0..30 {
            let now = T + step * 90_000;
            let requests = (0..10)
                .map(|_| {
                    let key = random.pick(&keys).ok_or_else(|| Failure::new("no keys"))?;
                    match random.below(12) {
                        0 => single(Op::Reset, key, limit, 0),
                        1 | 2 => single(Op::Peek, key, limit, random.below(5)),
                        3 | 4 => single(Op::Refund { taken: at(now)? }, key, limit, random.below(3)),
                        _ => single(Op::Take, key, limit, random.below(5)),
                    }
                })
                .collect::<Result<_, _>>()?;
            twin.batch(requests, Some(at(now)?)).await?;
        }
    }
    Ok(())
}

async fn layers_in_a_batch(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    let outer: Limit = "25/1s sliding-log".parse()?;
    let inner: Limit = "10/1s token-bucket burst=12".parse()?;
    let outer_key = trial.key("outer", ["key"]);
    let mut twin = trial.twin().await?;
    for step in 0..30 {
        let requests = (0..8)
            .map(|_| {
                let inner_key = trial.key("inner", [random.below(3).to_string()]);
                let cost = random.below(4) + 1;
                let outer_check = Check::new(outer_key.clone(), outer, cost);
                let inner_check = Check::new(inner_key.clone(), inner, cost);
                let request = match random.below(4) {
                    0 => Request::new(Op::Take, [outer_check]),
                    1 => Request::new(Op::Take, [inner_check]),
                    2 => Request::new(Op::Take, [outer_check, inner_check]),
                    _ => Request::new(Op::Take, [inner_check, outer_check]),
                };
                Ok::<_, Failure>(request?)
            })
            .collect::<Result<_, _>>()?;
        twin.batch(requests, Some(at(T + step * 150_000)?)).await?;
    }
    Ok(())
}

async fn big(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    let limits = LIMITS.map(str::parse::<Limit>).into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut twin = trial.twin().await?;
    for round in 0..2 {
        let requests = (0..1_000)
            .map(|_| {
                let name = random.below(100);
                let limit = limits.iter().cycle().nth(usize::try_from(name)?).copied();
                let limit = limit.ok_or_else(|| Failure::new("no limits"))?;
                single(Op::Take, &trial.key("big", [name.to_string()]), limit, random.below(3))
            })
            .collect::<Result<_, _>>()?;
        twin.batch(requests, Some(at(T + round * 400_000)?)).await?;
    }
    Ok(())
}

async fn own_clock(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "50/1h sliding-log".parse()?;
    let key = trial.key("own-clock", ["key"]);
    let mut twin = trial.twin().await?;
    let mut admitted = 0;
    for _ in 0..10 {
        let requests = (0..16).map(|_| single(Op::Take, &key, limit, 1)).collect::<Result<_, _>>()?;
        admitted += twin.batch(requests, None).await?.iter().filter(|decision| decision.allowed).count();
    }
    trial.counters.reached(u64::try_from(admitted)?, 50);
    ensure!(admitted == 50, "{admitted} of 160 admitted, and not 50");
    Ok(())
}
