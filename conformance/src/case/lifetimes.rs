//! How long states are kept. Expiry is housekeeping only: no decision may depend on it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use limiter_core::{Algorithm, Batch, Decision, Key, Limit, Op, Request};

use super::{Failure, case_list, ensure};
use crate::subject::Stored;
use crate::trial::{Trial, at};

case_list! { Lifetimes:
    kept_as_long_as_it_counts "no state is forgotten before it is as good as never used",
    collected_or_not "once it is, the answers are those of a key that was never used",
    calls_do_not_prolong_windows "a key that is in use all the time still has windows",
    given_instants_are_kept "a key written at a given instant is not collected by the engine's own clock",
    every_key_has_one [StoredKeys] "each stored key has a lifetime, up to `reset_after` and some slack",
    denials_do_not_renew [StoredKeys] "a key that is asked in vain is not kept for longer",
    cancelled_calls_leave_one [StoredKeys] "a call that is given up leaves no key without a lifetime",
    nothing_without_a_charge [StoredKeys] "asking, and taking nothing, stores no key",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

/// Lifetimes up to here are not told apart from none.
const SHORT: Duration = Duration::from_secs(2);

async fn kept_as_long_as_it_counts(trial: &Trial) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    let mut keys = Vec::new();
    for algorithm in Algorithm::ALL {
        let limit: Limit = format!("6/400ms {algorithm}").parse()?;
        let key = trial.key("kept", [algorithm.name()]);
        let _ = twin.take(&key, limit, 5, None).await?;
        keys.push((key, limit));
    }
    // The model never forgets: every answer has to be its own, until long after the states are garbage.
    for _ in 0..32 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        for (key, limit) in &keys {
            let _ = twin.one(Op::Peek, key, *limit, 6, None).await?;
        }
    }
    for (key, limit) in &keys {
        ensure!(twin.take(key, *limit, 6, None).await?.allowed, "{limit}: closed after a second of rest");
    }
    Ok(())
}

async fn collected_or_not(trial: &Trial) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    for round in 0..3 {
        let mut longest = Duration::ZERO;
        for algorithm in Algorithm::ALL {
            let limit: Limit = format!("4/50ms {algorithm}").parse()?;
            let key = trial.key("collected", [algorithm.name()]);
            let decision = twin.take(&key, limit, 4, None).await?;
            ensure!(decision.allowed, "{limit}: not as good as never used in round {round}");
            longest = longest.max(decision.reset_after);
        }
        // Just past the instant at which each is as good as never used: some stores have collected it by now, some not.
        tokio::time::sleep(longest + Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn calls_do_not_prolong_windows(trial: &Trial) -> Result<(), Failure> {
    for algorithm in Algorithm::ALL {
        let limit: Limit = format!("10/1m {algorithm}").parse()?;
        let key = trial.key("prolonged", [algorithm.name()]);
        let mut twin = trial.twin().await?;
        for call in 0..61 {
            let decision = twin.take(&key, limit, 1, Some(at(60_000_000 * 29_000_000 + call * 10_000_000)?)).await?;
            ensure!(decision.allowed, "{limit}: one call every 10 s, and call {call} was denied");
        }
    }
    Ok(())
}

async fn given_instants_are_kept(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "3/1m sliding-log".parse()?;
    let hour: Limit = "3/1h sliding-log".parse()?;
    let past = trial.key("given", ["past"]);
    // Long gone by the engine's own clock.
    let given = Some(at(T - 86_400_000_000)?);
    let mut twin = trial.twin().await?;
    let _ = twin.take(&past, limit, 3, given).await?;
    for number in 0..300_u32 {
        let _ = twin.take(&trial.key("own", [number.to_string()]), hour, 1, None).await?;
    }
    let decision = twin.take(&past, limit, 1, given).await?;
    ensure!(!decision.allowed, "a key was collected while its run at given instants went on");
    Ok(())
}

/// The stored keys of the case, by name.
async fn stored(trial: &Trial) -> Result<HashMap<String, Stored>, Failure> {
    let stored = trial.subject().stored(trial.scope()).await?.unwrap_or_default();
    Ok(stored.into_iter().map(|stored| (stored.key.clone(), stored)).collect())
}

/// The lifetime of a key that has to be stored, and has to have one.
async fn lifetime(trial: &Trial, key: &Key) -> Result<Duration, Failure> {
    let stored = stored(trial).await?;
    let Some(stored) = stored.get(key.as_str()) else {
        return Err(Failure::new(format!("{key} is charged, and not stored")));
    };
    stored.lifetime.ok_or_else(|| Failure::new(format!("{key} has no lifetime")))
}

fn within(trial: &Trial, key: &Key, lifetime: Duration, decision: &Decision) -> Result<(), Failure> {
    let longest = trial.subject().kept(decision.reset_after);
    ensure!(!lifetime.is_zero(), "{key} is kept for no time at all");
    ensure!(lifetime <= longest, "{key} is kept for {lifetime:?}, and counts for {:?}", decision.reset_after);
    Ok(())
}

async fn every_key_has_one(trial: &Trial) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    for algorithm in Algorithm::ALL {
        for rate in ["10/1h", "1000/1m", "1000000/1s", "1/366d"] {
            if algorithm == Algorithm::SlidingLog && rate == "1000000/1s" {
                continue;
            }
            let limit: Limit = format!("{rate} {algorithm}").parse()?;
            let key = trial.key("lifetime", [algorithm.name(), rate]);
            let decision = twin.take(&key, limit, 1, None).await?;
            if decision.reset_after > SHORT {
                within(trial, &key, lifetime(trial, &key).await?, &decision)?;
            } else if let Some(stored) = stored(trial).await?.get(key.as_str()) {
                let lifetime = stored.lifetime.ok_or_else(|| Failure::new(format!("{key} has no lifetime")))?;
                ensure!(lifetime <= trial.subject().kept(decision.reset_after), "{key} is kept for {lifetime:?}");
            }
        }
    }
    Ok(())
}

async fn denials_do_not_renew(trial: &Trial) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    for algorithm in Algorithm::ALL {
        let limit: Limit = format!("3/1m {algorithm}").parse()?;
        let key = trial.key("renewed", [algorithm.name()]);
        let taken = twin.take(&key, limit, 3, None).await?;
        let before = lifetime(trial, &key).await?;
        within(trial, &key, before, &taken)?;
        tokio::time::sleep(Duration::from_millis(40)).await;
        for _ in 0..3 {
            let _ = twin.take(&key, limit, 1, None).await?;
            let _ = twin.peek(&key, limit, None).await?;
        }
        let after = lifetime(trial, &key).await?;
        ensure!(after <= before, "{limit}: calls in vain took its lifetime from {before:?} to {after:?}");
    }
    Ok(())
}

async fn cancelled_calls_leave_one(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "5/1h fixed-window".parse()?;
    let client = trial.client().await?;
    for polls in 0..8_u32 {
        let request = Request::take(trial.key("cancelled", [polls.to_string()]), limit, 1)?;
        let mut future = client.submit(Arc::new(Batch::of(request)));
        let mut left = polls;
        trial.counters.called(1);
        poll_fn(|context| {
            let done = left == 0 || future.as_mut().poll(context).is_ready();
            left = left.saturating_sub(1);
            if done || left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    // What is still on its way ends within this.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for stored in stored(trial).await?.into_values() {
        ensure!(stored.lifetime.is_some(), "{} has no lifetime after its call was given up", stored.key);
    }
    Ok(())
}

async fn nothing_without_a_charge(trial: &Trial) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    for algorithm in Algorithm::ALL {
        let limit: Limit = format!("3/1m {algorithm}").parse()?;
        let key = trial.key("uncharged", [algorithm.name()]);
        let _ = twin.peek(&key, limit, None).await?;
        let _ = twin.take(&key, limit, 0, None).await?;
        let now = twin.one(Op::Peek, &key, limit, 3, None).await?.at;
        let _ = twin.one(Op::Refund { taken: now }, &key, limit, 2, None).await?;
        let asked = stored(trial).await?.len();
        ensure!(asked == 0, "{limit}: {asked} keys are stored, and nothing was charged");
        let _ = twin.take(&key, limit, 1, None).await?;
        let _ = twin.one(Op::Reset, &key, limit, 0, None).await?;
        let reset = stored(trial).await?.len();
        ensure!(reset == 0, "{limit}: {reset} keys are stored after a reset");
    }
    Ok(())
}
