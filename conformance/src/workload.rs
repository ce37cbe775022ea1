//! Many clients at once: what each of them asks, and the record of what it saw.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant as Time};

use limiter_core::{Backend, Batch, Check, Instant, Key, Limit, Op, Request, Scope};
use serde::{Deserialize, Serialize};

use crate::case::Failure;
use crate::history::{Answer, Asked, Call, History};
use crate::monotonic;
use crate::random::Random;
use crate::trial::Trial;
use crate::worker;

/// Processes, or threads with a runtime and a client of their own where the engine's scope is the process.
pub(crate) const PROCESSES: u32 = 3;
/// Tasks of each.
pub(crate) const TASKS: u32 = 8;

/// What the clients of a case ask, all of it drawn from a seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    seed: u64,
    scope: String,
    /// Calls of each task.
    calls: u32,
    /// Tasks stop after this, in ms, whatever is left to do.
    stop_after: u64,
    /// Given instants in µs, of which each call has one; none: the engine's own.
    instants: Vec<u64>,
    /// How many of a hundred takes that were admitted are given back.
    refunds: u64,
    /// Requests in each batch.
    batch: u32,
    keys: Vec<(String, String)>,
    limits: Vec<String>,
    items: Vec<Item>,
}

/// A kind of request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Item {
    weight: u64,
    peek: bool,
    /// Key, limit, and the highest cost; the lowest is 1.
    checks: Vec<(usize, usize, u64)>,
}

impl Item {
    /// A take that is drawn so often.
    pub(crate) fn take(weight: u64, checks: impl IntoIterator<Item = (usize, usize, u64)>) -> Self {
        Self { weight, peek: false, checks: checks.into_iter().collect() }
    }

    /// The same, taking nothing.
    pub(crate) fn peek(weight: u64, checks: impl IntoIterator<Item = (usize, usize, u64)>) -> Self {
        Self { peek: true, ..Self::take(weight, checks) }
    }
}

impl Plan {
    /// A plan without requests, for all clients together as many calls as the options say.
    pub(crate) fn new(trial: &Trial) -> Self {
        Self {
            seed: trial.seed(),
            scope: trial.scope().to_owned(),
            calls: trial.calls().div_ceil(PROCESSES * TASKS),
            stop_after: 3_000,
            instants: Vec::new(),
            refunds: 0,
            batch: 1,
            keys: Vec::new(),
            limits: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Adds a key, and gives its index.
    pub(crate) fn key(&mut self, rule: &str, name: impl Into<String>) -> usize {
        self.keys.push((rule.to_owned(), name.into()));
        self.keys.len() - 1
    }

    /// Adds a limit, and gives its index.
    pub(crate) fn limit(&mut self, text: impl Into<String>) -> usize {
        self.limits.push(text.into());
        self.limits.len() - 1
    }

    pub(crate) fn item(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Each call has one of these instants.
    ///
    /// What is due then is known to the unit, so all calls have to be made: a slow store gets the time for them.
    pub(crate) fn at(mut self, instants: impl IntoIterator<Item = u64>) -> Self {
        self.instants = instants.into_iter().collect();
        self.stop_after(25_000)
    }

    pub(crate) fn calls_per_task(mut self, calls: u32) -> Self {
        self.calls = calls;
        self
    }

    pub(crate) fn refunds(mut self, of_hundred: u64) -> Self {
        self.refunds = of_hundred;
        self
    }

    pub(crate) fn batches_of(mut self, requests: u32) -> Self {
        self.batch = requests;
        self.calls = self.calls.div_ceil(requests.max(1));
        self
    }

    pub(crate) const fn stop_after(mut self, stop_after: u64) -> Self {
        self.stop_after = stop_after;
        self
    }

    /// Whether real time decides, and not given instants.
    pub(crate) fn is_real_time(&self) -> bool {
        self.instants.is_empty()
    }

    /// Runs the plan with all its clients: processes where the store is shared by them, else threads.
    pub(crate) async fn run(&self, trial: &Trial) -> Result<History, Failure> {
        let mut history = History::new(self.keys(), self.limits()?);
        for key in &history.keys {
            trial.keep(key.clone());
        }
        let shared = trial.capabilities().await?.scope == Scope::Cluster;
        history.calls = match trial.subject().workers() {
            Some(workers) if shared => worker::run(self, workers)?,
            _ => self.run_threads(trial)?,
        };
        trial.counters.called(history.calls.len());
        if history.calls.is_empty() {
            return Err(Failure::new("no call was made"));
        }
        Ok(history)
    }

    fn keys(&self) -> Vec<Key> {
        self.keys.iter().map(|(rule, name)| Key::new(&self.scope, rule, [name])).collect()
    }

    fn limits(&self) -> Result<Vec<Limit>, Failure> {
        Ok(self.limits.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
    }

    fn run_threads(&self, trial: &Trial) -> Result<Vec<Call>, Failure> {
        let barrier = Barrier::new(usize::try_from(PROCESSES)?);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..PROCESSES)
                .map(|process| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                        let client = runtime.block_on(trial.client());
                        // Also without a client: the others wait for all to be there.
                        barrier.wait();
                        runtime.block_on(self.run_process(process, client?))
                    })
                })
                .collect();
            let mut calls = Vec::new();
            for thread in threads {
                calls.append(&mut thread.join().map_err(|_| Failure::new("a client panicked"))??);
            }
            Ok(calls)
        })
    }

    /// The calls of one process, all its tasks over one client.
    pub(crate) async fn run_process(&self, process: u32, client: Arc<dyn Backend>) -> Result<Vec<Call>, Failure> {
        let (keys, limits) = (Arc::new(self.keys()), Arc::new(self.limits()?));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let caller = Caller {
                plan: self.clone(),
                keys: Arc::clone(&keys),
                limits: Arc::clone(&limits),
                client: Arc::clone(&client),
                random: Random::part(self.seed, u64::from(process * TASKS + task)),
                process,
                task,
                calls: Vec::new(),
            };
            tasks.spawn(caller.run());
        }
        let mut calls = Vec::new();
        while let Some(task) = tasks.join_next().await {
            calls.append(&mut task??);
        }
        Ok(calls)
    }
}

/// One task.
struct Caller {
    plan: Plan,
    keys: Arc<Vec<Key>>,
    limits: Arc<Vec<Limit>>,
    client: Arc<dyn Backend>,
    random: Random,
    process: u32,
    task: u32,
    calls: Vec<Call>,
}

impl Caller {
    async fn run(mut self) -> Result<Vec<Call>, Failure> {
        let stop = Time::now() + Duration::from_millis(self.plan.stop_after);
        for _ in 0..self.plan.calls {
            if Time::now() >= stop {
                break;
            }
            let asked: Vec<(Op, Vec<Asked>)> = (0..self.plan.batch.max(1)).filter_map(|_| self.draw()).collect();
            let admitted = self.submit(asked).await?;
            for (taken, checks) in admitted {
                if self.random.below(100) < self.plan.refunds {
                    self.submit(vec![(Op::Refund { taken }, checks)]).await?;
                }
            }
            // Clients in memory never wait, and would run one after the other.
            tokio::task::yield_now().await;
        }
        Ok(self.calls)
    }

    /// The next request.
    fn draw(&mut self) -> Option<(Op, Vec<Asked>)> {
        let mut drawn = self.random.below(self.plan.items.iter().map(|item| item.weight).sum());
        let item = self.plan.items.iter().find(|item| match drawn.checked_sub(item.weight) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        })?;
        let cost = |random: &mut Random, most: u64| random.below(most) + 1;
        let checks = item.checks.iter();
        let checks =
            checks.map(|&(key, limit, most)| Asked { key, limit, cost: cost(&mut self.random, most) }).collect();
        Some((if item.peek { Op::Peek } else { Op::Take }, checks))
    }

    /// Submits a batch, records its calls, and tells what was taken, and when.
    async fn submit(&mut self, asked: Vec<(Op, Vec<Asked>)>) -> Result<Vec<(Instant, Vec<Asked>)>, Failure> {
        let requests = asked.iter().map(|(op, checks)| self.request(*op, checks)).collect::<Result<_, _>>()?;
        let at = match self.random.pick(&self.plan.instants) {
            Some(micros) => Some(Instant::from_micros(*micros)?),
            None => None,
        };
        let invoked = monotonic::micros();
        let outcomes = self.client.submit(Arc::new(Batch { requests, at })).await;
        let returned = monotonic::micros();
        if outcomes.len() != asked.len() {
            return Err(Failure::new(format!("{} outcomes for {} requests", outcomes.len(), asked.len())));
        }
        let mut admitted = Vec::new();
        for ((op, checks), outcome) in asked.into_iter().zip(&outcomes) {
            let answer = Answer::from(outcome);
            if let (Op::Take, Answer::Decided { allowed: true, at, .. }) = (op, &answer) {
                admitted.push((*at, checks.clone()));
            }
            let id = u64::try_from(self.calls.len())?;
            let (process, task) = (self.process, self.task);
            self.calls.push(Call { process, task, id, op, checks, invoked, returned, answer });
        }
        Ok(admitted)
    }

    fn request(&self, op: Op, checks: &[Asked]) -> Result<Request, Failure> {
        let checks = checks.iter().map(|asked| match (self.keys.get(asked.key), self.limits.get(asked.limit)) {
            (Some(key), Some(limit)) => Ok(Check::new(key.clone(), *limit, asked.cost)),
            _ => Err(Failure::new("a plan names a key or limit that it has not")),
        });
        Ok(Request::new(op, checks.collect::<Result<Vec<_>, _>>()?)?)
    }
}
