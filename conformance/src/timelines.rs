//! Faults that rate limiters had, as traces with the exact answers: data for any engine.
//!
//! Their form is told in `timelines/README.md`. A [`Timeline`] is read into [`Run`]s, and those into [`Step`]s that stand for
//! themselves: each has its instant, its limits as they then are, and what is expected.

mod read;

use std::time::Duration;

use limiter_core::{Check, Decisions, Instant, Key, Limit, Op, Request, RequestError};

pub use self::read::TimelineError;

/// A reported fault, and what is right.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Its id. Several timelines may show sides of one fault.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The public threads that reported it; empty if none did.
    pub reported: String,
    /// The steps, once for each choice of limits and each base.
    pub runs: Vec<Run>,
    /// Texts that are no limit, each with the line that says why.
    pub refused: Vec<(String, String)>,
}

/// A timeline under one choice of limits, from one base. Its keys are fresh.
#[derive(Clone, Debug)]
pub struct Run {
    /// What tells it from its siblings: the limits it starts under, and the base.
    pub name: String,
    /// What is asked, in order.
    pub steps: Vec<Step>,
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Step {
    /// Where it is written.
    pub place: Place,
    /// The instant of its decision. It goes back in some timelines.
    pub at: Instant,
    /// What is asked.
    pub op: Op,
    /// The limits.
    pub limits: Vec<Limit>,
    /// A key for each limit.
    pub keys: Vec<String>,
    /// Units asked for, of every limit.
    pub cost: u64,
    /// The answer.
    pub expected: Expected,
}

/// A line of a timeline file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub file: &'static str,
    /// The line, from 1.
    pub line: usize,
}

/// What a step's answer has to be. What is none is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The verdict.
    pub verdict: Verdict,
    /// What remains, of each limit.
    pub remaining: Option<Vec<u64>>,
    /// The wait of the whole request.
    pub retry_after: Option<Duration>,
    /// When each key is as good as never used.
    pub reset_after: Option<Vec<Duration>>,
    /// The delay of the whole request.
    pub delay: Option<Duration>,
}

/// Whether a request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is allowed.
    Allow,
    /// It is denied.
    Deny,
    /// It is refused, as a cost that can never pass.
    Error,
}

/// All timelines.
///
/// # Errors
/// [`TimelineError`] names the line that can't be read, which is a fault of this crate.
pub fn all() -> Result<Vec<Timeline>, TimelineError> {
    let files = [
        ("algorithm.txt", include_str!("../timelines/algorithm.txt")),
        ("atomicity.txt", include_str!("../timelines/atomicity.txt")),
        ("clock.txt", include_str!("../timelines/clock.txt")),
        ("told.txt", include_str!("../timelines/told.txt")),
    ];
    let timelines: Result<Vec<_>, _> = files.iter().map(|(file, text)| read::timelines(file, text)).collect();
    Ok(timelines?.concat())
}

impl Step {
    /// The request; `scope` keeps runs apart from each other. The state key of limit i is (scope, i, key).
    ///
    /// # Errors
    /// Those of [`Request::new`]: for a step that expects an error, one for its cost.
    pub fn request(&self, scope: &str) -> Result<Request, RequestError> {
        let keys = self.keys.iter().enumerate().map(|(index, key)| Key::new(scope, index.to_string(), [key]));
        let checks = keys.zip(&self.limits).map(|(key, limit)| Check::new(key, *limit, self.cost));
        Request::new(self.op, checks)
    }
}

impl Expected {
    /// What of an answer is not as expected, in words; none if it is right.
    #[must_use]
    pub fn differs(&self, told: &Result<Decisions, RequestError>) -> Option<String> {
        let told = match told {
            Err(RequestError::CostExceedsLimit { .. }) if self.verdict == Verdict::Error => return None,
            Err(error) => return Some(error.to_string()),
            Ok(told) => told,
        };
        if self.verdict == Verdict::Error || told.allowed != (self.verdict == Verdict::Allow) {
            return Some(format!("{:?} expected, and told {told:?}", self.verdict));
        }
        let remaining = || told.layers().iter().map(|layer| layer.remaining).collect::<Vec<_>>();
        let reset_after = || told.layers().iter().map(|layer| layer.reset_after).collect::<Vec<_>>();
        differs("remaining", self.remaining.as_ref(), remaining)
            .or_else(|| differs("retry", self.retry_after.map(Some).as_ref(), || told.retry_after))
            .or_else(|| differs("reset", self.reset_after.as_ref(), reset_after))
            .or_else(|| differs("delay", self.delay.as_ref(), || told.delay))
    }
}

fn differs<T: PartialEq + std::fmt::Debug>(
    field: &str,
    expected: Option<&T>,
    told: impl FnOnce() -> T,
) -> Option<String> {
    let expected = expected?;
    let told = told();
    (*expected != told).then(|| format!("{field} {expected:?} expected, and told {told:?}"))
}
