//! What a caller is told: whether, by which rule, and under which limits.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Check, Decision, Instant, Limit};

/// How a request fared, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It may go on.
    Allowed,
    /// It is on the allow list: it may go on, and nothing was counted.
    Exempt,
    /// A limit refuses it for now.
    Limited,
    /// It is on the deny list.
    Listed,
    /// It does not tell a field that a rule wants.
    Missing,
    /// Its cost is over a limit's capacity: it can never pass, whatever the wait.
    TooCostly,
    /// The store did not decide, and a rule says that nobody passes then.
    Unavailable,
}

impl Verdict {
    /// The name in answers and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Exempt => "exempt",
            Self::Limited => "rate-limited",
            Self::Listed => "denied",
            Self::Missing => "missing-identity",
            Self::TooCostly => "cost-exceeds-limit",
            Self::Unavailable => "unavailable",
        }
    }

    /// Whether the request may go on.
    #[must_use]
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed | Self::Exempt)
    }
}

/// One rule's part in an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleAnswer {
    /// The rule.
    pub rule: Arc<str>,
    /// Its limit for this request.
    pub limit: Limit,
    /// What was asked of it.
    pub cost: u64,
    /// What it decided. In a refused request a rule that would have let it pass says so, and was not charged.
    pub decision: Decision,
}

/// The answer to a query.
#[derive(Clone, Debug)]
#[must_use = "whether it may go on is in `verdict`"]
#[non_exhaustive]
pub struct Answer {
    /// Whether it may go on, and why not.
    pub verdict: Verdict,
    /// The rule that refused: of several, the one with the longest wait.
    pub refused_by: Option<Arc<str>>,
    /// What it was refused for, where that is not a limit: the field of a list, or the one that is missing.
    pub field: Option<Arc<str>>,
    /// How long to wait before the same request would pass, if a limit refused it and nothing else comes.
    pub retry_after: Option<Duration>,
    /// How long to wait before going on, by the leaky buckets among the limits. Zero if refused.
    pub delay: Duration,
    /// Whether the store did not decide: a rule's failure policy did.
    pub degraded: bool,
    /// The rules that can refuse and that somebody counted, in the order of the policy: not those that nobody asked since another
    /// refused already, and not those that passed uncounted.
    pub rules: Vec<RuleAnswer>,
    /// The shadow rules that were asked. They change nothing of the verdict.
    pub shadow: Vec<RuleAnswer>,
    pub(super) receipt: Option<Receipt>,
}

impl Answer {
    pub(super) fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            refused_by: None,
            field: None,
            retry_after: None,
            delay: Duration::ZERO,
            degraded: false,
            rules: Vec::new(),
            shadow: Vec::new(),
            receipt: None,
        }
    }

    /// Whether the request may go on.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.verdict.is_allowed()
    }

    /// The rule that is nearest to refusing, or that refuses the longest: what a client is to keep to.
    #[must_use]
    pub fn tightest(&self) -> Option<&RuleAnswer> {
        let refused = self.rules.iter().filter(|rule| !rule.decision.allowed);
        refused.max_by_key(|rule| rule.decision.retry_after).or_else(|| {
            let left = |rule: &&RuleAnswer| (rule.decision.remaining, Reverse(rule.decision.reset_after));
            self.rules.iter().min_by_key(left)
        })
    }

    /// The shadow rules that would have refused it.
    pub fn shadow_refusals(&self) -> impl Iterator<Item = &RuleAnswer> {
        self.shadow.iter().filter(|rule| !rule.decision.allowed)
    }

    /// What was charged, for a refund. None if nothing was, or if nobody knows.
    #[must_use]
    pub const fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }
}

/// What was decided together: when, and the check of each rule.
pub(super) type Part = (Instant, Vec<(Arc<str>, Check)>);

/// What a request was charged, so that it can be given back, also after the policy has changed.
#[derive(Clone, Default)]
pub struct Receipt {
    /// What was decided together, and when: the rules that refuse, and each shadow rule by itself.
    pub(super) parts: Vec<Part>,
}

impl Receipt {
    /// When each rule was charged, and how much.
    pub fn charged(&self) -> impl Iterator<Item = (&str, Instant, u64)> {
        self.parts.iter().flat_map(|(at, checks)| checks.iter().map(|(rule, check)| (&**rule, *at, check.cost)))
    }
}

impl fmt::Debug for Receipt {
    /// Says which rules, and no key: it may identify somebody.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.charged()).finish()
    }
}
