//! An engine that a test can hold up, have fail, and ask what it saw.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use limiter::layer::GroupCommit;
use limiter::{
    Backend, Batch, Capabilities, Check, Clock, Error, ErrorKind, Instant, Key, Limit, ManualClock, Memory, Op,
    Outcome, Request,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// What a call does once the gate lets it in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Manner {
    #[default]
    Decide,
    NotSent,
    Unknown,
    Panic,
    /// That many outcomes too few.
    Short(usize),
    /// One too many.
    Long,
}

/// Memory on a clock that goes on by 1 ms a call, behind a gate that lets one call in for each permit.
#[derive(Debug)]
pub(crate) struct Recorder {
    memory: Memory<ManualClock>,
    clock: ManualClock,
    gate: Semaphore,
    manner: Mutex<Manner>,
    calls: Mutex<Vec<Vec<(Request, Outcome)>>>,
    /// The requests of the calls that have begun, whether or not they ended.
    begun: Mutex<Vec<Vec<Request>>>,
    in_flight: Mutex<Vec<Key>>,
    now: AtomicUsize,
    most: AtomicUsize,
    races: AtomicUsize,
}

impl Recorder {
    /// An engine whose gate is open.
    pub(crate) fn open() -> Arc<Self> {
        Self::gated(Semaphore::MAX_PERMITS / 2)
    }

    /// An engine whose gate lets `calls` in.
    pub(crate) fn gated(calls: usize) -> Arc<Self> {
        let clock = ManualClock::at(Instant::from_micros(1_000_000_000).unwrap());
        Arc::new(Self {
            memory: Memory::builder().clock(clock.clone()).build(),
            clock,
            gate: Semaphore::new(calls),
            manner: Mutex::default(),
            calls: Mutex::default(),
            begun: Mutex::default(),
            in_flight: Mutex::default(),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            races: AtomicUsize::new(0),
        })
    }

    /// Lets that many calls more in.
    pub(crate) fn let_in(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// What was decided, call by call.
    pub(crate) fn calls(&self) -> Vec<Vec<(Request, Outcome)>> {
        self.calls.lock().unwrap().clone()
    }

    /// How many requests each call had that has begun.
    pub(crate) fn begun(&self) -> Vec<usize> {
        self.begun.lock().unwrap().iter().map(Vec::len).collect()
    }

    /// The most calls that were in flight at a time.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// How often a request's first key was in another call at the same time.
    pub(crate) fn races(&self) -> usize {
        self.races.load(Ordering::SeqCst)
    }

    fn decide(&self, batch: &Batch) -> Vec<Outcome> {
        // One instant for the call, as a store gives it. It differs from call to call.
        let now = self.clock_on();
        let decided: Vec<_> = batch
            .requests
            .iter()
            .map(|request| (request.clone(), self.memory.decide(request, batch.at.or(Some(now)))))
            .collect();
        let outcomes = decided.iter().map(|(_, outcome)| outcome.clone()).collect();
        self.calls.lock().unwrap().push(decided);
        outcomes
    }

    fn clock_on(&self) -> Instant {
        let now = self.clock.now().saturating_add(Duration::from_millis(1));
        self.clock.set(now);
        now
    }
}

/// Counts a call in, and out again when it ends or is dropped.
struct InFlight<'a>(&'a Recorder, Vec<Key>);

impl<'a> InFlight<'a> {
    fn enter(engine: &'a Recorder, batch: &Batch) -> Self {
        engine.begun.lock().unwrap().push(batch.requests.clone());
        let now = engine.now.fetch_add(1, Ordering::SeqCst) + 1;
        engine.most.fetch_max(now, Ordering::SeqCst);
        let keys: HashSet<Key> = batch.requests.iter().map(|request| request.checks()[0].key.clone()).collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        let mut flying = engine.in_flight.lock().unwrap();
        engine.races.fetch_add(keys.iter().filter(|key| flying.contains(key)).count(), Ordering::SeqCst);
        flying.extend(keys.iter().cloned());
        Self(engine, keys)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        let mut flying = self.0.in_flight.lock().unwrap();
        for key in &self.1 {
            let place = flying.iter().position(|flying| flying == key).unwrap();
            flying.swap_remove(place);
        }
    }
}

#[async_trait]
impl Backend for Recorder {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let _in_flight = InFlight::enter(self, &batch);
        self.gate.acquire().await.unwrap().forget();
        let failure = |kind| Error::new("recorder", kind, "as told");
        let all = |outcome: Outcome| vec![outcome; batch.requests.len()];
        let manner = *self.manner.lock().unwrap();
        match manner {
            Manner::Decide => self.decide(&batch),
            Manner::NotSent => all(Outcome::NotSent(failure(ErrorKind::NotSent))),
            Manner::Unknown => all(Outcome::Unknown(failure(ErrorKind::Unknown { in_flight: true }))),
            Manner::Panic => panic!("as told"),
            Manner::Short(missing) => {
                let mut outcomes = self.decide(&batch);
                outcomes.truncate(batch.requests.len().saturating_sub(missing));
                outcomes
            }
            Manner::Long => {
                let mut outcomes = self.decide(&batch);
                outcomes.extend(outcomes.clone());
                outcomes
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::new("", "api", [name])
}

/// A take of `cost` units under a limit of 100 an hour.
pub(crate) fn take(name: &str, cost: u64) -> Request {
    Request::take(key(name), hourly(100), cost).unwrap()
}

pub(crate) fn hourly(amount: u64) -> Limit {
    format!("{amount}/1h sliding-log").parse().unwrap()
}

/// Several limits of one scope at once.
pub(crate) fn layered(scope: &str, names: &[&str]) -> Request {
    let checks = names.iter().map(|name| Check::new(Key::new(scope, "api", [name]), hourly(100), 1));
    Request::new(Op::Take, checks).unwrap()
}

/// A caller in a task of its own, which has asked by the time this returns.
pub(crate) async fn ask(layer: &Arc<GroupCommit>, request: Request) -> JoinHandle<Outcome> {
    let task = tokio::spawn({
        let layer = Arc::clone(layer);
        async move { layer.submit(Arc::new(Batch::of(request))).await.remove(0) }
    });
    settle().await;
    task
}

/// Lets all others do what they can before any time passes.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn kind(outcome: &Outcome) -> ErrorKind {
    outcome.record().expect_err("a failure").kind()
}
