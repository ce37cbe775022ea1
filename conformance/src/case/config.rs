//! Limits that change while their keys are live.

use std::time::Duration;

use limiter_core::{Algorithm, Decision, Limit};

use super::concurrency::check_history;
use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};
use crate::workload::{Item, Plan};

case_list! { Config:
    raised_and_lowered "an amount that is raised lets the difference pass, one that is lowered leaves 0 and no panic",
    refused_calls_do_not_count "a raised limit helps although many were refused before",
    every_change "amount, burst, window, rate and algorithm, at random instants: never locked out for longer than a refill",
    under_load "limits that change from call to call while many clients ask",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

async fn raised_and_lowered(trial: &Trial) -> Result<(), Failure> {
    for algorithm in Algorithm::ALL {
        let low: Limit = format!("10/1h {algorithm}").parse()?;
        let high: Limit = format!("20/1h {algorithm}").parse()?;
        let key = trial.key("amount", [algorithm.name()]);
        let now = Some(at(T)?);
        let mut twin = trial.twin().await?;
        ensure!(twin.take(&key, low, 10, now).await?.allowed, "{low}: its amount does not pass");
        ensure!(!twin.take(&key, low, 1, now).await?.allowed, "{low}: more than its amount passes");
        // A bucket's debt is a time: at twice the rate it is counted in twice as many units, but never over the capacity.
        let raised = twin.peek(&key, high, now).await?;
        let _ = twin.take(&key, high, raised.remaining, now).await?;
        ensure!(!twin.take(&key, high, 1, now).await?.allowed, "{high}: more than its amount passes");
        let lowered = twin.take(&key, low, 1, now).await?;
        ensure!(!lowered.allowed && lowered.remaining == 0, "{low}: {lowered:?} after it was lowered");
        within_refill(&low, &lowered)?;
    }
    Ok(())
}

async fn refused_calls_do_not_count(trial: &Trial) -> Result<(), Failure> {
    let (low, high): (Limit, Limit) = ("10/1h fixed-window".parse()?, "20/1h fixed-window".parse()?);
    let key = trial.key("refused", ["key"]);
    let now = Some(at(T)?);
    let mut twin = trial.twin().await?;
    let mut admitted = 0;
    for call in 0..61 {
        let limit = if call < 50 { low } else { high };
        admitted += u64::from(twin.take(&key, limit, 1, now).await?.allowed);
    }
    trial.counters.reached(admitted, 20);
    ensure!(admitted == 20, "{admitted} admitted in all, and not 10 and then 10 more");
    Ok(())
}

async fn every_change(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    for round in 0..20_u32 {
        let key = trial.key("change", [round.to_string()]);
        let usual = *random.pick(&Algorithm::ALL).ok_or_else(|| Failure::new("no algorithms"))?;
        let mut twin = trial.twin().await?;
        let mut now = T;
        for _ in 0..40 {
            now += random.below(3_000_000);
            let algorithm = *random.pick(&Algorithm::ALL).ok_or_else(|| Failure::new("no algorithms"))?;
            // Mostly the same algorithm, so that its state is carried over.
            let algorithm = if random.below(4) == 0 { algorithm } else { usual };
            let amount = random.below(20) + 1;
            let seconds = random.below(9) + 1;
            let size = match algorithm {
                Algorithm::TokenBucket => format!(" burst={}", random.below(30) + 1),
                Algorithm::LeakyBucket => format!(" queue={}", random.below(30) + 1),
                _ => String::new(),
            };
            let limit: Limit = format!("{amount}/{seconds}s {algorithm}{size}").parse()?;
            for _ in 0..random.below(4) {
                let decision = twin.take(&key, limit, random.below(limit.capacity()) + 1, Some(at(now)?)).await?;
                within_refill(&limit, &decision)?;
            }
        }
    }
    Ok(())
}

/// Whatever the limit was before, the key opens within what this one takes to refill.
fn within_refill(limit: &Limit, decision: &Decision) -> Result<(), Failure> {
    let period = limit.period();
    let refill = match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingLog => period,
        Algorithm::SlidingCounter => period * 2,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let micros = u128::from(limit.capacity()) * period.as_micros();
            Duration::from_micros(u64::try_from(micros.div_ceil(u128::from(limit.amount())))?)
        }
    };
    ensure!(decision.remaining <= limit.capacity(), "{limit}: {} left", decision.remaining);
    ensure!(
        decision.reset_after <= refill,
        "{limit}: locked for {:?}, and a refill takes {refill:?}",
        decision.reset_after
    );
    Ok(())
}

async fn under_load(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial);
    let texts = [
        "200/100ms token-bucket burst=150",
        "400/100ms token-bucket burst=60",
        "100/70ms token-bucket burst=300",
        "150/100ms leaky-bucket queue=200",
        "250/100ms fixed-window",
        "120/100ms fixed-window",
        "180/50ms sliding-counter",
        "200/100ms sliding-log",
        "90/150ms sliding-log",
    ];
    let hot = plan.key("changing", "hot");
    let warm = plan.key("changing", "warm");
    for text in texts {
        let limit = plan.limit(text);
        plan.item(Item::take(3, [(hot, limit, 3)]));
        plan.item(Item::take(1, [(warm, limit, 2)]));
        plan.item(Item::take(1, [(warm, limit, 2), (hot, limit, 1)]));
    }
    let history = plan.run(trial).await?;
    check_history(trial, &history).await?;
    Ok(())
}
