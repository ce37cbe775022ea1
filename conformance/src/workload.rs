//! Many clients at once: what each of them asks, and the record of what it saw.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
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
    /// How many clients there are, each with its tasks.
    processes: u32,
    /// A task rests this long after each call, in ms.
    pace: u64,
    /// How many of a hundred calls are given up on their way.
    cancelled: u64,
    /// Takes of keys that no other call asks, so that what became of each can be told afterwards.
    once: Once,
}

/// Calls of keys that are asked once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Once {
    /// How many of a hundred calls are such.
    of_hundred: u64,
    /// At most so many of each task.
    per_task: u32,
    /// The limit, by its index.
    limit: usize,
}

/// Tells the tasks of all clients in this process to end after the call that they are in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Where calls are written while they are made, by a client that may be killed: each once before it is sent, as one whose
/// outcome is not known, and again with its answer.
pub(crate) type Journal = Option<Arc<Mutex<File>>>;

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
        Self::of(trial.seed(), trial.scope(), trial.calls().div_ceil(PROCESSES * TASKS))
    }

    /// A plan without requests, for so many calls of each task.
    pub(crate) fn of(seed: u64, scope: &str, calls: u32) -> Self {
        Self {
            seed,
            scope: scope.to_owned(),
            calls,
            stop_after: 3_000,
            instants: Vec::new(),
            refunds: 0,
            batch: 1,
            keys: Vec::new(),
            limits: Vec::new(),
            items: Vec::new(),
            processes: PROCESSES,
            pace: 0,
            cancelled: 0,
            once: Once::default(),
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

    pub(crate) fn processes(mut self, processes: u32) -> Self {
        self.processes = processes;
        self
    }

    pub(crate) fn pace(mut self, millis: u64) -> Self {
        self.pace = millis;
        self
    }

    pub(crate) fn cancelled(mut self, of_hundred: u64) -> Self {
        self.cancelled = of_hundred;
        self
    }

    /// Makes so many of a hundred calls takes of one unit of keys that are asked once, at most so many of each task.
    pub(crate) fn once(mut self, of_hundred: u64, per_task: u32, limit: usize) -> Self {
        self.once = Once { of_hundred, per_task, limit };
        self
    }

    /// The keys that are asked once, by their indices: they follow all others.
    pub(crate) fn once_keys(&self) -> std::ops::Range<usize> {
        let first = self.keys.len();
        let each = usize::try_from(self.once.per_task).unwrap_or_default();
        first..first + usize::try_from(self.processes * TASKS).unwrap_or_default() * each
    }

    pub(crate) const fn lasts(&self) -> Duration {
        Duration::from_millis(self.stop_after)
    }

    /// A history of this plan, without calls.
    pub(crate) fn history(&self) -> Result<History, Failure> {
        Ok(History::new(self.key_list(), self.limits()?))
    }

    /// Whether real time decides, and not given instants.
    pub(crate) fn is_real_time(&self) -> bool {
        self.instants.is_empty()
    }

    /// Runs the plan with all its clients: processes where the store is shared by them, else threads.
    pub(crate) async fn run(&self, trial: &Trial) -> Result<History, Failure> {
        let mut history = self.history()?;
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

    fn key_list(&self) -> Vec<Key> {
        let named = self.keys.iter().map(|(rule, name)| Key::new(&self.scope, rule, [name]));
        named.chain(self.once_keys().map(|index| Key::new(&self.scope, "once", [index.to_string()]))).collect()
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
                        runtime.block_on(self.run_process(process, client?, &Stop::default(), &None))
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

    /// Makes all that a process needs before its first call: of many keys that takes a while.
    pub(crate) fn prepare(&self) -> Result<Prepared, Failure> {
        Ok(Prepared { plan: self.clone(), keys: Arc::new(self.key_list()), limits: Arc::new(self.limits()?) })
    }

    /// The calls of one process, all its tasks over one client.
    pub(crate) async fn run_process(
        &self,
        process: u32,
        client: Arc<dyn Backend>,
        stop: &Stop,
        journal: &Journal,
    ) -> Result<Vec<Call>, Failure> {
        self.prepare()?.run_process(process, client, stop, journal).await
    }
}

/// A plan that can begin at once.
pub(crate) struct Prepared {
    plan: Plan,
    keys: Arc<Vec<Key>>,
    limits: Arc<Vec<Limit>>,
}

impl Prepared {
    /// As [`Plan::run_process`].
    pub(crate) async fn run_process(
        &self,
        process: u32,
        client: Arc<dyn Backend>,
        stop: &Stop,
        journal: &Journal,
    ) -> Result<Vec<Call>, Failure> {
        let Self { plan, keys, limits } = self;
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let caller = Caller {
                plan: plan.clone(),
                keys: Arc::clone(keys),
                limits: Arc::clone(limits),
                client: Arc::clone(&client),
                random: Random::part(plan.seed, u64::from(process * TASKS + task)),
                process,
                task,
                asked_once: 0,
                stop: stop.clone(),
                journal: journal.clone(),
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
    /// Keys of its own that it has asked.
    asked_once: u32,
    stop: Stop,
    journal: Journal,
    calls: Vec<Call>,
}

impl Caller {
    async fn run(mut self) -> Result<Vec<Call>, Failure> {
        let end = Time::now() + Duration::from_millis(self.plan.stop_after);
        for _ in 0..self.plan.calls {
            if Time::now() >= end || self.stop.is_stopped() {
                break;
            }
            let asked: Vec<(Op, Vec<Asked>)> = (0..self.plan.batch.max(1)).filter_map(|_| self.draw()).collect();
            let admitted = self.submit(asked).await?;
            for (taken, checks) in admitted {
                if self.random.below(100) < self.plan.refunds {
                    self.submit(vec![(Op::Refund { taken }, checks)]).await?;
                }
            }
            if self.plan.pace > 0 {
                tokio::time::sleep(Duration::from_millis(self.plan.pace)).await;
            } else {
                // Clients in memory never wait, and would run one after the other.
                tokio::task::yield_now().await;
            }
        }
        Ok(self.calls)
    }

    /// The next request.
    fn draw(&mut self) -> Option<(Op, Vec<Asked>)> {
        if self.asked_once < self.plan.once.per_task && self.random.below(100) < self.plan.once.of_hundred {
            let nth = (self.process * TASKS + self.task) * self.plan.once.per_task + self.asked_once;
            self.asked_once += 1;
            let key = self.plan.once_keys().nth(usize::try_from(nth).ok()?)?;
            return Some((Op::Take, vec![Asked { key, limit: self.plan.once.limit, cost: 1 }]));
        }
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
        if self.journal.is_some() {
            for (nth, (op, checks)) in asked.iter().enumerate() {
                let id = u64::try_from(self.calls.len() + nth)?;
                let (process, task, op, checks) = (self.process, self.task, *op, checks.clone());
                let answer = Answer::Unknown;
                self.note(&Call { process, task, id, op, checks, invoked, returned: invoked, answer })?;
            }
        }
        let call = self.client.submit(Arc::new(Batch { requests, at }));
        let outcomes = if self.plan.cancelled > 0 && self.random.below(100) < self.plan.cancelled {
            let patience = Duration::from_micros(self.random.below(2_000));
            // Given up: nobody knows what became of it.
            tokio::time::timeout(patience, call).await.ok()
        } else {
            Some(call.await)
        };
        let returned = monotonic::micros();
        let answers: Vec<Answer> = match outcomes {
            Some(outcomes) => outcomes.iter().map(Answer::from).collect(),
            None => vec![Answer::Unknown; asked.len()],
        };
        if answers.len() != asked.len() {
            return Err(Failure::new(format!("{} outcomes for {} requests", answers.len(), asked.len())));
        }
        let mut admitted = Vec::new();
        for ((op, checks), answer) in asked.into_iter().zip(answers) {
            if let (Op::Take, Answer::Decided { allowed: true, at, .. }) = (op, &answer) {
                admitted.push((*at, checks.clone()));
            }
            let id = u64::try_from(self.calls.len())?;
            let (process, task) = (self.process, self.task);
            let call = Call { process, task, id, op, checks, invoked, returned, answer };
            self.note(&call)?;
            self.calls.push(call);
        }
        Ok(admitted)
    }

    /// Writes a call into the journal, if there is one.
    fn note(&self, call: &Call) -> Result<(), Failure> {
        if let Some(journal) = &self.journal {
            let mut line = call.to_line()?;
            line.push('\n');
            journal.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())?;
        }
        Ok(())
    }

    fn request(&self, op: Op, checks: &[Asked]) -> Result<Request, Failure> {
        let checks = checks.iter().map(|asked| match (self.keys.get(asked.key), self.limits.get(asked.limit)) {
            (Some(key), Some(limit)) => Ok(Check::new(key.clone(), *limit, asked.cost)),
            _ => Err(Failure::new("a plan names a key or limit that it has not")),
        });
        Ok(Request::new(op, checks.collect::<Result<Vec<_>, _>>()?)?)
    }
}
