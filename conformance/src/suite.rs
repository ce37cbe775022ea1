//! Running cases, one by one or all.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, RwLock};
use std::time::{Duration, Instant};

use crate::case::{Case, Failure, Group, cases};
use crate::report::{CaseReport, Report, Verdict};
use crate::subject::{Ability, Subject};
use crate::trial::Trial;

/// A case that takes longer has failed: it hangs. A store that writes each call to a busy disk needs minutes for some.
const TIMEOUT: Duration = Duration::from_mins(15);

/// A number that no other run has, so that two runs on one store never share a key.
static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

/// Held for writing by a case that steps the store's clock, and for reading by all others.
static CLOCK: RwLock<()> = RwLock::new(());

/// What is run, and how much of it.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Options {
    /// Seeds all that is random.
    pub seed: u64,
    /// Only these groups; empty: all.
    pub groups: Vec<Group>,
    /// Only cases whose `group::name` contains one of these; empty: all.
    pub filters: Vec<String>,
    /// Calls in each recorded history, which ends after 3 s whatever is left. The report tells how many were made.
    pub calls: u32,
    /// The fewest cases that have to have run. None: each selected case that applies to every engine.
    pub at_least: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, groups: Vec::new(), filters: Vec::new(), calls: 12_000, at_least: None }
    }
}

impl Options {
    /// With another seed.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// With so many calls in each recorded history; at least 24 are made, one a task.
    pub const fn calls(mut self, calls: u32) -> Self {
        self.calls = calls;
        self
    }

    /// Only cases whose `group::name` contains this text, beside those of earlier filters.
    pub fn filter(mut self, text: impl Into<String>) -> Self {
        self.filters.push(text.into());
        self
    }

    /// With at least so many cases that have to run.
    pub const fn at_least(mut self, cases: usize) -> Self {
        self.at_least = Some(cases);
        self
    }

    pub(crate) fn selects(&self, case: &Case) -> bool {
        let path = case.path();
        (self.groups.is_empty() || self.groups.contains(&case.group()))
            && (self.filters.is_empty() || self.filters.iter().any(|filter| path.contains(filter)))
    }
}

/// Runs the suite, or what `options` selects of it, case after case.
///
/// It blocks, and may be called with or without an asynchronous runtime around.
///
/// ```
/// use limiter_conformance::{Options, Subject, run};
/// use limiter_core::Memory;
///
/// let memory = Subject::new("memory", || async { Ok(Memory::new()) });
/// let report = run(&memory, &Options::default().filter("layers"));
/// assert!(report.passed(), "{report}");
/// ```
pub fn run(subject: &Subject, options: &Options) -> Report {
    run_with(subject, options, |_| {})
}

/// As [`run`], and tells of each case as it ends.
pub fn run_with(subject: &Subject, options: &Options, mut progress: impl FnMut(&CaseReport)) -> Report {
    let started = Instant::now();
    let selected: Vec<Case> = cases().into_iter().filter(|case| options.selects(case)).collect();
    let everywhere = selected.iter().filter(|case| case.needs().is_empty()).count();
    let reports = selected
        .iter()
        .map(|case| {
            let report = run_case(subject, case, options);
            progress(&report);
            report
        })
        .collect();
    Report::new(subject.name(), options.seed, started.elapsed(), options.at_least.unwrap_or(everywhere), reports)
}

/// How many of all cases apply to the subject, and how many there are.
pub(crate) fn applicable(subject: &Subject) -> Result<(usize, usize), Failure> {
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let engine = runtime.block_on(subject.connect())?;
            let all = cases();
            let lacks = |case: &Case| case.needs().iter().any(|need| subject.lack(*need, engine.as_ref()).is_some());
            let applicable = all.iter().filter(|case| !lacks(case)).count();
            runtime.block_on(async { drop(engine) });
            Ok((applicable, all.len()))
        });
        asked.join().unwrap_or_else(|_| Err(Failure::new("making a client panicked")))
    })
}

/// Runs one case, in a thread and a runtime of its own, and cleans up after it.
pub fn run_case(subject: &Subject, case: &Case, options: &Options) -> CaseReport {
    let started = Instant::now();
    let trial = Trial::new(subject, case, options, *RUN);
    let alone = case.needs().contains(&Ability::StoreClockSteps);
    let verdict = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Poisoned by a case that panicked: the lock guards no data.
            let _steps = alone.then(|| CLOCK.write());
            let _steady = (!alone).then(|| CLOCK.read());
            catch_unwind(AssertUnwindSafe(|| run_trial(&trial, case)))
        });
        match thread.join() {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) | Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Verdict::Failed { why: format!("panicked: {text}") }
            }
        }
    });
    CaseReport { group: case.group(), name: case.name(), verdict, figures: trial.figures(), took: started.elapsed() }
}

fn run_trial(trial: &Trial, case: &Case) -> Verdict {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Verdict::Failed { why: format!("no runtime: {error}") },
    };
    let verdict = runtime.block_on(async {
        match trial.lack(case).await {
            Ok(None) => {}
            Ok(Some(reason)) => return Verdict::NotApplicable { reason },
            Err(error) => return Verdict::Failed { why: format!("no client: {error}") },
        }
        let ran = tokio::time::timeout(TIMEOUT, (case.run)(trial)).await;
        let ran = ran.unwrap_or_else(|_| Err(Failure::new(format!("not done after {} s", TIMEOUT.as_secs()))));
        let cleaned = tokio::time::timeout(TIMEOUT, trial.clean_up()).await;
        let cleaned = cleaned.unwrap_or_else(|_| Err(Failure::new("cleaning up took too long")));
        match ran.and(cleaned) {
            Ok(()) => Verdict::Passed,
            Err(failure) => Verdict::Failed { why: failure.to_string() },
        }
    });
    // A task that hangs must not keep the suite from ending.
    runtime.shutdown_timeout(Duration::from_secs(1));
    verdict
}
