//! The worked examples of the contract, as data: limits, instants, costs and the exact answers.
//!
//! They were made by an independent program in exact rational arithmetic. Their form is told in
//! `vectors/README.md`; they are part of this crate, so that any engine anywhere can be held against them.

use std::fmt;
use std::time::Duration;

use limiter_core::{Decision, Decisions};
use serde::{Deserialize, Deserializer};

const SINGLE: &str = include_str!("../vectors/single.jsonl");
const LAYERS: &str = include_str!("../vectors/layers.jsonl");

/// One trace: limits that start fresh, and the steps taken under them.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Its name, unique among all.
    pub case: String,
    /// The limits' text forms.
    pub limits: Vec<String>,
    /// What is asked, in order, and what the answer is.
    pub steps: Vec<Step>,
}

/// One request under all limits of its trace.
#[derive(Clone, Debug)]
pub struct Step {
    /// The instant, in µs since the epoch. It goes back in some traces.
    pub t: u64,
    /// One key for each limit. The state key of limit i is (i, key).
    pub keys: Vec<String>,
    /// Units asked for, of every limit.
    pub cost: u64,
    /// The answer.
    pub expected: Expected,
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The cost is over a limit's capacity, and nothing changes.
    CostExceedsLimit,
    /// Decided.
    Decided(Answer),
}

/// The answer to a decided step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// Whether every limit allows it.
    pub allowed: bool,
    /// The longest wait of those that refuse, in µs.
    #[serde(deserialize_with = "micros_or_null")]
    pub retry_after: Option<Duration>,
    /// The longest delay, in µs.
    #[serde(deserialize_with = "micros")]
    pub delay: Duration,
    /// Each limit's own answer.
    pub layers: Vec<LayerAnswer>,
}

/// One limit's answer, with the fields of the contract's table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of `Decision`, and documented there")]
pub struct LayerAnswer {
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    #[serde(deserialize_with = "micros_or_null")]
    pub retry_after: Option<Duration>,
    #[serde(deserialize_with = "micros")]
    pub reset_after: Duration,
    #[serde(deserialize_with = "micros")]
    pub delay: Duration,
}

impl From<&Decision> for LayerAnswer {
    fn from(decision: &Decision) -> Self {
        Self {
            allowed: decision.allowed,
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after: decision.retry_after,
            reset_after: decision.reset_after,
            delay: decision.delay,
        }
    }
}

impl From<&Decisions> for Answer {
    fn from(decisions: &Decisions) -> Self {
        Self {
            allowed: decisions.allowed,
            retry_after: decisions.retry_after,
            delay: decisions.delay,
            layers: decisions.layers().iter().map(LayerAnswer::from).collect(),
        }
    }
}

/// All traces, those of one limit first.
///
/// # Errors
/// [`VectorError`] if a line of the files can't be read, which is a fault of this crate.
pub fn all() -> Result<Vec<Vector>, VectorError> {
    let single = read("single.jsonl", SINGLE, |line: SingleLine| Vector {
        case: line.case,
        limits: vec![line.limit],
        steps: line
            .steps
            .into_iter()
            .map(|step| Step {
                t: step.t,
                keys: vec!["key".to_owned()],
                cost: step.cost,
                expected: match step.expected {
                    SingleExpected::Error { .. } => Expected::CostExceedsLimit,
                    SingleExpected::Decided(layer) => Expected::Decided(Answer {
                        allowed: layer.allowed,
                        retry_after: layer.retry_after,
                        delay: layer.delay,
                        layers: vec![layer],
                    }),
                },
            })
            .collect(),
    })?;
    let layers = read("layers.jsonl", LAYERS, |line: LayersLine| Vector {
        case: line.case,
        limits: line.limits,
        steps: line
            .steps
            .into_iter()
            .map(|step| Step {
                t: step.t,
                keys: step.keys,
                cost: step.cost,
                expected: match step.expected {
                    LayersExpected::Error { .. } => Expected::CostExceedsLimit,
                    LayersExpected::Decided(answer) => Expected::Decided(answer),
                },
            })
            .collect(),
    })?;
    Ok(single.into_iter().chain(layers).collect())
}

/// A line of a vector file that can't be read.
#[derive(Debug)]
pub struct VectorError {
    file: &'static str,
    line: usize,
    source: serde_json::Error,
}

impl fmt::Display for VectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {}", self.file, self.line, self.source)
    }
}

impl std::error::Error for VectorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

fn read<'a, L: Deserialize<'a>>(
    file: &'static str,
    text: &'a str,
    vector: impl Fn(L) -> Vector,
) -> Result<Vec<Vector>, VectorError> {
    text.lines()
        .enumerate()
        .map(|(index, line)| {
            let parsed = serde_json::from_str(line);
            parsed.map(&vector).map_err(|source| VectorError { file, line: index + 1, source })
        })
        .collect()
}

#[derive(Deserialize)]
struct SingleLine {
    case: String,
    limit: String,
    steps: Vec<SingleStep>,
}

#[derive(Deserialize)]
struct SingleStep {
    t: u64,
    cost: u64,
    #[serde(flatten)]
    expected: SingleExpected,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SingleExpected {
    Error {
        #[serde(rename = "error")]
        _error: CostExceedsLimit,
    },
    Decided(LayerAnswer),
}

#[derive(Deserialize)]
struct LayersLine {
    case: String,
    limits: Vec<String>,
    steps: Vec<LayersStep>,
}

#[derive(Deserialize)]
struct LayersStep {
    t: u64,
    keys: Vec<String>,
    cost: u64,
    #[serde(flatten)]
    expected: LayersExpected,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LayersExpected {
    Error {
        #[serde(rename = "error")]
        _error: CostExceedsLimit,
    },
    Decided(Answer),
}

/// The one error that a step can have.
#[derive(Deserialize)]
enum CostExceedsLimit {
    #[serde(rename = "cost-exceeds-limit")]
    CostExceedsLimit,
}

fn micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_micros)
}

fn micros_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Option::<u64>::deserialize(deserializer).map(|micros| micros.map(Duration::from_micros))
}
