//! One more client, which asks and waits for the answer: for the audit, and to know when the store answers again.

use std::sync::Arc;
use std::time::{Duration, Instant as Time};

use limiter_core::{Backend, Batch, Check, ClockSource, Instant, Key, Limit, Op, Outcome, Request, Scope};
use tokio::runtime::Runtime;

use crate::case::Failure;
use crate::fault::Site;

/// How many peeks go in one batch.
const BATCH: usize = 128;
/// How long a store may need until it answers again, before that is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A client that blocks.
pub(crate) struct Probe {
    client: Option<Arc<dyn Backend>>,
    runtime: Option<Runtime>,
}

impl Probe {
    pub(crate) fn connect(site: &Site, url: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(site.connect(url.to_owned()))?;
        Ok(Self { client: Some(client), runtime: Some(runtime) })
    }

    fn parts(&self) -> Result<(&Arc<dyn Backend>, &Runtime), Failure> {
        match (&self.client, &self.runtime) {
            (Some(client), Some(runtime)) => Ok((client, runtime)),
            _ => Err(Failure::new("the probe has ended")),
        }
    }

    /// Whether one clock gives all instants: the store's, or that of the one process.
    pub(crate) fn has_one_clock(&self) -> Result<bool, Failure> {
        let capabilities = self.parts()?.0.capabilities();
        Ok(capabilities.clock == ClockSource::Store || capabilities.scope == Scope::Process)
    }

    pub(crate) fn submit(&self, requests: Vec<Request>, at: Option<Instant>) -> Result<Vec<Outcome>, Failure> {
        let (client, runtime) = self.parts()?;
        let asked = requests.len();
        let client = Arc::clone(client);
        // In a task, as a service would: the engine's own tasks go on beside it.
        let call = runtime.spawn(async move { client.submit(Arc::new(Batch { requests, at })).await });
        let outcomes = runtime.block_on(call)?;
        if outcomes.len() != asked {
            return Err(Failure::new(format!("{} outcomes for {asked} requests", outcomes.len())));
        }
        Ok(outcomes)
    }

    pub(crate) fn ask(&self, op: Op, key: &Key, limit: Limit, cost: u64) -> Result<Outcome, Failure> {
        let request = Request::new(op, [Check::new(key.clone(), limit, cost)])?;
        self.submit(vec![request], None)?.pop().ok_or_else(|| Failure::new("the engine gave no outcome"))
    }

    /// Takes so many units one by one, and tells how many passed.
    pub(crate) fn take(&self, key: &Key, limit: Limit, units: u64) -> Result<u64, Failure> {
        let mut passed = 0;
        for _ in 0..units {
            passed += u64::from(matches!(self.ask(Op::Take, key, limit, 1)?, Outcome::Allowed(_)));
        }
        Ok(passed)
    }

    /// Waits until the store answers, and tells how long that took.
    pub(crate) fn wait_for_an_answer(&self, key: &Key, limit: Limit) -> Result<Duration, Failure> {
        let began = Time::now();
        loop {
            let outcome = self.ask(Op::Peek, key, limit, 0)?;
            match outcome.record() {
                Ok(_) => return Ok(began.elapsed()),
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(Failure::new(format!("no answer {PATIENCE:?} after the fault: {error}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// What is left of each of these keys, as soon as the store tells.
    pub(crate) fn left<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Key>,
        limit: Limit,
        at: Option<Instant>,
    ) -> Result<Vec<u64>, Failure> {
        let requests: Result<Vec<Request>, _> =
            keys.into_iter().map(|key| Request::new(Op::Peek, [Check::new(key.clone(), limit, 0)])).collect();
        let requests = requests?;
        let mut left = Vec::with_capacity(requests.len());
        for some in requests.chunks(BATCH) {
            let began = Time::now();
            let outcomes = loop {
                let outcomes = self.submit(some.to_vec(), at)?;
                match outcomes.iter().find_map(|outcome| outcome.record().err()) {
                    None => break outcomes,
                    Some(error) if began.elapsed() > PATIENCE => {
                        return Err(Failure::new(format!("the audit gets no answer: {error}")));
                    }
                    Some(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            };
            for (request, outcome) in some.iter().zip(&outcomes) {
                let decisions = outcome.decisions(request)?;
                left.push(decisions.layers().first().map_or(0, |layer| layer.remaining));
            }
        }
        Ok(left)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let client = self.client.take();
            runtime.block_on(async { drop(client) });
            // An engine's tasks may be waiting for a store that is gone.
            runtime.shutdown_background();
        }
    }
}
