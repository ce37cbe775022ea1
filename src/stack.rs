//! All layers in the order that is recommended, in one call.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Backend, Batch, Capabilities, Memory, Outcome, Scope};

#[cfg(feature = "metrics")]
use crate::layer::WatchRules;
use crate::layer::{
    Breaker, BreakerBuilder, Deadline, DenyCache, DenyCacheBuilder, FailurePolicies, FailurePolicy, Fallback,
    GroupCommit, GroupCommitBuilder, WatchCalls,
};

/// An engine with the layers that a service wants around it:
///
/// ```text
///   WatchRules      what callers are told, rule by rule              (feature `metrics`)
///   DenyCache       what is refused until T is refused here until T
///   Fallback        the failure policy of each rule
///   Breaker         a store that is dead costs nothing
///   Deadline        and one that is slow counts as dead
///   GroupCommit     what arrives while a call is in flight goes together in the next
///   WatchCalls      what the store is asked, call by call
///   the engine
/// ```
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use limiter::layer::FailurePolicy;
/// use limiter::{Memory, RateLimiter, Stack};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let stack = Stack::builder()
///     .failure(FailurePolicy::Closed)
///     .rule("search", FailurePolicy::Open)
///     .deadline(Duration::from_millis(100))
///     .build(Arc::new(Memory::new()));
/// let limiter = RateLimiter::new(Arc::new(stack), "search", "5/1m sliding-log".parse()?);
/// let decision = limiter.check("user-42").await?;
/// assert!(decision.allowed && !decision.source.is_degraded());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Stack {
    outermost: Arc<dyn Backend>,
    deny_cache: Option<Arc<DenyCache>>,
    fallback: Arc<Fallback>,
    breaker: Arc<Breaker>,
    deadline: Arc<Deadline>,
    group_commit: Option<Arc<GroupCommit>>,
}

/// A [`Stack`] that is still being set up.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct StackBuilder {
    policies: FailurePolicies,
    deadline: Duration,
    breaker: BreakerBuilder,
    deny_cache: Option<DenyCacheBuilder>,
    group_commit: Option<GroupCommitBuilder>,
    local: Option<Memory>,
}

impl StackBuilder {
    /// What becomes of a check that the store does not decide, for rules without a policy of their own: by default
    /// [`Closed`](FailurePolicy::Closed). It undoes [`rule`](Self::rule), so it comes first.
    pub fn failure(mut self, otherwise: FailurePolicy) -> Self {
        self.policies = FailurePolicies::new(otherwise);
        self
    }

    /// The failure policy of one rule.
    pub fn rule(self, rule: &str, policy: FailurePolicy) -> Self {
        self.policies.set(rule, policy);
        self
    }

    /// A table of failure policies that somebody else may change later.
    pub fn policies(mut self, policies: FailurePolicies) -> Self {
        self.policies = policies;
        self
    }

    /// The longest that a decision may take, by default 200 ms; then the failure policy decides.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.deadline = within;
        self
    }

    /// When the breaker opens, and how it heals.
    pub fn breaker(mut self, breaker: BreakerBuilder) -> Self {
        self.breaker = breaker;
        self
    }

    /// The bounds of the deny cache; None for no cache: then a refund, a reset or a limit that another node changes is seen by the
    /// next check, and each refusal costs a call.
    pub fn deny_cache(mut self, cache: impl Into<Option<DenyCacheBuilder>>) -> Self {
        self.deny_cache = cache.into();
        self
    }

    /// How requests are gathered. By default they are, except around an engine of this process, which costs less than gathering.
    pub fn group_commit(mut self, group_commit: GroupCommitBuilder) -> Self {
        self.group_commit = Some(group_commit);
        self
    }

    /// The table of the local count, by default one of 2^16 keys.
    pub fn local(mut self, memory: Memory) -> Self {
        self.local = Some(memory);
        self
    }

    /// The stack around `engine`.
    #[must_use]
    pub fn build(self, engine: Arc<dyn Backend>) -> Stack {
        let Self { policies, deadline, breaker, deny_cache, group_commit, local } = self;
        let gathers = engine.capabilities().scope != Scope::Process;
        let group_commit = group_commit.or_else(|| gathers.then(GroupCommit::builder));
        let mut outermost: Arc<dyn Backend> = Arc::new(WatchCalls::new(engine));
        let group_commit = group_commit.map(|builder| put(&mut outermost, |inner| builder.wrap(inner)));
        let deadline = put(&mut outermost, |inner| Deadline::new(inner, deadline));
        let breaker = put(&mut outermost, |inner| breaker.wrap(inner));
        let fallback = put(&mut outermost, |inner| match local {
            Some(memory) => Fallback::with_memory(inner, policies, memory),
            None => Fallback::new(inner, policies),
        });
        let deny_cache = deny_cache.map(|builder| put(&mut outermost, |inner| builder.wrap(inner)));
        #[cfg(feature = "metrics")]
        put(&mut outermost, WatchRules::new);
        Stack { outermost, deny_cache, fallback, breaker, deadline, group_commit }
    }
}

/// Puts a layer around what is the outermost so far.
fn put<L: Backend>(outermost: &mut Arc<dyn Backend>, wrap: impl FnOnce(Arc<dyn Backend>) -> L) -> Arc<L> {
    let layer = Arc::new(wrap(Arc::clone(outermost)));
    *outermost = Arc::<L>::clone(&layer);
    layer
}

impl Default for StackBuilder {
    fn default() -> Self {
        Self {
            policies: FailurePolicies::default(),
            deadline: Duration::from_millis(200),
            breaker: Breaker::builder(),
            deny_cache: Some(DenyCache::builder()),
            group_commit: None,
            local: None,
        }
    }
}

impl Stack {
    /// A stack with settings of one's own.
    pub fn builder() -> StackBuilder {
        StackBuilder::default()
    }

    /// `engine` with all layers at their defaults: a check that the store does not decide fails.
    #[must_use]
    pub fn new(engine: Arc<dyn Backend>) -> Self {
        Self::builder().build(engine)
    }

    /// The failure policies, which may be changed at any time.
    #[must_use]
    pub fn policies(&self) -> &FailurePolicies {
        self.fallback.policies()
    }

    /// The deny cache, if there is one.
    #[must_use]
    pub fn deny_cache(&self) -> Option<&DenyCache> {
        self.deny_cache.as_deref()
    }

    /// What stands in for the store.
    #[must_use]
    pub fn fallback(&self) -> &Fallback {
        &self.fallback
    }

    /// The breaker.
    #[must_use]
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// The deadline.
    #[must_use]
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// The group commit, if requests are gathered.
    #[must_use]
    pub fn group_commit(&self) -> Option<&GroupCommit> {
        self.group_commit.as_deref()
    }
}

/// Written out, since it only hands on: `async_trait` would put the layers' future into another box of its own.
#[deny(clippy::missing_trait_methods)]
impl Backend for Stack {
    fn submit<'s, 'f>(&'s self, batch: Arc<Batch>) -> Pin<Box<dyn Future<Output = Vec<Outcome>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        self.outermost.submit(batch)
    }

    fn capabilities(&self) -> Capabilities {
        self.outermost.capabilities()
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outermost.fmt(f)
    }
}
