//! Whose clock decides, and what if it steps.

use std::time::{Duration, SystemTime};

use limiter_core::{Algorithm, Instant, Limit, ManualClock, Op};

use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};

case_list! { Clock:
    given_instants_go_back "a clock that goes back lets nothing more through, and waits are told on the clock that was read",
    denied_until_exactly_then "after `retry_after` the cost is admitted, and 1 µs before it is not",
    first_and_last_instants "instants near 0 and near 2^53, and long idle times",
    runs_with_real_time "the engine's own instants advance as real time does, for all its clients",
    waits_are_real "who waits as long as told is admitted",
    near_this_machines_clock [NodeClock] "the deciding node's clock is this machine's",
    clients_clock_decides [NodeClock, ClientClock] "where the node decides, its clock is the one that counts",
    clients_clock_steps_back [NodeClock, ClientClock] "a node's clock that goes back lets nothing more through",
    clients_clocks_do_not_matter [StoreClock, ClientClock] "clients whose clocks are an hour off get the store's time",
    store_clock_steps [StoreClockSteps] "the store's clock steps back and forth: nothing more passes than a forward step is worth",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

fn limits() -> Result<Vec<Limit>, Failure> {
    Algorithm::ALL.into_iter().map(|algorithm| Ok(format!("7/13s {algorithm}").parse()?)).collect()
}

async fn given_instants_go_back(trial: &Trial) -> Result<(), Failure> {
    for limit in limits()? {
        let key = trial.key("back", [limit.algorithm().name()]);
        let mut twin = trial.twin().await?;
        ensure!(twin.take(&key, limit, 7, Some(at(T)?)).await?.allowed, "{limit}: a fresh key denies");
        for back in [1, 1_000, 1_000_000, 12_000_000, 13_000_000, 26_000_000, 86_400_000_000] {
            let decision = twin.take(&key, limit, 1, Some(at(T - back)?)).await?;
            ensure!(!decision.allowed, "{limit}: admitted after the clock went back by {back} µs");
        }
        // Forward again, and it opens as if nothing had been.
        let wait = twin.take(&key, limit, 1, Some(at(T)?)).await?.retry_after.unwrap_or_default();
        let opens = T + u64::try_from(wait.as_micros())?;
        ensure!(twin.take(&key, limit, 1, Some(at(opens)?)).await?.allowed, "{limit}: still closed at {opens} µs");
    }
    Ok(())
}

async fn denied_until_exactly_then(trial: &Trial) -> Result<(), Failure> {
    let mut random = trial.random();
    for limit in limits()? {
        let key = trial.key("exactly", [limit.algorithm().name()]);
        let mut twin = trial.twin().await?;
        let mut now = T;
        for _ in 0..25 {
            let cost = random.below(7) + 1;
            let decision = twin.take(&key, limit, cost, Some(at(now)?)).await?;
            let Some(wait) = decision.retry_after else {
                now += random.below(1_000_000);
                continue;
            };
            let wait = u64::try_from(wait.as_micros())?;
            ensure!(wait > 0, "{limit}: denied with a wait of 0");
            let early = twin.one(Op::Peek, &key, limit, cost, Some(at(now + wait - 1)?)).await?;
            ensure!(!early.allowed, "{limit}: {cost} admitted 1 µs before a wait of {wait} µs was over");
            now += wait;
            let then = twin.take(&key, limit, cost, Some(at(now)?)).await?;
            ensure!(then.allowed, "{limit}: {cost} denied after a wait of {wait} µs");
        }
    }
    Ok(())
}

async fn first_and_last_instants(trial: &Trial) -> Result<(), Failure> {
    for limit in limits()? {
        let key = trial.key("edges", [limit.algorithm().name()]);
        let mut twin = trial.twin().await?;
        let last = Instant::MAX.micros();
        for micros in [0, 0, 1, 12_999_999, 13_000_000, last - 26_000_000, last - 1, last, last, 0] {
            for cost in [3, 3, 2] {
                let _ = twin.take(&key, limit, cost, Some(at(micros)?)).await?;
            }
        }
    }
    Ok(())
}

async fn runs_with_real_time(trial: &Trial) -> Result<(), Failure> {
    const PAUSE: Duration = Duration::from_millis(60);
    const SLACK: Duration = Duration::from_millis(10);
    let limit: Limit = "1000/1h token-bucket".parse()?;
    let key = trial.key("real", ["key"]);
    let mut twin = trial.twin().await?;
    let mut last: Option<(Instant, std::time::Instant)> = None;
    for _ in 0..4 {
        twin.change_client(trial.client().await?);
        let asked = std::time::Instant::now();
        let decided = twin.take(&key, limit, 1, None).await?.at;
        if let Some((before, since)) = last {
            let told = Duration::from_micros(decided.micros().saturating_sub(before.micros()));
            let longest = since.elapsed() + SLACK;
            ensure!(told + SLACK >= PAUSE, "the instants of two clients are {told:?} apart after {PAUSE:?}");
            ensure!(told <= longest, "the instants of two clients are {told:?} apart within {longest:?}");
        }
        last = Some((decided, asked));
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn waits_are_real(trial: &Trial) -> Result<(), Failure> {
    for algorithm in Algorithm::ALL {
        let limit: Limit = format!("2/100ms {algorithm}").parse()?;
        let key = trial.key("waits", [algorithm.name()]);
        let mut twin = trial.twin().await?;
        for _ in 0..6 {
            if let Some(wait) = twin.take(&key, limit, 1, None).await?.retry_after {
                ensure!(wait <= Duration::from_millis(200), "{limit}: told to wait {wait:?}");
                // 1 ms more, since real time and the store's may be slewed against each other.
                tokio::time::sleep(wait + Duration::from_millis(1)).await;
                ensure!(twin.take(&key, limit, 1, None).await?.allowed, "{limit}: denied after waiting {wait:?}");
            }
        }
    }
    Ok(())
}

async fn near_this_machines_clock(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "1000/1h fixed-window".parse()?;
    let key = trial.key("near", ["key"]);
    let mut twin = trial.twin().await?;
    let slack = Duration::from_millis(20);
    for _ in 0..5 {
        let before = Instant::from_system_time(SystemTime::now() - slack);
        let decided = twin.take(&key, limit, 1, None).await?.at;
        let after = Instant::from_system_time(SystemTime::now() + slack);
        ensure!((before..=after).contains(&decided), "decided at {decided}, which is not between {before} and {after}");
    }
    Ok(())
}

async fn clients_clock_decides(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "2/1m fixed-window".parse()?;
    let key = trial.key("decides", ["key"]);
    let clock = ManualClock::at(at(T)?);
    let mut twin = trial.twin().await?;
    twin.change_client(trial.subject().connect_with_clock(clock.clone()).await?);
    for micros in [T, T + 1, T + 30_000_000, T + 60_000_000, T + 60_000_001] {
        clock.set(at(micros)?);
        let decision = twin.take(&key, limit, 1, None).await?;
        ensure!(decision.at.micros() == micros, "decided at {}, and the node's clock shows {micros} µs", decision.at);
    }
    Ok(())
}

async fn clients_clock_steps_back(trial: &Trial) -> Result<(), Failure> {
    let clock = ManualClock::at(at(T)?);
    let mut twin = trial.twin().await?;
    twin.change_client(trial.subject().connect_with_clock(clock.clone()).await?);
    for limit in limits()? {
        let key = trial.key("steps", [limit.algorithm().name()]);
        clock.set(at(T)?);
        let _ = twin.take(&key, limit, 7, None).await?;
        for back in [1_000_000, 26_000_000, 3_600_000_000, 0] {
            clock.set(at(T - back)?);
            let decision = twin.take(&key, limit, 1, None).await?;
            ensure!(!decision.allowed, "{limit}: admitted after the node's clock went back by {back} µs");
        }
        clock.set(at(T + 60_000_000)?);
        ensure!(twin.take(&key, limit, 7, None).await?.allowed, "{limit}: closed a minute later");
    }
    Ok(())
}

async fn clients_clocks_do_not_matter(trial: &Trial) -> Result<(), Failure> {
    const HOUR: u64 = 3_600_000_000;
    let real = Instant::from_system_time(SystemTime::now()).micros();
    for limit in limits()? {
        let key = trial.key("skewed", [limit.algorithm().name()]);
        let mut twin = trial.twin().await?;
        let mut seen: Option<Instant> = None;
        let mut admitted = 0;
        for call in 0..16_u64 {
            let shown = match call % 4 {
                0 => real,
                1 => real - HOUR,
                2 => real + HOUR,
                _ => real + 365 * 24 * HOUR,
            };
            let clock = ManualClock::at(at(shown)?);
            twin.change_client(trial.subject().connect_with_clock(clock).await?);
            let decision = twin.take(&key, limit, 1, None).await?;
            let apart = seen.map_or(0, |before| before.micros().abs_diff(decision.at.micros()));
            ensure!(apart < 5_000_000, "a client whose clock is off moved the instant by {apart} µs");
            seen = Some(decision.at);
            admitted += u64::from(decision.allowed);
        }
        ensure!(admitted >= 7, "{limit}: {admitted} of 16 admitted");
    }
    Ok(())
}

async fn store_clock_steps(trial: &Trial) -> Result<(), Failure> {
    let stepped = stepping(trial).await;
    trial.subject().step_store_clock(0).await?;
    stepped
}

async fn stepping(trial: &Trial) -> Result<(), Failure> {
    for algorithm in Algorithm::ALL {
        let limit: Limit = format!("5/1h {algorithm}").parse()?;
        let key = trial.key("store", [algorithm.name()]);
        let mut twin = trial.twin().await?;
        trial.subject().step_store_clock(0).await?;
        let _ = twin.take(&key, limit, 5, None).await?;
        for offset in [-1_000_000, -3_600_000_000, 0, -60_000_000, 1_000] {
            trial.subject().step_store_clock(offset).await?;
            let decision = twin.take(&key, limit, 1, None).await?;
            ensure!(!decision.allowed, "{limit}: admitted with the store's clock off by {offset} µs");
        }
    }
    Ok(())
}
