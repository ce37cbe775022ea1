//! The worked examples, held against the core's own `decide`.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::collections::HashMap;

use limiter_conformance::vectors::{self, Answer, Expected, Step, Vector};
use limiter_core::{Cell, Cells, Check, Instant, Key, Limit, Op, Request, decide};

/// The states of one trace, by state key.
#[derive(Default)]
struct States(HashMap<Key, Cell>);

struct Of<'a> {
    states: &'a mut States,
    request: &'a Request,
}

impl Cells for Of<'_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        self.states.0.entry(self.request.checks()[index].key.clone()).or_default()
    }
}

fn request(vector: &Vector, step: &Step, limits: &[Limit]) -> Option<Request> {
    let checks =
        limits.iter().zip(&step.keys).enumerate().map(|(index, (limit, key))| {
            Check::new(Key::new(&vector.case, index.to_string(), [key]), *limit, step.cost)
        });
    Request::new(Op::Take, checks).ok()
}

#[test]
fn the_core_gives_every_worked_answer() {
    let vectors = vectors::all().unwrap();
    assert_eq!(vectors.len(), 144, "cases");
    let mut steps = 0;
    for vector in &vectors {
        let limits: Vec<Limit> = vector.limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let mut states = States::default();
        for (number, step) in vector.steps.iter().enumerate() {
            let now = Instant::from_micros(step.t).unwrap();
            let answer = match request(vector, step, &limits) {
                None => Expected::CostExceedsLimit,
                Some(request) => {
                    let record = decide(&request, now, &mut Of { states: &mut states, request: &request });
                    Expected::Decided(Answer::from(&record.decisions(&request).unwrap()))
                }
            };
            assert_eq!(answer, step.expected, "{} step {number}: {step:?} under {limits:?}", vector.case);
            steps += 1;
        }
    }
    assert_eq!(steps, 5_760, "steps");
}
