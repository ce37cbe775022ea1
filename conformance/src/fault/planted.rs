//! Engines with one planted fault each, on the stand-in for a store: each has to be caught by the row that is meant for it.
//!
//! They are what goes wrong around a store that does right: in how a client sends, waits, gives up and recovers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use limiter_core::{
    Backend, Batch, Capabilities, Clock, Error, ErrorKind, Memory, Op, Outcome, Record, Request, SystemClock,
};

use crate::fault::ground::stand_in;
use crate::fault::{Life, Loses, Means, Site};
use crate::stand_in::Client;
use crate::subject::BoxError;

/// What is wrong with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Plant {
    /// Each client counts for itself.
    CountsForItself,
    /// The clock is read before the wait for the store.
    ClockBeforeWait,
    /// A call that may have been applied is sent again.
    RetriesUnknown,
    /// A call that may have been applied is told not to be sent.
    SaysNotSent,
    /// A call waits for its store without end, or nearly so.
    WaitsForEver,
    /// After its first failure it gives up on the store.
    NeverRecovers,
    /// A reply that came too late is given to the next call.
    CrossesReplies,
    /// Each layer is a request of its own.
    LayersOneByOne,
    /// The store keeps less than is said of it.
    LosesWrites,
    /// While the store is away, everything passes.
    FallbackWithoutCap,
}

impl Plant {
    /// All of them, each with the row that has to catch it.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::CountsForItself, "F02"),
        (Self::ClockBeforeWait, "F01"),
        (Self::RetriesUnknown, "F06"),
        (Self::SaysNotSent, "F05"),
        (Self::WaitsForEver, "F04"),
        (Self::NeverRecovers, "F05"),
        (Self::CrossesReplies, "F07"),
        (Self::LayersOneByOne, "F28"),
        (Self::LosesWrites, "F12"),
        (Self::FallbackWithoutCap, "F29"),
    ];
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An engine on the stand-in, with this fault or without any.
pub fn site(plant: Option<Plant>) -> Site {
    let name = plant.map_or_else(|| "stand-in".to_owned(), |plant| plant.to_string());
    let loses = if plant == Some(Plant::LosesWrites) { Loses::Nothing } else { Loses::All };
    let site = Site::new(name.clone(), &stand_in::MEANS, stand_in::prepare, connect).lives([Life::new(
        "a table without a disk",
        [],
        loses,
    )]);
    match plant {
        None => site,
        Some(Plant::FallbackWithoutCap) => site.scheme(format!("{name}+")).has(Means::Fallback),
        Some(_) => site.scheme(format!("{name}+")),
    }
}

/// An engine on the stand-in with a fallback that keeps to the limit in each process.
pub fn site_with_fallback() -> Site {
    Site::new("stand-in with a fallback", &stand_in::MEANS, stand_in::prepare, connect)
        .scheme(format!("{CAPPED}+"))
        .has(Means::Fallback)
}

/// The name of the fallback that does right.
const CAPPED: &str = "Fallback";

/// A client of the stand-in at `url`, with the fault that stands before the `+`.
///
/// # Errors
/// If there is no such fault, or the URL is not that of a stand-in.
pub async fn connect(url: String) -> Result<Arc<dyn Backend>, BoxError> {
    let (name, url) = match url.split_once('+') {
        Some((name, url)) => (Some(name.to_owned()), url.to_owned()),
        None => (None, url),
    };
    let client = crate::stand_in::connect(url).await?;
    let Some(name) = name else { return Ok(Arc::new(client)) };
    let plant = Plant::ALL.iter().map(|(plant, _)| *plant).find(|plant| plant.to_string() == name);
    if plant.is_none() && name != CAPPED {
        return Err(format!("there is no planted fault {name}").into());
    }
    let (own, broken) = (Memory::new(), AtomicBool::new(false));
    Ok(Arc::new(Planted { client, plant, own, broken, late: Mutex::default() }))
}

/// A client with a fault; without one, it has a fallback.
#[derive(Debug)]
struct Planted {
    client: Client,
    plant: Option<Plant>,
    own: Memory,
    broken: AtomicBool,
    /// Replies that nobody waited for.
    late: Mutex<VecDeque<Outcome>>,
}

fn failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotSent(_) | Outcome::Unknown(_))
}

impl Planted {
    fn own(&self, batch: &Batch) -> Vec<Outcome> {
        batch.requests.iter().map(|request| self.own.decide(request, batch.at)).collect()
    }

    async fn ask(&self, batch: &Arc<Batch>) -> Vec<Outcome> {
        self.client.submit(Arc::clone(batch)).await
    }

    /// The reply to a call that was given up lies in the connection still; the next call reads it, and leaves its own.
    async fn crossed(&self, batch: &Arc<Batch>) -> Vec<Outcome> {
        let outcomes = self.ask(batch).await;
        if let (Some(Outcome::Unknown(_)), [request]) = (outcomes.first(), batch.requests.as_slice()) {
            if let Ok(peek) = Request::new(Op::Peek, request.checks().to_vec()) {
                let late = self.ask(&Arc::new(Batch::of(peek))).await;
                self.late().extend(late.into_iter().filter(|outcome| !failed(outcome)));
            }
            return outcomes;
        }
        let mut late = self.late();
        if late.is_empty() || outcomes.iter().any(failed) {
            return outcomes;
        }
        late.extend(outcomes);
        late.drain(..batch.requests.len()).collect()
    }

    fn late(&self) -> std::sync::MutexGuard<'_, VecDeque<Outcome>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn one_by_one(&self, batch: &Arc<Batch>) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for request in &batch.requests {
            let mut all = (true, None, Vec::new());
            let mut failure = None;
            for check in request.checks() {
                let op = if all.0 || request.op() != Op::Take { request.op() } else { Op::Peek };
                let Ok(one) = Request::new(op, [check.clone()]) else { continue };
                match self.ask(&Arc::new(Batch { requests: vec![one], at: batch.at })).await.pop() {
                    Some(Outcome::Allowed(record) | Outcome::Denied(record)) => {
                        all.0 &= record.allowed;
                        all.1 = Some(record.at);
                        all.2.extend(record.layers().iter().copied());
                    }
                    Some(outcome) => failure = Some(outcome),
                    None => {}
                }
            }
            outcomes.push(match (failure, all.1) {
                (Some(Outcome::NotSent(error)), Some(_)) => Outcome::Unknown(error),
                (Some(outcome), _) => outcome,
                (None, at) => Outcome::decided(Record::new(all.0, at.unwrap_or_default(), all.2)),
            });
        }
        outcomes
    }

    async fn retried(&self, batch: &Arc<Batch>) -> Vec<Outcome> {
        let mut outcomes = self.ask(batch).await;
        for _ in 0..3 {
            if !outcomes.iter().any(failed) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            outcomes = self.ask(batch).await;
        }
        outcomes
    }
}

#[async_trait]
impl Backend for Planted {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        match self.plant {
            Some(Plant::CountsForItself) => self.own(&batch),
            Some(Plant::ClockBeforeWait) => {
                let at = batch.at.unwrap_or_else(|| SystemClock.now());
                // Not all wait as long.
                tokio::time::sleep(Duration::from_millis(at.micros() % 16)).await;
                self.ask(&Arc::new(Batch { requests: batch.requests.clone(), at: Some(at) })).await
            }
            Some(Plant::RetriesUnknown) => self.retried(&batch).await,
            Some(Plant::SaysNotSent) => {
                let said = |outcome| match outcome {
                    Outcome::Unknown(error) => Outcome::NotSent(error),
                    outcome => outcome,
                };
                self.ask(&batch).await.into_iter().map(said).collect()
            }
            Some(Plant::WaitsForEver) => {
                let outcomes = self.ask(&batch).await;
                if outcomes.iter().any(failed) {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
                outcomes
            }
            Some(Plant::NeverRecovers) => {
                if self.broken.load(Ordering::SeqCst) {
                    let error = Error::new("planted", ErrorKind::NotSent, "it failed before");
                    return batch.requests.iter().map(|_| Outcome::NotSent(error.clone())).collect();
                }
                let outcomes = self.ask(&batch).await;
                self.broken.fetch_or(outcomes.iter().any(failed), Ordering::SeqCst);
                outcomes
            }
            Some(Plant::CrossesReplies) => self.crossed(&batch).await,
            Some(Plant::LayersOneByOne) => self.one_by_one(&batch).await,
            Some(Plant::LosesWrites) => self.ask(&batch).await,
            Some(Plant::FallbackWithoutCap) => {
                let outcomes = self.ask(&batch).await;
                if !outcomes.iter().any(failed) {
                    return outcomes;
                }
                // As good as never used, for everybody.
                let fresh = Memory::new();
                batch.requests.iter().map(|request| fresh.decide(request, batch.at)).collect()
            }
            None => {
                let outcomes = self.ask(&batch).await;
                if outcomes.iter().any(failed) { self.own(&batch) } else { outcomes }
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.client.capabilities()
    }
}
