//! One rule: what it counts, for whom, and what happens when nobody can count.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use limiter_core::Limit;

use super::condition::Condition;
use super::recipe::Recipe;
use crate::layer::FailurePolicy;

/// What a rule does with a request that does not tell a field of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// It is counted by its address; all without an address are counted together. So leaving a header out gains nothing.
    #[default]
    Ip,
    /// All such requests are counted together.
    Share,
    /// The rule does not apply to it.
    Skip,
    /// It is refused.
    Refuse,
}

impl Missing {
    /// The four, with their names in a policy file.
    pub(super) const ALL: [(&'static str, Self); 4] =
        [("ip", Self::Ip), ("share", Self::Share), ("skip", Self::Skip), ("refuse", Self::Refuse)];
}

/// What a rule counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Count {
    /// Units: what the request or its endpoint costs.
    #[default]
    Cost,
    /// Requests, each as 1.
    Requests,
}

impl Count {
    pub(super) const ALL: [(&'static str, Self); 2] = [("cost", Self::Cost), ("requests", Self::Requests)];
}

/// A named limit, by what it counts, and when.
///
/// ```
/// use limiter::policy::{Condition, Recipe, Rule};
///
/// let rule = Rule::new("login", "ip".parse::<Recipe>()?)
///     .limit("5/1m sliding-log".parse()?)
///     .when(Condition::new().any_of("endpoint", ["/login"])?.any_of("method", ["POST"])?);
/// assert_eq!(rule.name(), "login");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Rule {
    pub(super) name: Arc<str>,
    pub(super) key: Recipe,
    pub(super) limit: Option<Limit>,
    pub(super) when: Condition,
    pub(super) unless: Condition,
    pub(super) missing: Missing,
    pub(super) count: Count,
    pub(super) shadow: bool,
    pub(super) on_failure: Option<FailurePolicy>,
    pub(super) deadline: Option<Duration>,
}

impl Rule {
    /// A rule by the name `name`, which counts by `key`. It applies to all, once it has a limit of its own or by a plan.
    ///
    /// The name is part of the stored keys: another name begins to count afresh.
    #[must_use]
    pub fn new(name: &str, key: Recipe) -> Self {
        Self {
            name: name.into(),
            key,
            limit: None,
            when: Condition::new(),
            unless: Condition::new(),
            missing: Missing::default(),
            count: Count::default(),
            shadow: false,
            on_failure: None,
            deadline: None,
        }
    }

    /// Its limit, for all whose plan does not have another.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// It applies only where all of this is met.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.when = condition;
        self
    }

    /// It does not apply where all of this is met. No field: always applies.
    #[must_use]
    pub fn unless(mut self, condition: Condition) -> Self {
        self.unless = condition;
        self
    }

    /// What becomes of a request that does not tell a field of the key.
    #[must_use]
    pub fn missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// Whether it counts units or requests.
    #[must_use]
    pub fn count(mut self, count: Count) -> Self {
        self.count = count;
        self
    }

    /// Counts and reports, and refuses nothing. Who is refused by another rule is counted here all the same.
    #[must_use]
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// What happens when the store does not decide; else the policy's own setting.
    #[must_use]
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// How long the store may take, 1 ms … 60 s; of the rules that apply to a request, the shortest.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// By what it counts.
    #[must_use]
    pub const fn key(&self) -> &Recipe {
        &self.key
    }

    /// Whether it refuses nothing.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("key", &format_args!("{}", self.key))
            .field("limit", &self.limit)
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}

/// What a plan or a tenant has of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// As much as this.
    Limit(Limit),
    /// The rule does not apply.
    Unlimited,
}

impl From<Limit> for Allowance {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}
