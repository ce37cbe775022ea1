//! The outermost layer: what callers are told, rule by rule.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use async_trait::async_trait;
use foldhash::fast::RandomState;
use limiter_core::{Backend, Batch, Capabilities, Key, Outcome, Request, Source};
use metrics::{Counter, Histogram, Unit};

const DECISIONS: &str = "limiter_decisions_total";
const DURATION: &str = "limiter_decision_duration_seconds";
const DIVERGENCES: &str = "limiter_divergences_total";

/// A layer that counts what callers are told; it is the outermost.
///
/// | name | labels | what |
/// | --- | --- | --- |
/// | `limiter_decisions_total` | `rule`, `outcome`: `allowed`, `denied`, `not-sent`, `unknown`; `source`: `store`, `cache`, `local`, `open`, `none` | takes; of a request with several limits each rule that it passed, or that refused it |
/// | `limiter_decision_duration_seconds` | `engine` | how long a caller waited |
/// | `limiter_divergences_total` | `engine` | verdicts that are not the core's: a fault in the engine |
///
/// **A key is never a label.** A rule is, and there are at most [`MAX_RULES`](Self::MAX_RULES) of them; what comes after is counted
/// as the rule `other`.
pub struct WatchRules {
    backend: Arc<dyn Backend>,
    rules: RwLock<HashMap<Box<str>, Arc<Rule>, RandomState>>,
    duration: Histogram,
    divergences: Counter,
}

/// What a caller is told of one rule.
#[derive(Clone, Copy)]
enum Told {
    Allowed(Source),
    Denied(Source),
    NotSent,
    Unknown,
}

impl Told {
    const ALL: usize = 2 * SOURCES.len() + 2;

    /// The place of its counter, and its labels.
    fn place(self) -> (usize, &'static str, &'static str) {
        let of = |source: Source| SOURCES.iter().position(|known| *known == source).unwrap_or_default();
        match self {
            Self::Allowed(source) => (of(source), "allowed", source.name()),
            Self::Denied(source) => (SOURCES.len() + of(source), "denied", source.name()),
            Self::NotSent => (2 * SOURCES.len(), "not-sent", "none"),
            Self::Unknown => (2 * SOURCES.len() + 1, "unknown", "none"),
        }
    }
}

const SOURCES: [Source; 4] = [Source::Store, Source::Cache, Source::Local, Source::Open];

/// A rule's counters, each looked up when it is first needed, so that what never happens is not exported.
struct Rule {
    name: Box<str>,
    counters: [OnceLock<Counter>; Told::ALL],
}

impl Rule {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.into(), counters: [const { OnceLock::new() }; Told::ALL] })
    }

    fn add(&self, told: Told) {
        let (place, outcome, source) = told.place();
        let Some(counter) = self.counters.get(place) else { return };
        let make =
            || metrics::counter!(DECISIONS, "rule" => self.name.to_string(), "outcome" => outcome, "source" => source);
        counter.get_or_init(make).increment(1);
    }
}

impl WatchRules {
    /// The most rules that are told apart.
    pub const MAX_RULES: usize = 1024;
    /// The name of all others.
    const OTHER: &str = "other";

    /// `backend`, watched.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let engine = backend.capabilities().engine;
        metrics::describe_counter!(DECISIONS, "What callers were told");
        metrics::describe_histogram!(DURATION, Unit::Seconds, "How long a caller waited for a decision");
        metrics::describe_counter!(DIVERGENCES, "Verdicts of the engine that are not the core's");
        Self {
            backend,
            rules: RwLock::default(),
            duration: metrics::histogram!(DURATION, "engine" => engine),
            divergences: metrics::counter!(DIVERGENCES, "engine" => engine),
        }
    }

    fn rule(&self, key: &Key) -> Arc<Rule> {
        let name = key.rule();
        if let Some(rule) = self.rules.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Arc::clone(rule);
        }
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let name = if rules.len() < Self::MAX_RULES { name } else { Self::OTHER };
        Arc::clone(rules.entry(name.into()).or_insert_with(|| Rule::new(name)))
    }

    fn count(&self, request: &Request, outcome: &Outcome) {
        match outcome {
            Outcome::Allowed(_) | Outcome::Denied(_) => match outcome.decisions(request) {
                Ok(decisions) => {
                    for (check, layer) in request.checks().iter().zip(decisions.layers()) {
                        match (decisions.allowed, layer.allowed) {
                            (true, _) => self.rule(&check.key).add(Told::Allowed(layer.source)),
                            (false, false) => self.rule(&check.key).add(Told::Denied(layer.source)),
                            // In nobody's way, and not charged.
                            (false, true) => {}
                        }
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "a verdict of the store is not the core's");
                    self.divergences.increment(1);
                    self.all(request, Told::Unknown);
                }
            },
            Outcome::NotSent(_) => self.all(request, Told::NotSent),
            Outcome::Unknown(error) => {
                if error.kind() == limiter_core::ErrorKind::Divergence {
                    tracing::error!(%error, "a verdict of the store is not the core's");
                    self.divergences.increment(1);
                }
                self.all(request, Told::Unknown);
            }
        }
    }

    fn all(&self, request: &Request, told: Told) {
        for check in request.checks() {
            self.rule(&check.key).add(told);
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for WatchRules {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let started = Instant::now();
        let outcomes = self.backend.submit(Arc::clone(&batch)).await;
        self.duration.record(started.elapsed());
        for (request, outcome) in batch.requests.iter().zip(&outcomes) {
            if request.op() == limiter_core::Op::Take {
                self.count(request, outcome);
            }
        }
        outcomes
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

impl fmt::Debug for WatchRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchRules({:?})", self.backend)
    }
}
