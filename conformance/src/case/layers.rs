//! Several limits in one request: all or nothing.

use limiter_core::{Check, Instant, Key, Limit, MAX_CHECKS, Op, Request};

use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};
use crate::twin::Twin;

case_list! { Layers:
    refused_charges_none "a refused request is charged to no layer, in either order of the layers",
    each_level_exhausted_in_turn "global, tenant, user, endpoint: whichever is exhausted, no other is charged",
    tenant_does_not_eat_the_users_budget "a refused tenant leaves the user's units alone",
    all_algorithms_together "a layer of each algorithm, at random instants",
    many_layers "as many layers as a request may have",
    own_clock "layers at the engine's own instants",
    scopes_in_one_step [AllKeys] "keys of different scopes are decided all or nothing",
    scopes_never_admit_too_much "keys of different scopes: a refused request leaves no charge behind",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

fn request(op: Op, layers: &[(Key, Limit, u64)]) -> Result<Request, Failure> {
    Ok(Request::new(op, layers.iter().map(|(key, limit, cost)| Check::new(key.clone(), *limit, *cost)))?)
}

async fn refused_charges_none(trial: &Trial) -> Result<(), Failure> {
    let address: Limit = "2/10s sliding-log".parse()?;
    let host: Limit = "10/10s sliding-log".parse()?;
    for order in ["narrow first", "wide first"] {
        let mut twin = trial.twin().await?;
        let mut layers = vec![(trial.key(order, ["address"]), address, 1), (trial.key(order, ["host"]), host, 1)];
        if order == "wide first" {
            layers.reverse();
        }
        let mut admitted = 0;
        for _ in 0..6 {
            admitted += u64::from(twin.ask(request(Op::Take, &layers)?, Some(at(T)?)).await?.allowed);
        }
        trial.counters.reached(admitted, 2);
        ensure!(admitted == 2, "{order}: {admitted} of 6 admitted, and not 2");
        for (key, limit, _) in &layers {
            let left = twin.peek(key, *limit, Some(at(T)?)).await?.remaining;
            let due = limit.capacity() - 2;
            ensure!(left == due, "{order}: {left} left of {limit}, and not {due}");
        }
    }
    Ok(())
}

async fn each_level_exhausted_in_turn(trial: &Trial) -> Result<(), Failure> {
    let limits: Vec<Limit> =
        ["40/1h fixed-window", "30/1h sliding-counter", "20/1h token-bucket burst=20", "10/1h sliding-log"]
            .into_iter()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
    for level in 0..limits.len() {
        let names = ["global", "tenant", "user", "endpoint"];
        let rule = format!("exhausted-{level}");
        let layers: Vec<(Key, Limit, u64)> =
            names.iter().zip(&limits).map(|(name, limit)| (trial.key(&rule, [name]), *limit, 1)).collect();
        let mut twin = trial.twin().await?;
        let Some((key, limit, _)) = layers.get(level) else { continue };
        let _ = twin.take(key, *limit, limit.capacity(), Some(at(T)?)).await?;
        for _ in 0..3 {
            let decisions = twin.ask(request(Op::Take, &layers)?, Some(at(T)?)).await?;
            ensure!(!decisions.allowed, "admitted though {limit} is exhausted");
            let refusing = decisions.layers().iter().filter(|layer| !layer.allowed).count();
            ensure!(refusing == 1, "{refusing} layers refuse where one is exhausted");
        }
        untouched(&mut twin, &layers, level, at(T)?).await?;
    }
    Ok(())
}

/// Every layer but the exhausted one still holds all that it can.
async fn untouched(
    twin: &mut Twin<'_>,
    layers: &[(Key, Limit, u64)],
    exhausted: usize,
    now: Instant,
) -> Result<(), Failure> {
    for (index, (key, limit, _)) in layers.iter().enumerate() {
        let left = twin.peek(key, *limit, Some(now)).await?.remaining;
        let due = if index == exhausted { 0 } else { limit.capacity() };
        ensure!(left == due, "layer {exhausted} refused, and {left} are left of {limit}, not {due}");
    }
    Ok(())
}

async fn tenant_does_not_eat_the_users_budget(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "4/1h fixed-window".parse()?;
    let mut twin = trial.twin().await?;
    let steps = [("u1", "T1", 5, 4), ("u2", "T1", 2, 0), ("u2", "T2", 5, 4)];
    for (user, tenant, calls, due) in steps {
        let layers = [(trial.key("user", [user]), limit, 1), (trial.key("tenant", [tenant]), limit, 1)];
        let mut admitted = 0;
        for _ in 0..calls {
            admitted += u64::from(twin.ask(request(Op::Take, &layers)?, Some(at(T)?)).await?.allowed);
        }
        trial.counters.reached(admitted, due);
        ensure!(admitted == due, "{user} of {tenant}: {admitted} of {calls} admitted, and not {due}");
    }
    Ok(())
}

async fn all_algorithms_together(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    let limits: Vec<Limit> = [
        "30/1s fixed-window",
        "25/1s sliding-log",
        "28/1s sliding-counter",
        "20/1s token-bucket burst=25",
        "20/1s leaky-bucket queue=25",
    ]
    .into_iter()
    .map(str::parse)
    .collect::<Result<_, _>>()?;
    let mut twin = trial.twin().await?;
    let mut now = T;
    for _ in 0..400 {
        // Now and then the clock stands still, or goes back.
        now = match random.below(8) {
            0 => now,
            1 => now - random.below(400_000),
            _ => now + random.below(120_000),
        };
        let mut layers: Vec<(Key, Limit, u64)> = limits
            .iter()
            .enumerate()
            .map(|(index, limit)| {
                let name = if index == 0 { 0 } else { random.below(2) };
                (trial.key(&format!("layer-{index}"), [name.to_string()]), *limit, random.below(4))
            })
            .collect();
        let turn = usize::try_from(random.below(5)).unwrap_or_default();
        layers.rotate_left(turn);
        let op = if random.below(10) == 0 { Op::Peek } else { Op::Take };
        let _ = twin.ask(request(op, &layers)?, Some(at(now)?)).await?;
    }
    Ok(())
}

async fn many_layers(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "3/1h token-bucket".parse()?;
    let mut twin = trial.twin().await?;
    let layers: Vec<(Key, Limit, u64)> =
        (0..MAX_CHECKS).map(|index| (trial.key("layer", [index.to_string()]), limit, 1)).collect();
    let mut admitted = 0;
    for _ in 0..5 {
        admitted += u64::from(twin.ask(request(Op::Take, &layers)?, Some(at(T)?)).await?.allowed);
    }
    trial.counters.reached(admitted, 3);
    ensure!(admitted == 3, "{admitted} of 5 admitted, and not 3");
    Ok(())
}

async fn own_clock(trial: &Trial) -> Result<(), Failure> {
    let inner: Limit = "5/1h sliding-log".parse()?;
    let outer: Limit = "100/1h fixed-window".parse()?;
    let mut twin = trial.twin().await?;
    let layers = [(trial.key("outer", ["key"]), outer, 1), (trial.key("inner", ["key"]), inner, 1)];
    let mut admitted = 0;
    for _ in 0..20 {
        admitted += u64::from(twin.ask(request(Op::Take, &layers)?, None).await?.allowed);
    }
    trial.counters.reached(admitted, 5);
    ensure!(admitted == 5, "{admitted} of 20 admitted, and not 5");
    Ok(())
}

async fn scopes_in_one_step(trial: &Trial) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    spanning(trial, &mut twin, "one-step").await
}

async fn scopes_never_admit_too_much(trial: &Trial) -> Result<(), Failure> {
    // One after the other, the narrow ones' refund is done before the next request comes: the model's answers hold
    // for the weaker way too, all but the versions, since a charge and its refund are two writes.
    let layers = spanned(trial, "weaker")?;
    let client = trial.client().await?;
    let mut admitted = 0;
    for _ in 0..6 {
        admitted += u64::from(trial.ask(&client, request(Op::Take, &layers)?, Some(at(T)?)).await?.allowed);
    }
    ensure!(admitted == 2, "{admitted} of 6 admitted, and not 2");
    for (key, limit, _) in &layers {
        let peek = request(Op::Peek, &[(key.clone(), *limit, 0)])?;
        let left = trial.ask(&client, peek, Some(at(T)?)).await?;
        let left = left.layers().first().map_or(0, |layer| layer.remaining);
        ensure!(left == limit.capacity() - 2, "{left} left of {limit} after 2 of 6 were admitted");
    }
    Ok(())
}

fn spanned(trial: &Trial, rule: &str) -> Result<[(Key, Limit, u64); 3], Failure> {
    Ok([
        (trial.key_elsewhere("a", rule), "10/1h fixed-window".parse()?, 1),
        (trial.key_elsewhere("b", rule), "2/1h token-bucket".parse()?, 1),
        (trial.key_elsewhere("c", rule), "5/1h sliding-log".parse()?, 1),
    ])
}

async fn spanning(trial: &Trial, twin: &mut Twin<'_>, rule: &str) -> Result<(), Failure> {
    let layers = spanned(trial, rule)?;
    let mut admitted = 0;
    for _ in 0..6 {
        admitted += u64::from(twin.ask(request(Op::Take, &layers)?, Some(at(T)?)).await?.allowed);
    }
    trial.counters.reached(admitted, 2);
    ensure!(admitted == 2, "{admitted} of 6 admitted, and not 2");
    Ok(())
}
