//! One case's run on one subject: its clients, its keys and its figures.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use limiter_core::{Backend, Batch, Capabilities, Check, Decisions, Instant, Key, Limit, Op, Request, Scope};
use tokio::sync::OnceCell;

use crate::case::{Case, Failure};
use crate::figures::{Counters, Figures};
use crate::random::Random;
use crate::subject::{BoxError, Subject};
use crate::suite::Options;
use crate::twin::Twin;

/// How many keys are reset at once when a case cleans up.
const CLEAN_UP: usize = 64;

/// What a case works with. All its keys lie in a scope of its own, and are gone when it ends.
#[derive(Debug)]
pub(crate) struct Trial {
    subject: Subject,
    scope: String,
    seed: u64,
    calls: u32,
    /// The engine in this process, if that is its scope: all clients of a case are this one.
    shared: OnceCell<Arc<dyn Backend>>,
    keys: Mutex<HashSet<Key>>,
    pub(crate) counters: Counters,
}

impl Trial {
    pub(crate) fn new(subject: &Subject, case: &Case, options: &Options, run: u64) -> Self {
        Self {
            // It ends in what no case's name holds, so that no case's scope begins another's.
            scope: format!("{}-{run:x}-{}-{}.", subject.scope_prefix(), case.group, case.name),
            subject: subject.clone(),
            // Each case has its own numbers, whatever other cases run.
            seed: case.path().bytes().fold(options.seed, |seed, byte| Random::part(seed, u64::from(byte)).next()),
            calls: options.calls,
            shared: OnceCell::new(),
            keys: Mutex::default(),
            counters: Counters::default(),
        }
    }

    pub(crate) const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// What all of this case's keys contain.
    pub(crate) fn scope(&self) -> &str {
        &self.scope
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// How many calls a recorded history is to have.
    pub(crate) const fn calls(&self) -> u32 {
        self.calls
    }

    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed)
    }

    pub(crate) fn figures(&self) -> Figures {
        self.counters.figures()
    }

    /// A client of the store: a new one, unless the engine's scope is the process.
    pub(crate) async fn client(&self) -> Result<Arc<dyn Backend>, Failure> {
        let shared = self.shared.get_or_try_init(|| self.subject.connect()).await?;
        if shared.capabilities().scope == Scope::Process {
            return Ok(Arc::clone(shared));
        }
        Ok(self.subject.connect().await?)
    }

    pub(crate) async fn capabilities(&self) -> Result<Capabilities, BoxError> {
        Ok(self.shared.get_or_try_init(|| self.subject.connect()).await?.capabilities())
    }

    /// Why the case does not apply to this subject; None if it does.
    pub(crate) async fn lack(&self, case: &Case) -> Result<Option<String>, BoxError> {
        let engine = self.shared.get_or_try_init(|| self.subject.connect()).await?;
        Ok(case.needs.iter().find_map(|ability| self.subject.lack(*ability, engine.as_ref())))
    }

    /// A key of this case.
    pub(crate) fn key<P: AsRef<[u8]>>(&self, rule: &str, parts: impl IntoIterator<Item = P>) -> Key {
        self.keep(Key::new(&self.scope, rule, parts))
    }

    /// A key of this case in a scope of its own.
    pub(crate) fn key_elsewhere(&self, scope: &str, rule: &str) -> Key {
        self.keep(Key::new(format!("{}{scope}", self.scope), rule, ["key"]))
    }

    /// Notes a key, so that it is gone when the case ends.
    pub(crate) fn keep(&self, key: Key) -> Key {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        key
    }

    /// A client, and a model that it has to agree with.
    pub(crate) async fn twin(&self) -> Result<Twin<'_>, Failure> {
        Ok(Twin::new(self, self.client().await?))
    }

    /// Asks for one request, without a model beside it.
    pub(crate) async fn ask(
        &self,
        client: &Arc<dyn Backend>,
        request: Request,
        at: Option<Instant>,
    ) -> Result<Decisions, Failure> {
        let batch = Arc::new(Batch { requests: vec![request], at });
        let outcomes = client.submit(Arc::clone(&batch)).await;
        self.counters.called(1);
        match (outcomes.as_slice(), batch.requests.first()) {
            ([outcome], Some(request)) => Ok(outcome.decisions(request)?),
            _ => Err(Failure::new(format!("{} outcomes for 1 request", outcomes.len()))),
        }
    }

    /// Forgets every key of the case, and makes sure that the store has.
    pub(crate) async fn clean_up(&self) -> Result<(), Failure> {
        if !self.subject.clean_up(&self.scope).await? {
            let keys: Vec<Key> = self.keys.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
            self.reset(&keys).await?;
        }
        let left = self.subject.stored(&self.scope).await?.unwrap_or_default();
        if let Some(first) = left.first() {
            return Err(Failure::new(format!("{} keys are left behind, the first is {}", left.len(), first.key)));
        }
        Ok(())
    }

    async fn reset(&self, keys: &[Key]) -> Result<(), Failure> {
        // What is forgotten is the key; the limit only has to be one.
        let limit: Limit = "1/1s fixed-window".parse()?;
        let client = self.shared.get_or_try_init(|| self.subject.connect()).await?;
        for some in keys.chunks(CLEAN_UP) {
            let requests: Result<Vec<Request>, _> =
                some.iter().map(|key| Request::new(Op::Reset, [Check::new(key.clone(), limit, 0)])).collect();
            let batch = Arc::new(Batch { requests: requests?, at: None });
            for outcome in client.submit(batch).await {
                outcome.record().map_err(Clone::clone)?;
            }
        }
        Ok(())
    }
}

/// The instant `micros` µs after the epoch.
pub(crate) fn at(micros: u64) -> Result<Instant, Failure> {
    Ok(Instant::from_micros(micros)?)
}
