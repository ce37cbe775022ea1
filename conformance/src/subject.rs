//! What is tested: an engine, how to get clients of it, and what else the suite may do with its store.

use std::error::Error as StdError;
use std::ffi::OsString;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Backend, ManualClock};

/// A future that owns what it needs.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whatever went wrong on the way to an engine.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// An engine's client, or why there is none.
pub type Connected = Result<Arc<dyn Backend>, BoxError>;

type Hook<A, T> = Arc<dyn Fn(A) -> BoxFuture<'static, T> + Send + Sync>;

/// An engine under test.
///
/// All it needs is a name and a way to make a client. Everything else is an offer to the suite: what is not offered is shown
/// in the report as "not applicable" with its reason.
///
/// ```
/// use std::sync::Arc;
/// use limiter_conformance::{Ability, Subject};
/// use limiter_core::Memory;
///
/// let store = Arc::new(Memory::new());
/// let subject = Subject::new("memory", move || {
///     let store = Arc::clone(&store);
///     async move { Ok(store) }
/// })
/// .lacks(Ability::StoredKeys, "the table does not list its keys");
/// assert_eq!(subject.name(), "memory");
/// ```
#[derive(Clone)]
#[must_use = "a subject does nothing until the suite runs on it"]
pub struct Subject {
    name: String,
    prefix: String,
    client: Hook<(), Connected>,
    clocked: Option<Hook<ManualClock, Connected>>,
    stored: Option<Hook<String, Result<Vec<Stored>, BoxError>>>,
    cleanup: Option<Hook<String, Result<(), BoxError>>>,
    lose_reply: Option<Hook<(), Result<(), BoxError>>>,
    reachable: Option<Hook<bool, Result<(), BoxError>>>,
    store_clock: Option<Hook<i64, Result<(), BoxError>>>,
    workers: Option<Workers>,
    numbering: Numbering,
    kept: Arc<dyn Fn(Duration) -> Duration + Send + Sync>,
    lacks: Vec<(Ability, String)>,
}

/// By how much a stored key outlives its state, unless the subject says otherwise.
const KEPT: Duration = Duration::from_secs(2);

/// How other processes become clients of the same store: this program, started again.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    pub(crate) url: String,
    pub(crate) args: Vec<String>,
    /// What each has in its environment besides.
    pub(crate) env: Vec<(OsString, OsString)>,
}

/// A stored key, as the store itself lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The key, as the store spells it.
    pub key: String,
    /// How much longer the store keeps it; None if it has no expiry.
    pub lifetime: Option<Duration>,
}

/// How versions grow from one write of a key to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// By 1: a missing number is a missing write.
    #[default]
    Dense,
    /// By at least 1, as a store-wide revision does: gaps tell nothing.
    Growing,
}

/// What a case may need of a subject beyond a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ability {
    /// Clients whose own clock the suite sets.
    ClientClock,
    /// The store decides by its own clock.
    StoreClock,
    /// The suite may step the store's clock.
    StoreClockSteps,
    /// The deciding node's clock decides.
    NodeClock,
    /// A list of the stored keys with their lifetimes.
    StoredKeys,
    /// A reply that gets lost on its way.
    LostReplies,
    /// A store that can't be reached for a while.
    Outages,
    /// Further processes as clients of the same store.
    Processes,
    /// A request's keys are decided in one step whatever their scopes.
    AllKeys,
}

impl Ability {
    /// Why it may be missing, unless the subject says so itself.
    const fn usual_reason(self) -> &'static str {
        match self {
            Self::ClientClock => "the subject offers no client with a clock of the suite's",
            Self::StoreClock => "the engine decides by the node's clock, not by its store's",
            Self::StoreClockSteps => "the subject offers no way to step its store's clock",
            Self::NodeClock => "the engine decides by its store's clock",
            Self::StoredKeys => "the subject does not list its store's keys",
            Self::LostReplies => "the subject offers no way to lose a reply",
            Self::Outages => "the subject offers no way to cut its store off",
            Self::Processes => "the engine counts for this process only, or the subject starts no others",
            Self::AllKeys => "keys of different scopes are not decided in one step",
        }
    }
}

impl Subject {
    /// An engine and how to make a client of it. It is asked for several clients; all have to see the same limits.
    ///
    /// Of an engine whose [`Scope`](limiter_core::Scope) is the process, each case makes one client and shares it.
    pub fn new<F, Fut, B>(name: impl Into<String>, client: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
        B: Backend,
    {
        Self {
            name: name.into(),
            prefix: "conformance".to_owned(),
            client: Arc::new(move |()| {
                let made = client();
                Box::pin(async move { Ok::<Arc<dyn Backend>, _>(Arc::new(made.await?)) })
            }),
            clocked: None,
            stored: None,
            cleanup: None,
            lose_reply: None,
            reachable: None,
            store_clock: None,
            workers: None,
            numbering: Numbering::Dense,
            kept: Arc::new(|counts| counts + KEPT),
            lacks: Vec::new(),
        }
    }

    /// What the scopes of all keys begin with: by default `conformance`. A run adds a number of its own.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// A client whose own clock the suite sets. Where the node decides, that clock does; where the store has a clock, the
    /// client's must not matter.
    pub fn with_clock<F, Fut, B>(mut self, client: F) -> Self
    where
        F: Fn(ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
        B: Backend,
    {
        self.clocked = Some(Arc::new(move |clock| {
            let made = client(clock);
            Box::pin(async move { Ok::<Arc<dyn Backend>, _>(Arc::new(made.await?)) })
        }));
        self
    }

    /// The stored keys that contain this text, with what is left of their lifetimes. Keys that have expired but are not yet
    /// collected may be left out.
    pub fn with_stored<F, Fut>(mut self, stored: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Stored>, BoxError>> + Send + 'static,
    {
        self.stored = Some(Arc::new(move |scope| Box::pin(stored(scope))));
        self
    }

    /// Removes every stored key that contains this text. Without it, the suite resets each key that it used.
    pub fn with_cleanup<F, Fut>(mut self, cleanup: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.cleanup = Some(Arc::new(move |scope| Box::pin(cleanup(scope))));
        self
    }

    /// Makes the next reply of the store get lost after the request was applied, for the client that the last call of
    /// `client` made.
    pub fn with_lost_replies<F, Fut>(mut self, lose: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.lose_reply = Some(Arc::new(move |()| Box::pin(lose())));
        self
    }

    /// Cuts the store off (false) or brings it back (true), for the client that the last call of `client` made.
    pub fn with_outages<F, Fut>(mut self, reachable: F) -> Self
    where
        F: Fn(bool) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.reachable = Some(Arc::new(move |up| Box::pin(reachable(up))));
        self
    }

    /// Sets the store's clock off from real time by so many µs. The suite sets it back to 0.
    pub fn with_store_clock<F, Fut>(mut self, offset: F) -> Self
    where
        F: Fn(i64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.store_clock = Some(Arc::new(move |micros| Box::pin(offset(micros))));
        self
    }

    /// Lets the suite start this program again, as further processes that use the store at `url`. The program has to call
    /// [`worker::serve`](crate::worker::serve) then.
    pub fn with_processes(mut self, url: impl Into<String>) -> Self {
        let args = self.workers.map(|workers| workers.args).unwrap_or_default();
        self.workers = Some(Workers { url: url.into(), args, env: Vec::new() });
        self
    }

    /// The arguments that bring this program to the call of [`worker::serve`](crate::worker::serve), if it needs any: a test
    /// binary has to be told the test that makes it. The macro does so.
    pub fn worker_args(mut self, args: impl IntoIterator<Item = String>) -> Self {
        if let Some(workers) = &mut self.workers {
            workers.args = args.into_iter().collect();
        }
        self
    }

    /// How versions grow. By default they count writes.
    pub fn numbering(mut self, numbering: Numbering) -> Self {
        self.numbering = numbering;
        self
    }

    /// How long a key may be kept whose state counts for this long: by default 2 s longer. For a store whose keys are collected
    /// together.
    pub fn kept_for(mut self, kept: impl Fn(Duration) -> Duration + Send + Sync + 'static) -> Self {
        self.kept = Arc::new(kept);
        self
    }

    /// Tells why an ability is missing, for the report.
    pub fn lacks(mut self, ability: Ability, reason: impl Into<String>) -> Self {
        self.lacks.push((ability, reason.into()));
        self
    }

    /// The name in the report.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn scope_prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) async fn connect(&self) -> Connected {
        (self.client)(()).await
    }

    pub(crate) async fn connect_with_clock(&self, clock: ManualClock) -> Connected {
        match &self.clocked {
            Some(client) => client(clock).await,
            None => Err(Ability::ClientClock.usual_reason().into()),
        }
    }

    pub(crate) async fn stored(&self, scope: &str) -> Result<Option<Vec<Stored>>, BoxError> {
        match &self.stored {
            Some(stored) => stored(scope.to_owned()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether the subject has a way of its own to clean up, which was then used.
    pub(crate) async fn clean_up(&self, scope: &str) -> Result<bool, BoxError> {
        match &self.cleanup {
            Some(cleanup) => cleanup(scope.to_owned()).await.map(|()| true),
            None => Ok(false),
        }
    }

    pub(crate) async fn lose_reply(&self) -> Result<(), BoxError> {
        match &self.lose_reply {
            Some(lose) => lose(()).await,
            None => Err(Ability::LostReplies.usual_reason().into()),
        }
    }

    pub(crate) async fn set_reachable(&self, up: bool) -> Result<(), BoxError> {
        match &self.reachable {
            Some(reachable) => reachable(up).await,
            None => Err(Ability::Outages.usual_reason().into()),
        }
    }

    pub(crate) async fn step_store_clock(&self, micros: i64) -> Result<(), BoxError> {
        match &self.store_clock {
            Some(offset) => offset(micros).await,
            None => Err(Ability::StoreClockSteps.usual_reason().into()),
        }
    }

    pub(crate) fn workers(&self) -> Option<&Workers> {
        self.workers.as_ref()
    }

    pub(crate) const fn versions(&self) -> Numbering {
        self.numbering
    }

    pub(crate) fn kept(&self, counts: Duration) -> Duration {
        (self.kept)(counts)
    }

    /// Why the subject lacks an ability; None if it has it.
    pub(crate) fn lack(&self, ability: Ability, engine: &dyn Backend) -> Option<String> {
        use limiter_core::{Atomicity, ClockSource, Scope};
        let capabilities = engine.capabilities();
        let has = match ability {
            Ability::ClientClock => self.clocked.is_some(),
            Ability::StoreClock => capabilities.clock == ClockSource::Store,
            Ability::StoreClockSteps => capabilities.clock == ClockSource::Store && self.store_clock.is_some(),
            Ability::NodeClock => capabilities.clock == ClockSource::Node,
            Ability::StoredKeys => self.stored.is_some(),
            Ability::LostReplies => self.lose_reply.is_some(),
            Ability::Outages => self.reachable.is_some(),
            Ability::Processes => capabilities.scope == Scope::Cluster && self.workers.is_some(),
            Ability::AllKeys => capabilities.atomicity == Atomicity::AllKeys,
        };
        if has {
            return None;
        }
        let said = self.lacks.iter().find(|(lack, _)| *lack == ability).map(|(_, reason)| reason.clone());
        Some(said.unwrap_or_else(|| ability.usual_reason().to_owned()))
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the worker's URL: it may hold a password.
        f.debug_struct("Subject").field("name", &self.name).field("lacks", &self.lacks).finish_non_exhaustive()
    }
}
