//! The timelines, held against the core's own `decide`, and against the memory engine in single requests and in batches.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use limiter_conformance::timelines::{self, Run, Step, Timeline, Verdict};
use limiter_core::{Backend, Batch, Cell, Cells, Decisions, Key, Limit, Memory, Request, RequestError, decide};

type Told = Result<Decisions, RequestError>;

/// Holds each run's answers against what is expected, and names all that differ.
fn hold(answers: impl Fn(&str, &Run) -> Vec<Told>) {
    let mut wrong = Vec::new();
    for Timeline { id, title, runs, .. } in timelines::all().unwrap() {
        for (number, run) in runs.iter().enumerate() {
            let told = answers(&format!("{id} {title} {number}"), run);
            assert_eq!(told.len(), run.steps.len(), "{id} {title}");
            let differs = run.steps.iter().zip(&told).find_map(|(step, told)| {
                let differs = step.expected.differs(told)?;
                let (file, line) = (step.place.file, step.place.line);
                Some(format!("{id} {title} ({}, {file} line {line}): {differs}", run.name))
            });
            wrong.extend(differs);
        }
    }
    assert!(wrong.is_empty(), "{} runs differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[derive(Default)]
struct States(HashMap<Key, Cell>);

struct Of<'a>(&'a mut States, &'a Request);

impl Cells for Of<'_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        let key = self.1.checks().get(index).map(|check| check.key.clone());
        self.0.0.entry(key.expect("an index of a check")).or_default()
    }
}

#[test]
fn the_core_gives_each_timeline_s_answers() {
    hold(|scope, run| {
        let mut states = States::default();
        let told = run.steps.iter().map(|step| {
            let request = step.request(scope)?;
            let record = decide(&request, step.at, &mut Of(&mut states, &request));
            Ok(record.decisions(&request).expect("the core's own record"))
        });
        told.collect()
    });
}

/// Submits the requests of these steps, which are at one instant, as one batch.
fn submit(engine: &impl Backend, scope: &str, steps: &[Step]) -> Vec<Told> {
    let asked: Vec<Result<Request, RequestError>> = steps.iter().map(|step| step.request(scope)).collect();
    let requests: Vec<Request> = asked.iter().flatten().cloned().collect();
    let batch = Arc::new(Batch { requests, at: steps.first().map(|step| step.at) });
    let mut submitted = pin!(engine.submit(batch));
    let Poll::Ready(outcomes) = submitted.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        unreachable!("memory has nothing to wait for")
    };
    let mut outcomes = outcomes.into_iter();
    let told = asked.into_iter().map(|request| {
        let request = request?;
        let outcome = outcomes.next().expect("an outcome for each request");
        Ok(outcome.decisions(&request).expect("memory has room"))
    });
    told.collect()
}

#[test]
fn the_memory_engine_gives_each_timeline_s_answers() {
    let memory = Memory::new();
    hold(|scope, run| run.steps.iter().flat_map(|step| submit(&memory, scope, std::slice::from_ref(step))).collect());
}

#[test]
fn the_memory_engine_gives_the_same_answers_to_all_of_an_instant_at_once() {
    let memory = Memory::new();
    hold(|scope, run| {
        run.steps.chunk_by(|one, other| one.at == other.at).flat_map(|steps| submit(&memory, scope, steps)).collect()
    });
}

#[test]
fn what_is_no_limit_is_refused_with_the_reason() {
    let mut refused = 0;
    for (text, error) in timelines::all().unwrap().iter().flat_map(|timeline| &timeline.refused) {
        assert_eq!(text.parse::<Limit>().map_err(|error| error.to_string()), Err(error.clone()), "{text}");
        refused += 1;
    }
    assert!(refused > 10, "{refused} texts");
}

#[test]
fn every_timeline_says_something_of_its_own() {
    let timelines = timelines::all().unwrap();
    let mut titles = BTreeMap::new();
    for timeline in &timelines {
        let Timeline { id, title, reported, runs, refused } = timeline;
        assert_eq!(titles.insert(title, id), None, "{title} is there twice");
        assert!(!id.starts_with('B') || !reported.is_empty(), "{id} {title} has no thread");
        assert!(!refused.is_empty() || runs.iter().any(|run| !run.steps.is_empty()), "{id} {title} is empty");
    }
    let steps = timelines.iter().flat_map(|timeline| &timeline.runs).flat_map(|run| &run.steps);
    let errors = steps.filter(|step| step.expected.verdict == Verdict::Error).count();
    assert!(timelines.len() >= 60 && errors >= 10, "{} timelines, {errors} errors", timelines.len());
}
