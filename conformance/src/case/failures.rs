//! Replies that get lost, and stores that can't be reached.

use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Backend, Batch, Check, Key, Limit, Op, Outcome, Request};

use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};

case_list! { Failures:
    lost_reply_of_a_take [LostReplies] "the caller is told that it is not known, or what became of it, and at most one unit is taken",
    lost_reply_of_a_refund [LostReplies] "a refund whose reply is lost is done once at most",
    outage [Outages] "while the store is away no more than one limit passes, and afterwards the limit is exact again",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

/// How long a store may need until it answers again.
const RECOVERY: Duration = Duration::from_secs(30);

fn batch(op: Op, key: &Key, limit: Limit, cost: u64) -> Result<Arc<Batch>, Failure> {
    let request = Request::new(op, [Check::new(key.clone(), limit, cost)])?;
    Ok(Arc::new(Batch { requests: vec![request], at: Some(at(T)?) }))
}

async fn submit(trial: &Trial, client: &Arc<dyn Backend>, batch: Arc<Batch>) -> Result<Outcome, Failure> {
    trial.counters.called(1);
    let mut outcomes = client.submit(batch).await;
    outcomes.pop().ok_or_else(|| Failure::new("the engine gave no outcome"))
}

/// What is left, as soon as the store answers.
async fn left(trial: &Trial, client: &Arc<dyn Backend>, key: &Key, limit: Limit) -> Result<u64, Failure> {
    let started = std::time::Instant::now();
    loop {
        let outcome = submit(trial, client, batch(Op::Peek, key, limit, 0)?).await?;
        match outcome.decisions(&Request::new(Op::Peek, [Check::new(key.clone(), limit, 0)])?) {
            Ok(decisions) => return Ok(decisions.layers().first().map_or(0, |layer| layer.remaining)),
            Err(error) => ensure!(started.elapsed() < RECOVERY, "no answer {RECOVERY:?} after the fault: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn lost_reply_of_a_take(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "10/1h sliding-log".parse()?;
    for round in 0..5_u32 {
        let key = trial.key("take", [round.to_string()]);
        let client = trial.client().await?;
        trial.subject().lose_reply().await?;
        let outcome = submit(trial, &client, batch(Op::Take, &key, limit, 1)?).await?;
        let taken = 10 - left(trial, &client, &key, limit).await?;
        ensure!(taken <= 1, "one call took {taken} units");
        match outcome {
            Outcome::Unknown(_) => {}
            Outcome::NotSent(_) => ensure!(taken == 0, "told not to be sent, and a unit was taken"),
            // An engine may find out what became of it. Then it has to be true.
            Outcome::Allowed(_) => ensure!(taken == 1, "told to be allowed, and no unit was taken"),
            Outcome::Denied(_) => return Err(Failure::new("denied, and all of it was left")),
        }
    }
    Ok(())
}

async fn lost_reply_of_a_refund(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "10/1h token-bucket".parse()?;
    for round in 0..5_u32 {
        let key = trial.key("refund", [round.to_string()]);
        let client = trial.client().await?;
        ensure!(
            matches!(submit(trial, &client, batch(Op::Take, &key, limit, 8)?).await?, Outcome::Allowed(_)),
            "8 of a fresh 10 were not allowed"
        );
        trial.subject().lose_reply().await?;
        let _ = submit(trial, &client, batch(Op::Refund { taken: at(T)? }, &key, limit, 3)?).await?;
        let left = left(trial, &client, &key, limit).await?;
        ensure!(left == 2 || left == 5, "2 were left, 3 were given back, and now {left} are left");
    }
    Ok(())
}

async fn outage(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "10/1h sliding-log".parse()?;
    let key = trial.key("outage", ["key"]);
    let client = trial.client().await?;
    ensure!(
        matches!(submit(trial, &client, batch(Op::Take, &key, limit, 4)?).await?, Outcome::Allowed(_)),
        "4 of a fresh 10 were not allowed"
    );
    trial.subject().set_reachable(false).await?;
    let meanwhile = without_store(trial, &client, &key, limit).await;
    trial.subject().set_reachable(true).await?;
    let (passed, unknown) = meanwhile?;
    // Of a fallback that counts for itself; an engine without one lets nothing pass.
    ensure!(passed <= limit.capacity(), "{passed} passed while the store was away, under a limit of {limit}");
    let taken = 10 - left(trial, &client, &key, limit).await?;
    ensure!(
        (4..=4 + unknown).contains(&taken),
        "{taken} taken, where 4 were told before, and while the store was away {passed} passed and {unknown} are not known"
    );
    let mut rest = 0;
    for _ in 0..12 {
        let outcome = submit(trial, &client, batch(Op::Take, &key, limit, 1)?).await?;
        rest += u64::from(matches!(outcome, Outcome::Allowed(_)));
    }
    ensure!(rest == 10 - taken, "{rest} of the {} that were left passed afterwards", 10 - taken);
    Ok(())
}

/// Units that passed, and units that are not known, of 40 that were asked for while the store is away.
async fn without_store(
    trial: &Trial,
    client: &Arc<dyn Backend>,
    key: &Key,
    limit: Limit,
) -> Result<(u64, u64), Failure> {
    let (mut passed, mut unknown) = (0, 0);
    for _ in 0..40 {
        match submit(trial, client, batch(Op::Take, key, limit, 1)?).await? {
            Outcome::Allowed(_) => passed += 1,
            Outcome::Unknown(_) => unknown += 1,
            Outcome::Denied(_) | Outcome::NotSent(_) => {}
        }
    }
    Ok((passed, unknown))
}
