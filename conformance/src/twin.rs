//! An engine and the model, asked the same: every answer has to be equal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use limiter_core::{
    Algorithm, Backend, Batch, Cell, Cells, Check, Decision, Decisions, Instant, Key, Limit, Op, Outcome, Record,
    Request, Source, decide,
};

use crate::case::{Failure, ensure};
use crate::trial::Trial;

/// The contract itself: states by key, decided by the core one request after the other, and never collected.
#[derive(Debug, Default)]
pub(crate) struct Model {
    cells: HashMap<Key, Cell>,
}

impl Model {
    pub(crate) fn decide(&mut self, request: &Request, now: Instant) -> Record {
        let keys = request.checks().iter().map(|check| &check.key);
        let mut loaded = Loaded(keys.map(|key| self.cells.get(key).cloned().unwrap_or_default()).collect());
        let record = decide(request, now, &mut loaded);
        for (check, cell) in request.checks().iter().zip(loaded.0) {
            self.cells.insert(check.key.clone(), cell);
        }
        record
    }
}

struct Loaded(Vec<Cell>);

#[expect(clippy::indexing_slicing, reason = "one cell was loaded for each check")]
impl Cells for Loaded {
    fn cell(&mut self, index: usize) -> &mut Cell {
        &mut self.0[index]
    }
}

/// A client and the model beside it.
#[derive(Debug)]
pub(crate) struct Twin<'t> {
    trial: &'t Trial,
    client: Arc<dyn Backend>,
    model: Model,
    /// The last version that was seen of each key that was written.
    versions: HashMap<Key, u64>,
}

impl<'t> Twin<'t> {
    pub(crate) fn new(trial: &'t Trial, client: Arc<dyn Backend>) -> Self {
        Self { trial, client, model: Model::default(), versions: HashMap::new() }
    }

    /// Goes on with another client of the same store.
    pub(crate) fn change_client(&mut self, client: Arc<dyn Backend>) {
        self.client = client;
    }

    /// Asks for one check.
    pub(crate) async fn one(
        &mut self,
        op: Op,
        key: &Key,
        limit: Limit,
        cost: u64,
        at: Option<Instant>,
    ) -> Result<Decision, Failure> {
        let decisions = self.ask(Request::new(op, [Check::new(key.clone(), limit, cost)])?, at).await?;
        decisions.layers().first().copied().ok_or_else(|| Failure::new("a decision without a layer"))
    }

    /// Takes `cost` units of one key.
    pub(crate) async fn take(
        &mut self,
        key: &Key,
        limit: Limit,
        cost: u64,
        at: Option<Instant>,
    ) -> Result<Decision, Failure> {
        self.one(Op::Take, key, limit, cost, at).await
    }

    /// What is left of a key.
    pub(crate) async fn peek(&mut self, key: &Key, limit: Limit, at: Option<Instant>) -> Result<Decision, Failure> {
        self.one(Op::Peek, key, limit, 0, at).await
    }

    /// Asks for one request.
    pub(crate) async fn ask(&mut self, request: Request, at: Option<Instant>) -> Result<Decisions, Failure> {
        let mut decisions = self.batch(vec![request], at).await?;
        decisions.pop().ok_or_else(|| Failure::new("the engine gave no outcome"))
    }

    /// Asks for a batch; the model decides one request after the other, at the engine's instants.
    pub(crate) async fn batch(
        &mut self,
        requests: Vec<Request>,
        at: Option<Instant>,
    ) -> Result<Vec<Decisions>, Failure> {
        let batch = Arc::new(Batch { requests, at });
        let outcomes = self.client.submit(Arc::clone(&batch)).await;
        self.trial.counters.called(batch.requests.len());
        ensure!(
            outcomes.len() == batch.requests.len(),
            "{} outcomes for {} requests",
            outcomes.len(),
            batch.requests.len()
        );
        let answers = batch.requests.iter().zip(&outcomes);
        answers
            .map(|(request, outcome)| {
                let compared = self.compare(request, outcome, at);
                if compared.is_err() {
                    self.trial.counters.differed(1);
                }
                compared
            })
            .collect()
    }

    fn compare(&mut self, request: &Request, outcome: &Outcome, at: Option<Instant>) -> Result<Decisions, Failure> {
        let record = outcome.record().map_err(Clone::clone)?;
        ensure!(
            record.allowed == matches!(outcome, Outcome::Allowed(_)),
            "{}: the outcome and its record tell different verdicts",
            describe(request, record.at)
        );
        if let Some(at) = at {
            ensure!(record.at == at, "decided at {}, and not at the given {at}", record.at);
        }
        let engine = record
            .decisions(request)
            .map_err(|divergence| Failure::new(format!("{}: {divergence}", describe(request, record.at))))?;
        let mut model = self.model.decide(request, record.at);
        if matches!(request.op(), Op::Refund { .. } | Op::Reset) {
            // Neither is a question: that it is allowed is all that it says, and what is left is compared below.
            model.allowed = true;
        }
        let model = model.decisions(request)?;
        ensure!(
            same(request, &engine, &model),
            "{}:\n  the engine tells {}\n  the contract is  {}",
            describe(request, record.at),
            told(&engine),
            told(&model)
        );
        self.follow_versions(request, record, at.is_some())?;
        Ok(engine)
    }

    /// Each write raises its key's version, and nothing else changes it, as long as the store is sure to have kept the key.
    fn follow_versions(&mut self, request: &Request, record: &Record, kept: bool) -> Result<(), Failure> {
        for (check, layer) in request.checks().iter().zip(record.layers()) {
            let seen = self.versions.get(&check.key).copied();
            let wrote = record.allowed && request.op() == Op::Take && check.cost > 0;
            match seen {
                Some(seen) if wrote => ensure!(
                    layer.version > seen,
                    "{}: a write took the version of {} from {seen} to {}",
                    describe(request, record.at),
                    check.key,
                    layer.version
                ),
                Some(seen) if kept && matches!(request.op(), Op::Take | Op::Peek) => ensure!(
                    layer.version == seen,
                    "{}: wrote nothing, and the version of {} went from {seen} to {}",
                    describe(request, record.at),
                    check.key,
                    layer.version
                ),
                _ => {}
            }
            if wrote {
                self.versions.insert(check.key.clone(), layer.version);
            } else if matches!(request.op(), Op::Refund { .. } | Op::Reset) {
                // What they leave behind may be a state, or nothing.
                self.versions.remove(&check.key);
            }
        }
        Ok(())
    }
}

/// Whether an engine's answer is the model's. A refusal that a layer remembered has no numbers of limits that were not asked; of a
/// sliding log it tells what was left when the store refused, which is no more than what is left now.
fn same(request: &Request, engine: &Decisions, model: &Decisions) -> bool {
    if engine.source != Source::Cache {
        return engine == model;
    }
    let known = |((check, one), other): ((&Check, &Decision), &Decision)| {
        let log = check.limit.algorithm() == Algorithm::SlidingLog;
        let mut due = *other;
        due.source = one.source;
        if log {
            due.remaining = due.remaining.min(one.remaining);
        }
        one.source == Source::Unasked || *one == due
    };
    // What was not asked may refuse too, and longer.
    let unasked = engine.layers().iter().any(|layer| layer.source == Source::Unasked);
    let waits = engine.retry_after == model.retry_after || unasked && engine.retry_after <= model.retry_after;
    let mut layers = request.checks().iter().zip(engine.layers()).zip(model.layers());
    engine.allowed == model.allowed && engine.at == model.at && waits && layers.all(known)
}

/// A request and its instant, in a line.
pub(crate) fn describe(request: &Request, at: Instant) -> String {
    let checks: Vec<String> =
        request.checks().iter().map(|check| format!("{} of {} under {}", check.cost, check.key, check.limit)).collect();
    format!("{} {} at {at}", request.op(), checks.join(" + "))
}

/// Decisions in a line.
pub(crate) fn told(decisions: &Decisions) -> String {
    let layers: Vec<String> = decisions.layers().iter().map(one_told).collect();
    let verdict = if decisions.allowed { "allowed" } else { "denied" };
    if layers.len() == 1 { layers.concat() } else { format!("{verdict}: [{}]", layers.join(", ")) }
}

/// One decision in a line, waits in µs.
pub(crate) fn one_told(decision: &Decision) -> String {
    let verdict = if decision.allowed { "allowed" } else { "denied" };
    let retry = decision.retry_after.map_or_else(String::new, |wait| format!(", retry {}", micros(wait)));
    let delay = if decision.delay.is_zero() { String::new() } else { format!(", delay {}", micros(decision.delay)) };
    format!("{verdict}, {} left{retry}, reset {}{delay}", decision.remaining, micros(decision.reset_after))
}

fn micros(wait: Duration) -> String {
    format!("{} µs", wait.as_micros())
}
