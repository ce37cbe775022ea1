//! Other people's faults, as timelines at given instants.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use limiter_core::{Request, RequestError};

use super::{Failure, case_list, ensure};
use crate::timelines::{self, Run, Step};
use crate::trial::Trial;

/// How many are asked side by side, on keys of their own: most of a step is waiting for the store.
const AT_ONCE: usize = 8;

case_list! { Timelines:
    algorithm "windows that do not slide, rounding, overflow, refills in lumps",
    atomicity "layers that are charged for a refusal, and instants out of order",
    clock "clocks that go back, and lifetimes that decide",
    told "waits and remainders that are told wrong",
    at_once "the same, each instant's requests in one batch",
}

async fn algorithm(trial: &Trial) -> Result<(), Failure> {
    file(trial, "algorithm.txt").await
}

async fn atomicity(trial: &Trial) -> Result<(), Failure> {
    file(trial, "atomicity.txt").await
}

async fn clock(trial: &Trial) -> Result<(), Failure> {
    file(trial, "clock.txt").await
}

async fn told(trial: &Trial) -> Result<(), Failure> {
    file(trial, "told.txt").await
}

async fn file(trial: &Trial, file: &str) -> Result<(), Failure> {
    hold(trial, |step| step.place.file == file, |_, _| false).await
}

async fn at_once(trial: &Trial) -> Result<(), Failure> {
    hold(trial, |_| true, |one, other| one.at == other.at).await
}

/// Asks the wanted timelines, and compares with their answers; steps that go `together` are a batch.
async fn hold(
    trial: &Trial,
    wanted: impl Fn(&Step) -> bool,
    together: impl Fn(&Step, &Step) -> bool,
) -> Result<(), Failure> {
    let timelines = timelines::all()?;
    let runs = timelines.iter().flat_map(|timeline| {
        let runs = timeline.runs.iter().enumerate();
        runs.filter(|(_, run)| run.steps.first().is_some_and(&wanted)).map(move |(number, run)| (timeline, number, run))
    });
    let runs: Vec<_> = runs.collect();
    ensure!(!runs.is_empty(), "there are no such timelines");
    let together = &together;
    let held: Vec<_> = runs
        .into_iter()
        .map(|(timeline, number, run)| async move {
            // Several timelines may have one id.
            let name = format!("{} {} {number}", timeline.id, timeline.title);
            hold_run(trial, &name, run, together).await.map_err(|failure| {
                Failure::new(format!("{} {} ({}), {failure}", timeline.id, timeline.title, run.name))
            })
        })
        .collect();
    stream::iter(held).buffer_unordered(AT_ONCE).try_collect().await
}

async fn hold_run(
    trial: &Trial,
    name: &str,
    run: &Run,
    together: impl Fn(&Step, &Step) -> bool,
) -> Result<(), Failure> {
    let mut twin = trial.twin().await?;
    for steps in run.steps.chunk_by(together) {
        let Some(first) = steps.first() else { continue };
        let asked: Vec<Result<Request, RequestError>> = steps.iter().map(|step| request(trial, name, step)).collect();
        let decided = twin.batch(asked.iter().flatten().cloned().collect(), Some(first.at)).await?;
        let mut decided = decided.into_iter();
        for (step, asked) in steps.iter().zip(asked) {
            let told = match asked {
                Ok(_) => Ok(decided.next().ok_or_else(|| Failure::new("an outcome is missing"))?),
                Err(error) => Err(error),
            };
            if let Some(differs) = step.expected.differs(&told) {
                trial.counters.differed(1);
                return Err(Failure::new(format!("{} line {}: {differs}", step.place.file, step.place.line)));
            }
        }
    }
    Ok(())
}

/// The step's request, on keys of the case. Which timeline and run they are of is a part of them.
fn request(trial: &Trial, name: &str, step: &Step) -> Result<Request, RequestError> {
    let keys = step.keys.iter().enumerate();
    let keys = keys.map(|(index, key)| trial.key(name, [index.to_string().as_str(), key]));
    let checks = keys.zip(&step.limits).map(|(key, limit)| limiter_core::Check::new(key, *limit, step.cost));
    Request::new(step.op, checks)
}
