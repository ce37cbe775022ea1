//! What is disturbed: an engine, how its clients are made, and the store behind it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use limiter_core::Backend;

use super::ground::{self, Ground, Means, Setting};
use crate::store::Kind;
use crate::subject::{BoxError, BoxFuture, Connected, Numbering};

type Connect = Arc<dyn Fn(String) -> BoxFuture<'static, Connected> + Send + Sync>;
type Prepare = Arc<dyn Fn(&Setting) -> Result<Box<dyn Ground>, BoxError> + Send + Sync>;

/// An engine on a store of its own, which is started afresh for each row.
///
/// All it needs is how to make a client of a URL; what can be done to the store follows from its kind. An engine of yours whose
/// store is Redis is a site in one line:
///
/// ```
/// use std::sync::Arc;
/// use limiter_conformance::BoxError;
/// use limiter_conformance::fault::{Means, Site};
/// use limiter_core::{Backend, Memory};
///
/// # #[expect(clippy::unused_async)]
/// async fn connect(_url: String) -> Result<Arc<dyn Backend>, BoxError> {
///     Ok(Arc::new(Memory::new())) // yours talks to the store at the URL
/// }
///
/// let site = Site::redis("my-engine", connect).lacks(Means::Clock, "no libfaketime on this machine");
/// assert!(site.lack(Means::Clock).is_some() && site.lack(Means::Pause).is_none());
/// ```
#[derive(Clone)]
#[must_use = "a site does nothing until a row runs on it"]
pub struct Site {
    name: String,
    scheme: String,
    connect: Connect,
    prepare: Prepare,
    means: Vec<Means>,
    lacks: Vec<(Means, String)>,
    timeout: Duration,
    turns: u32,
    backward: Duration,
    numbering: Numbering,
    lives: Vec<Life>,
    worker_args: Vec<String>,
}

/// A way to run a store that may be killed, and what it may lose then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Life {
    /// What it is called, as `everysec`.
    pub name: String,
    /// The server's options.
    pub options: Vec<(String, String)>,
    /// What a kill and a restart may lose of what was acknowledged.
    pub loses: Loses,
}

/// What a store may lose of what it acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loses {
    /// Nothing.
    Nothing,
    /// What was written within this time.
    Last(Duration),
    /// Everything.
    All,
}

impl Life {
    /// A way to run a store, with options by the server's own names.
    pub fn new<'a>(
        name: impl Into<String>,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
        loses: Loses,
    ) -> Self {
        let options = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { name: name.into(), options: options.collect(), loses }
    }
}

impl Site {
    /// An engine on whatever `prepare` starts, of which these `means` are to be had.
    pub fn new<F, Fut, B, P>(name: impl Into<String>, means: &[Means], prepare: P, connect: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
        B: Backend,
        P: Fn(&Setting) -> Result<Box<dyn Ground>, BoxError> + Send + Sync + 'static,
    {
        Self {
            name: name.into(),
            scheme: String::new(),
            connect: Arc::new(move |url| {
                let made = connect(url);
                Box::pin(async move { Ok::<Arc<dyn Backend>, _>(Arc::new(made.await?)) })
            }),
            prepare: Arc::new(prepare),
            means: means.to_vec(),
            lacks: Vec::new(),
            timeout: Duration::from_millis(500),
            turns: 1,
            backward: Duration::from_millis(2),
            numbering: Numbering::Dense,
            lives: Vec::new(),
            worker_args: Vec::new(),
        }
    }

    /// An engine on a Redis server; `connect` is given its `redis://` URL.
    pub fn redis<F, Fut, B>(name: impl Into<String>, connect: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
        B: Backend,
    {
        let aof = |sync| [("appendonly", "yes"), ("appendfsync", sync)];
        Self::new(name, &ground::redis::MEANS, ground::redis::prepare, connect).lives([
            Life::new("no persistence", [], Loses::All),
            Life::new("append file everysec", aof("everysec"), Loses::Last(Duration::from_secs(2))),
            Life::new("append file always", aof("always"), Loses::Nothing),
        ])
    }

    /// An engine on a Postgres server; `connect` is given its `postgres://` URL, on a new server whose tables it has to make.
    pub fn postgres<F, Fut, B>(name: impl Into<String>, connect: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
        B: Backend,
    {
        // Three times the delay of the writer, which is 200 ms.
        let tail = Loses::Last(Duration::from_millis(600));
        Self::new(name, &ground::postgres::MEANS, ground::postgres::prepare, connect)
            .timeout(Duration::from_secs(2))
            // 5 ms were seen once in five runs, on a virtual machine; a clock that is read before a lock is stale by the whole wait.
            .clock_back(Duration::from_millis(15))
            .lacks(Means::Follower, "its standby is promoted in F18")
            .lives([
                Life::new("durable", [("synchronous_commit", "on")], Loses::Nothing),
                Life::new("synchronous_commit off", [("synchronous_commit", "off")], tail),
            ])
    }

    /// An engine on one etcd member; `connect` is given its `etcd://` URL.
    pub fn etcd<F, Fut, B>(name: impl Into<String>, connect: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
        B: Backend,
    {
        Self::new(name, &ground::etcd::MEANS, ground::etcd::prepare, connect)
            // A call takes several round trips, each to a disk.
            .timeout(Duration::from_secs(1))
            .lacks(Means::Follower, "its members elect a leader by themselves, in F19")
            .lacks(Means::Clock, "no clock of the store decides; those of its clients are off in F23")
            .lives([Life::new("one member", [], Loses::Nothing)])
    }

    /// An engine on a store of this kind.
    pub fn of<F, Fut, B>(kind: Kind, name: impl Into<String>, connect: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
        B: Backend,
    {
        match kind {
            Kind::Redis => Self::redis(name, connect),
            Kind::Postgres => Self::postgres(name, connect),
            Kind::Etcd => Self::etcd(name, connect),
        }
    }

    /// The longest that a call of the engine may take, by default 500 ms, 2 s on Postgres and 1 s on etcd: as
    /// limiter's own engines have it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many calls of the engine one call may have to wait for, its own among them; by default 1. A layer that sends what arrives
    /// meanwhile in one call when the present one has ended makes it 2.
    pub fn turns(mut self, turns: u32) -> Self {
        self.turns = turns;
        self
    }

    /// How far an instant of the store's clock may lie before that of an earlier version, by default 2 ms and 15 ms on Postgres: a clock
    /// may be slewed, read on two processors, or set by the host of a virtual machine.
    pub fn clock_back(mut self, most: Duration) -> Self {
        self.backward = most;
        self
    }

    pub(crate) fn backward(&self) -> Duration {
        self.backward
    }

    /// How versions grow. By default as the kind of store has it.
    pub fn numbering(mut self, numbering: Numbering) -> Self {
        self.numbering = numbering;
        self
    }

    /// The ways to run the store for the row that kills it, in place of the usual ones of its kind.
    pub fn lives(mut self, lives: impl IntoIterator<Item = Life>) -> Self {
        self.lives = lives.into_iter().collect();
        self
    }

    /// Puts this in front of each URL: the name of a driver, as `fred+`.
    pub fn scheme(mut self, scheme: impl Into<String>) -> Self {
        self.scheme = scheme.into();
        self
    }

    /// Tells that something can be done to the store, or is true of the engine, that is not so of others of its kind.
    pub fn has(mut self, means: Means) -> Self {
        self.lacks.retain(|(lack, _)| *lack != means);
        self.means.push(means);
        self
    }

    /// Tells that something can't be done here, and why: for the report.
    pub fn lacks(mut self, means: Means, reason: impl Into<String>) -> Self {
        self.lacks.push((means, reason.into()));
        self
    }

    /// The arguments that bring this program to the call of [`worker::serve`](crate::worker::serve), if it needs any.
    pub fn worker_args(mut self, args: impl IntoIterator<Item = String>) -> Self {
        self.worker_args = args.into_iter().collect();
        self
    }

    /// The name in the report.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why something can't be done here; None if it can.
    #[must_use]
    pub fn lack(&self, means: Means) -> Option<String> {
        if let Some((_, reason)) = self.lacks.iter().find(|(lack, _)| *lack == means) {
            return Some(reason.clone());
        }
        (!self.means.contains(&means)).then(|| means.usual_reason().to_owned())
    }

    pub(crate) async fn connect(&self, url: String) -> Connected {
        (self.connect)(url).await
    }

    pub(crate) fn prepare(&self, setting: &Setting) -> Result<Box<dyn Ground>, BoxError> {
        (self.prepare)(setting)
    }

    pub(crate) const fn call_timeout(&self) -> Duration {
        self.timeout
    }

    /// The longest that a call may take: the engine's timeout, for each call that it waits for.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.timeout * self.turns
    }

    pub(crate) const fn versions(&self) -> Numbering {
        self.numbering
    }

    pub(crate) fn all_lives(&self) -> &[Life] {
        &self.lives
    }

    pub(crate) fn workers(&self) -> &[String] {
        &self.worker_args
    }

    pub(crate) fn url_of(&self, url: &str) -> String {
        format!("{}{url}", self.scheme)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("name", &self.name).field("lacks", &self.lacks).finish_non_exhaustive()
    }
}
