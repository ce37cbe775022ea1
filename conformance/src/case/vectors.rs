//! The worked examples of the contract: every answer of every step, at given instants.

use limiter_core::{Check, Key, Limit, Op, Request, RequestError};

use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};
use crate::twin::told;
use crate::vectors::{self, Answer, Expected, Step, Vector};

case_list! { Vectors:
    fixed_window "every worked example of a fixed window",
    sliding_log "every worked example of a sliding log",
    sliding_counter "every worked example of a sliding counter",
    token_bucket "every worked example of a token bucket",
    leaky_bucket "every worked example of a leaky bucket",
    layers "every worked example of several limits in one request",
}

async fn fixed_window(trial: &Trial) -> Result<(), Failure> {
    single(trial, "fixed-window").await
}

async fn sliding_log(trial: &Trial) -> Result<(), Failure> {
    single(trial, "sliding-log").await
}

async fn sliding_counter(trial: &Trial) -> Result<(), Failure> {
    single(trial, "sliding-counter").await
}

async fn token_bucket(trial: &Trial) -> Result<(), Failure> {
    single(trial, "token-bucket").await
}

async fn leaky_bucket(trial: &Trial) -> Result<(), Failure> {
    single(trial, "leaky-bucket").await
}

async fn layers(trial: &Trial) -> Result<(), Failure> {
    run(trial, |vector| vector.limits.len() > 1).await
}

async fn single(trial: &Trial, algorithm: &str) -> Result<(), Failure> {
    run(trial, |vector| vector.limits.len() == 1 && vector.limits.iter().all(|limit| limit.contains(algorithm))).await
}

async fn run(trial: &Trial, wanted: impl Fn(&Vector) -> bool) -> Result<(), Failure> {
    let vectors: Vec<Vector> = vectors::all()?.into_iter().filter(wanted).collect();
    ensure!(!vectors.is_empty(), "there are no such vectors");
    for vector in &vectors {
        trace(trial, vector).await?;
    }
    Ok(())
}

/// Asks the steps of one trace, and compares with its answers. The model is asked too, so that its versions are followed.
async fn trace(trial: &Trial, vector: &Vector) -> Result<(), Failure> {
    let limits: Vec<Limit> = vector.limits.iter().map(|limit| limit.parse()).collect::<Result<_, _>>()?;
    let mut twin = trial.twin().await?;
    for (number, step) in vector.steps.iter().enumerate() {
        let answer = match request(trial, vector, step, &limits) {
            Err(RequestError::CostExceedsLimit { .. }) => Expected::CostExceedsLimit,
            Err(error) => return Err(error.into()),
            Ok(request) => {
                let decisions = twin
                    .ask(request, Some(at(step.t)?))
                    .await
                    .map_err(|failure| Failure::new(format!("vector {} step {number}: {failure}", vector.case)))?;
                let answer = Expected::Decided(Answer::from(&decisions));
                ensure!(
                    answer == step.expected,
                    "vector {} step {number}: told {}, expected {:?}",
                    vector.case,
                    told(&decisions),
                    step.expected
                );
                answer
            }
        };
        ensure!(
            answer == step.expected,
            "vector {} step {number}: {answer:?}, expected {:?}",
            vector.case,
            step.expected
        );
    }
    Ok(())
}

fn request(trial: &Trial, vector: &Vector, step: &Step, limits: &[Limit]) -> Result<Request, RequestError> {
    let key = |index: usize, key: &str| -> Key { trial.key(&vector.case, [index.to_string().as_str(), key]) };
    let checks = limits.iter().zip(&step.keys).enumerate();
    Request::new(Op::Take, checks.map(|(index, (limit, name))| Check::new(key(index, name), *limit, step.cost)))
}
