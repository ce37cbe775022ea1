//! The worked examples of the contract, through the command.

use std::fmt::Write;

use limiter_conformance::vectors::{self, Answer, Expected, Vector};
use serde_json::{Value, json};

use super::{Ended, limiter};

pub(super) fn lines(vector: &Vector) -> String {
    let mut lines = String::new();
    for step in &vector.steps {
        let limits: Vec<Value> =
            vector.limits.iter().zip(&step.keys).map(|(limit, key)| json!({"limit": limit, "key": key})).collect();
        writeln!(lines, "{}", json!({"t": step.t, "cost": step.cost, "limits": limits})).unwrap();
    }
    lines
}

/// The answers of a run with `--json`.
pub(super) fn answers(ended: &Ended) -> Vec<Expected> {
    let lines = ended.json().into_iter().map(|answer| {
        if answer == json!({"error": "cost-exceeds-limit"}) {
            return Expected::CostExceedsLimit;
        }
        Expected::Decided(serde_json::from_value::<Answer>(answer).unwrap())
    });
    lines.collect()
}

#[test]
fn every_trace_gets_the_worked_answers() {
    every_trace("memory:");
}

/// Each trace, replayed on the store at `url`, gives the answers that were worked out.
pub(super) fn every_trace(url: &str) {
    let vectors = vectors::all().unwrap();
    assert_eq!(vectors.len(), 144);
    let mut steps = 0;
    for vector in &vectors {
        let ended = limiter(&["replay", "--json", "--store", url], lines(vector));
        assert_eq!(ended.status, 0, "{}: {}", vector.case, ended.err);
        let answers = answers(&ended);
        let expected: Vec<Expected> = vector.steps.iter().map(|step| step.expected.clone()).collect();
        assert_eq!(answers, expected, "{}", vector.case);
        steps += answers.len();
    }
    assert_eq!(steps, 5_760);
}

#[test]
fn an_answer_has_the_contracts_fields_and_no_others() {
    let line = r#"{"t": 0, "limits": [{"limit": "10/1s token-bucket burst=20", "key": "a"}]}"#;
    let ended = limiter(&["replay", "--json"], line);
    assert_eq!(
        ended.out,
        "{\"allowed\":true,\"retry_after\":null,\"delay\":0,\"layers\":[{\"allowed\":true,\"limit\":20,\
         \"remaining\":19,\"retry_after\":null,\"reset_after\":100000,\"delay\":0}]}\n"
    );
}
