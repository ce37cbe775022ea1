//! A policy and a store: the thing that answers queries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use limiter_core::{
    Backend, Batch, Check, Decisions, Error, ErrorKind, Instant, Memory, Op, Outcome, Request, RequestError,
};
use tokio::time::timeout;

use super::answer::{Answer, Receipt, RuleAnswer, Verdict};
use super::counters::{Counters, RuleCount, RuleCounters};
use super::error::PolicyError;
use super::model::Policy;
use super::query::Query;
use super::select::{Choice, Context};
use crate::layer::{FailurePolicy, verdict};

/// Answers queries by a policy, with the states in a store.
///
/// It is cheap to clone, and clones share everything. The policy can be replaced at any time: as a whole or not at all, and
/// without a state being lost, since states are kept under the names of rules.
///
/// ```
/// use std::sync::Arc;
/// use limiter::Memory;
/// use limiter::policy::{Policy, PolicyLimiter, Query};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let policy = Policy::parse(
///     r#"
///     [[rule]]
///     name = "login"
///     key = "ip"
///     limit = "1/1m sliding-log"
///     when = { endpoint = "/login" }
///     "#,
/// )?;
/// let limiter = PolicyLimiter::new(Arc::new(Memory::new()), policy);
/// let query = Query::new().endpoint("/login").address([192, 0, 2, 1]);
/// assert!(limiter.check(&query).await.is_allowed());
/// let refused = limiter.check(&query).await;
/// assert_eq!(refused.refused_by.as_deref(), Some("login"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PolicyLimiter(Arc<Shared>);

struct Shared {
    backend: Arc<dyn Backend>,
    installed: ArcSwap<Installed>,
    counters: Counters,
    /// Where each process counts for itself while the store is away.
    local: Memory,
}

/// A policy and the counters of its rules, in its order.
struct Installed {
    policy: Arc<Policy>,
    counters: Vec<Arc<RuleCounters>>,
}

impl Installed {
    fn new(policy: Policy, counters: &Counters) -> Self {
        let counters = policy.rules.iter().map(|rule| counters.of(&rule.name)).collect();
        Self { policy: Arc::new(policy), counters }
    }
}

impl PolicyLimiter {
    /// A limiter by this policy, with its states in `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, policy: Policy) -> Self {
        let counters = Counters::default();
        let installed = ArcSwap::from_pointee(Installed::new(policy, &counters));
        Self(Arc::new(Shared { backend, installed, counters, local: Memory::new() }))
    }

    /// The policy that is in force now.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.0.installed.load().policy)
    }

    /// Puts another policy in force for all that is asked from now on.
    pub fn replace(&self, policy: Policy) {
        self.0.installed.store(Arc::new(Installed::new(policy, &self.0.counters)));
    }

    /// Reads a policy and puts it in force: all of it, or nothing.
    ///
    /// # Errors
    /// [`PolicyError`] with every fault of the text. The policy that was in force still is.
    pub fn reload(&self, text: &str) -> Result<(), PolicyError> {
        self.replace(Policy::parse(text)?);
        Ok(())
    }

    /// What each rule has decided, by the rules' names.
    #[must_use]
    pub fn counts(&self) -> Vec<RuleCount> {
        self.0.counters.read()
    }

    /// The store.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.0.backend
    }

    /// Asks all rules that the query meets, in one round trip: all of them are charged or, if one refuses, none. Shadow rules are
    /// asked beside them, each by itself.
    ///
    /// The future does not borrow the query. It has to be awaited in a Tokio runtime with its timer enabled if a rule has a
    /// deadline.
    pub fn check(&self, query: &Query<'_>) -> impl Future<Output = Answer> + Send + use<> {
        self.ask(Op::Take, query)
    }

    /// The answer that a check would get, charging nothing and counting nothing.
    pub fn peek(&self, query: &Query<'_>) -> impl Future<Output = Answer> + Send + use<> {
        self.ask(Op::Peek, query)
    }

    /// Gives back what a request was charged, once: never repeat it, also if it failed.
    ///
    /// # Errors
    /// The store's failure. If that is not certain, nobody knows whether the units were given back.
    pub async fn refund(&self, receipt: Receipt) -> Result<(), Error> {
        let parts = receipt.parts.into_iter();
        self.refund_parts(parts.map(|(at, checks)| (at, checks.into_iter().map(|(_, check)| check).collect()))).await
    }

    /// Gives back what the rules that are named in `charged` took from `query`, each at its instant, for a caller that has no
    /// [`Receipt`]: another process, say. Returns how many rules that were; one that does not apply to the query any more is left
    /// out.
    ///
    /// # Errors
    /// As [`refund`](Self::refund).
    pub async fn refund_query(&self, query: &Query<'_>, charged: &[(&str, Instant, u64)]) -> Result<usize, Error> {
        let policy = self.policy();
        let Choice::Rules(rules) = Context::new(&policy, query).choose() else { return Ok(0) };
        let parts: Vec<_> = rules
            .into_iter()
            .filter_map(|(index, mut check)| {
                let name = policy.rules.get(index)?.name();
                let (_, at, cost) = charged.iter().find(|(rule, ..)| *rule == name)?;
                check.cost = *cost;
                Some((*at, vec![check]))
            })
            .collect();
        let given = parts.len();
        self.refund_parts(parts.into_iter()).await?;
        Ok(given)
    }

    async fn refund_parts(&self, parts: impl Iterator<Item = (Instant, Vec<Check>)>) -> Result<(), Error> {
        // A cost over the bound was never charged, and nothing charged is nothing to give back.
        let requests: Vec<_> =
            parts.filter_map(|(taken, checks)| Request::new(Op::Refund { taken }, checks).ok()).collect();
        if requests.is_empty() {
            return Ok(());
        }
        let wanted = requests.len();
        let outcomes = self.0.backend.submit(Arc::new(Batch { requests, at: None })).await;
        if outcomes.len() != wanted {
            return Err(no_outcome(&*self.0.backend));
        }
        outcomes.iter().try_for_each(|outcome| outcome.record().map(|_| ()).map_err(Clone::clone))
    }

    fn ask(&self, op: Op, query: &Query<'_>) -> impl Future<Output = Answer> + Send + use<> {
        let asked = Asked::new(Arc::clone(&self.0), op, query);
        async move {
            match asked {
                Ok(asked) => asked.answer().await,
                Err(answer) => *answer,
            }
        }
    }
}

impl fmt::Debug for PolicyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.0.installed.load().policy.rules.len();
        write!(f, "PolicyLimiter({rules} rules, {:?})", self.0.backend)
    }
}

/// A query on its way: all that it asks of the store, in one batch.
struct Asked {
    shared: Arc<Shared>,
    installed: Arc<Installed>,
    op: Op,
    /// The rules that refuse, as one request, if there are any.
    rules: Vec<(usize, Check)>,
    /// Each a request of its own, so that none can stand in another's way.
    shadow: Vec<(usize, Check)>,
    batch: Arc<Batch>,
    deadline: Option<Duration>,
}

impl Asked {
    /// What to ask the store, or the answer where it need not be asked.
    fn new(shared: Arc<Shared>, op: Op, query: &Query<'_>) -> Result<Self, Box<Answer>> {
        let installed = shared.installed.load_full();
        let policy = &*installed.policy;
        let refused = |verdict, rule: Option<usize>, field: String| {
            let mut answer = Answer::of(verdict);
            answer.refused_by = rule.and_then(|rule| policy.rules.get(rule)).map(|rule| Arc::clone(&rule.name));
            answer.field = Some(field.into());
            Err(Box::new(answer))
        };
        let rules = match Context::new(policy, query).choose() {
            Choice::Exempt(field) => return refused(Verdict::Exempt, None, field),
            Choice::Listed(field) => return refused(Verdict::Listed, None, field),
            Choice::Missing { rule, field } => return refused(Verdict::Missing, Some(rule), field),
            Choice::Rules(rules) => rules,
        };
        let is_shadow = |rule: usize| policy.rules.get(rule).is_some_and(|rule| rule.shadow);
        let (mut shadow, rules): (Vec<_>, Vec<_>) = rules.into_iter().partition(|(rule, _)| is_shadow(*rule));
        // A shadow rule that the cost can never pass has nothing to count.
        shadow.retain(|(_, check)| check.cost <= check.limit.capacity());
        let mut requests = Vec::with_capacity(1 + shadow.len());
        if !rules.is_empty() {
            match Request::new(op, rules.iter().map(|(_, check)| check.clone())) {
                Ok(request) => requests.push(request),
                Err(RequestError::CostExceedsLimit { index, .. }) => {
                    let rule = rules.get(index).map(|(rule, _)| *rule);
                    return refused(Verdict::TooCostly, rule, "cost".to_owned());
                }
                // The names of rules differ, and so do their keys; and there are no more rules than a request may have.
                Err(_) => return Err(Box::new(Answer::of(Verdict::Unavailable))),
            }
        }
        requests.extend(shadow.iter().filter_map(|(_, check)| Request::new(op, [check.clone()]).ok()));
        let applying = rules.iter().filter_map(|(rule, _)| policy.rules.get(*rule));
        let deadline = applying.filter_map(|rule| rule.deadline.or(policy.deadline)).min();
        let batch = Arc::new(Batch { requests, at: None });
        Ok(Self { shared, installed, op, rules, shadow, batch, deadline })
    }

    async fn answer(self) -> Answer {
        if self.batch.requests.is_empty() {
            return Answer::of(Verdict::Allowed);
        }
        let submitted = self.shared.backend.submit(Arc::clone(&self.batch));
        let outcomes = match self.deadline {
            None => submitted.await,
            // What has left may be applied after the deadline: unknown.
            Some(deadline) => timeout(deadline, submitted).await.unwrap_or_default(),
        };
        let decided = |index: usize| -> Result<Decisions, Error> {
            let request = self.batch.requests.get(index).ok_or_else(|| no_outcome(&*self.shared.backend))?;
            let outcome: &Outcome = outcomes.get(index).ok_or_else(|| no_outcome(&*self.shared.backend))?;
            outcome.decisions(request)
        };
        let mut answer = if self.rules.is_empty() {
            Answer::of(Verdict::Allowed)
        } else {
            match decided(0) {
                Ok(decisions) => self.decided(&self.rules, &decisions),
                Err(error) => self.fallen_back(&error),
            }
        };
        let first = usize::from(!self.rules.is_empty());
        for (index, chosen) in self.shadow.iter().enumerate() {
            let Ok(decisions) = decided(first + index) else { continue };
            let one = self.decided(std::slice::from_ref(chosen), &decisions);
            answer.shadow.extend(one.rules);
            // What the others were not charged for was not used.
            if let Some(receipt) = one.receipt.filter(|_| answer.receipt.is_some() || self.rules.is_empty()) {
                answer.receipt.get_or_insert_default().parts.extend(receipt.parts);
            }
        }
        answer
    }

    /// The answer of rules that the store, or this process in its place, decided together.
    fn decided(&self, rules: &[(usize, Check)], decisions: &Decisions) -> Answer {
        let mut answer = Answer::of(if decisions.allowed { Verdict::Allowed } else { Verdict::Limited });
        answer.retry_after = decisions.retry_after;
        answer.delay = decisions.delay;
        // A layer around the store may have stood in for it.
        answer.degraded = decisions.source.is_degraded();
        let mut charged = Vec::new();
        for ((index, check), decision) in rules.iter().zip(decisions.layers()) {
            let Some(rule) = self.installed.policy.rules.get(*index) else { continue };
            charged.push((Arc::clone(&rule.name), check.clone()));
            if !decision.source.has_numbers() {
                // Nobody counted it: another rule refused already, or its policy is open.
                continue;
            }
            if let Some(counters) = self.installed.counters.get(*index).filter(|_| self.op == Op::Take) {
                counters.decided(decision.allowed);
            }
            answer.rules.push(RuleAnswer {
                rule: Arc::clone(&rule.name),
                limit: check.limit,
                cost: check.cost,
                decision: *decision,
            });
        }
        if decisions.allowed {
            if self.op == Op::Take && !answer.degraded {
                answer.receipt = Some(Receipt { parts: vec![(decisions.at, charged)] });
            }
        } else {
            answer.refused_by = answer.tightest().map(|rule| Arc::clone(&rule.rule));
        }
        answer
    }

    /// The answer where the store gave none, by the rules' failure policies: as the layer [`Fallback`](crate::layer::Fallback) decides it,
    /// but within a rule's deadline, which lies outside of all layers.
    fn fallen_back(&self, error: &Error) -> Answer {
        let policy = &self.installed.policy;
        let mut policies = Vec::with_capacity(self.rules.len());
        let mut closed = None;
        for (index, _) in &self.rules {
            if let Some(counters) = self.installed.counters.get(*index).filter(|_| self.op == Op::Take) {
                counters.degraded();
            }
            let rule = policy.rules.get(*index);
            let says = rule.and_then(|rule| rule.on_failure).unwrap_or(policy.on_failure);
            if says == FailurePolicy::Closed && closed.is_none() {
                closed = rule.map(|rule| Arc::clone(&rule.name));
            }
            policies.push(says);
        }
        let decisions =
            self.batch.requests.first().and_then(|request| {
                verdict(&self.shared.local, request, error.kind(), policies)?.decisions(request).ok()
            });
        let mut answer = match decisions {
            Some(decisions) => self.decided(&self.rules, &decisions),
            None => Answer { refused_by: closed, ..Answer::of(Verdict::Unavailable) },
        };
        answer.degraded = true;
        answer
    }
}

fn no_outcome(backend: &dyn Backend) -> Error {
    Error::new(backend.capabilities().engine, ErrorKind::Unknown { in_flight: true }, "no answer within the deadline")
}
