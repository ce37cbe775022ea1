//! A policy as a whole: rules, plans, tenants, lists and costs that fit together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Limit, MAX_BURST, MAX_CHECKS};

use super::condition::{Condition, Pattern};
use super::error::{Fault, Place, PolicyError};
use super::rule::{Allowance, Count, Rule};
use crate::layer::FailurePolicy;

/// The most rules in a policy, so that no request ever meets more than a store decides in one step.
pub const MAX_RULES: usize = MAX_CHECKS;
/// The shortest and the longest deadline of a store.
const DEADLINES: [Duration; 2] = [Duration::from_millis(1), Duration::from_mins(1)];

/// Rules that fit together, checked as a whole. It does not change: another one takes its place.
///
/// Read from a file by [`Policy::parse`], or made by a [`PolicyBuilder`].
#[derive(Debug)]
pub struct Policy {
    /// In the order in which they are asked: what counts many together first.
    pub(super) rules: Vec<Rule>,
    pub(super) plans: HashMap<Arc<str>, HashMap<Arc<str>, Allowance>>,
    pub(super) tenants: HashMap<Vec<u8>, Tenant>,
    pub(super) default_plan: Option<Arc<str>>,
    pub(super) allow: Condition,
    pub(super) deny: Condition,
    /// The closest pattern first.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) ipv6_prefix: u8,
    pub(super) on_failure: FailurePolicy,
    pub(super) deadline: Option<Duration>,
    headers: Vec<Arc<str>>,
}

impl Policy {
    /// A policy to be built.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }

    /// The rules, in the order in which they are asked.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The headers that rules and lists look at, in lower case: what a [`Query`](super::Query) has to tell.
    #[must_use]
    pub fn headers(&self) -> &[Arc<str>] {
        &self.headers
    }
}

/// What is agreed with one tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenant {
    pub(super) plan: Option<Arc<str>>,
    pub(super) limits: HashMap<Arc<str>, Allowance>,
}

/// A pattern of endpoints, and what one request to them costs.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    /// As it is written: what the key of a rule by endpoint says.
    pub(super) text: Arc<str>,
    pub(super) method: Option<Arc<str>>,
    pub(super) pattern: Pattern,
    pub(super) cost: u64,
}

/// A [`Policy`] that is still being written.
///
/// ```
/// use limiter::policy::{Policy, Query, Recipe, Rule};
///
/// let policy = Policy::builder()
///     .rule(Rule::new("daily", "tenant".parse::<Recipe>()?))
///     .plan("starter", "daily", "10000/1d fixed-window".parse::<limiter::Limit>()?)
///     .plan("pro", "daily", "100000/1d fixed-window".parse::<limiter::Limit>()?)
///     .default_plan("starter")
///     .tenant("acme", "pro")
///     .endpoint("POST /search", 5)
///     .build()?;
/// let query = Query::new().tenant("acme").method("POST").endpoint("/search");
/// assert!(policy.explain(&query).to_string().contains("100000/1d fixed-window"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct PolicyBuilder {
    pub(super) rules: Vec<Rule>,
    pub(super) plans: BTreeMap<String, BTreeMap<String, Allowance>>,
    pub(super) tenants: BTreeMap<String, (Option<String>, BTreeMap<String, Allowance>)>,
    pub(super) default_plan: Option<String>,
    pub(super) allow: Condition,
    pub(super) deny: Condition,
    pub(super) endpoints: Vec<(String, u64)>,
    pub(super) ipv6_prefix: Option<u8>,
    pub(super) shadow: bool,
    pub(super) on_failure: Option<FailurePolicy>,
    pub(super) deadline: Option<Duration>,
}

impl PolicyBuilder {
    /// One more rule.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// What plan `plan` has of rule `rule`, in place of the rule's own limit.
    pub fn plan(mut self, plan: &str, rule: &str, allowance: impl Into<Allowance>) -> Self {
        self.plans.entry(plan.to_owned()).or_default().insert(rule.to_owned(), allowance.into());
        self
    }

    /// The plan of a tenant.
    pub fn tenant(mut self, tenant: &str, plan: &str) -> Self {
        self.tenants.entry(tenant.to_owned()).or_default().0 = Some(plan.to_owned());
        self
    }

    /// What one tenant has of a rule, in place of its plan's.
    pub fn tenant_limit(mut self, tenant: &str, rule: &str, allowance: impl Into<Allowance>) -> Self {
        self.tenants.entry(tenant.to_owned()).or_default().1.insert(rule.to_owned(), allowance.into());
        self
    }

    /// The plan of those who have none.
    pub fn default_plan(mut self, plan: &str) -> Self {
        self.default_plan = Some(plan.to_owned());
        self
    }

    /// Who meets one of these fields is neither counted nor refused.
    pub fn allow(mut self, list: Condition) -> Self {
        self.allow = list;
        self
    }

    /// Who meets one of these fields is refused, whatever else holds.
    pub fn deny(mut self, list: Condition) -> Self {
        self.deny = list;
        self
    }

    /// What a request costs whose path, or method and path, meets `pattern` (`POST /search`, `/reports/*`), 0 … 10^12 + 1. The
    /// closest pattern counts, and what meets none costs 1.
    ///
    /// With any pattern, the endpoint in a key is the pattern, and one common word for all that meet none: a client that makes up
    /// paths gets no fresh quota by it.
    pub fn endpoint(mut self, pattern: &str, cost: u64) -> Self {
        self.endpoints.push((pattern.to_owned(), cost));
        self
    }

    /// How many bits of an IPv6 address are counted by, 1 … 128; 64 if it is not said.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = Some(bits);
        self
    }

    /// All rules count and report, and none refuses.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// What happens when the store does not decide, for rules that don't say it themselves; by default it is refused
    /// ([`FailurePolicy::Closed`]).
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// How long the store may take, for rules that don't say it themselves, 1 ms … 60 s; by default as long as its engine waits.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The policy, if all of it fits together.
    ///
    /// # Errors
    /// [`PolicyError`] with everything that does not.
    pub fn build(self) -> Result<Policy, PolicyError> {
        self.assemble()
            .map_err(|faults| PolicyError { file: None, faults: faults.into_iter().map(|(_, fault)| fault).collect() })
    }

    pub(super) fn assemble(self) -> Result<Policy, Vec<(Place, Fault)>> {
        let mut faults = Vec::new();
        self.check_rules(&mut faults);
        self.check_plans(&mut faults);
        self.check_endpoints(&mut faults);
        self.check_settings(&mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(self.into_policy())
    }

    fn check_rules(&self, faults: &mut Vec<(Place, Fault)>) {
        if self.rules.is_empty() && self.allow.is_empty() && self.deny.is_empty() {
            faults.push(Fault::at(&Place::Top("rule"), "there is no rule and no list"));
        }
        if self.rules.len() > MAX_RULES {
            let message = format!("there are {} rules; the bound is {MAX_RULES}", self.rules.len());
            faults.push(Fault::at(&Place::Top("rule"), message));
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let place = |field| Place::Rule(index, rule.name.to_string(), field);
            if let Err(message) = check_name(&rule.name) {
                faults.push(Fault::at(&place("name"), message));
            }
            if self.rules.iter().take(index).any(|earlier| earlier.name == rule.name) {
                faults.push(Fault::at(&place("name"), "there is a rule of this name already"));
            }
            let mut named = self.plans.values().chain(self.tenants.values().map(|(_, limits)| limits));
            if rule.limit.is_none() && !named.any(|limits| limits.contains_key(&*rule.name)) {
                faults.push(Fault::at(&place("limit"), "there is none, and no plan or tenant has one"));
            }
            if let Some(deadline) = rule.deadline
                && let Err(message) = check_deadline(deadline)
            {
                faults.push(Fault::at(&place("deadline"), message));
            }
            for (field, condition) in [("when", &rule.when), ("unless", &rule.unless)] {
                for plan in condition.plans() {
                    if !plan.contains('*') && !self.plans.contains_key(plan) {
                        faults.push(Fault::at(&place(field), unknown("plan", plan)));
                    }
                }
            }
        }
    }

    fn check_plans(&self, faults: &mut Vec<(Place, Fault)>) {
        let known = |rule: &str| self.rules.iter().any(|known| *known.name == *rule);
        for (plan, limits) in &self.plans {
            if let Err(message) = check_name(plan) {
                faults.push(Fault::at(&Place::Plan(plan.clone(), String::new()), message));
            }
            for rule in limits.keys().filter(|rule| !known(rule)) {
                faults.push(Fault::at(&Place::Plan(plan.clone(), rule.clone()), unknown("rule", rule)));
            }
        }
        for (tenant, (plan, limits)) in &self.tenants {
            if let Some(plan) = plan.as_ref().filter(|plan| !self.plans.contains_key(*plan)) {
                faults.push(Fault::at(&Place::Tenant(tenant.clone(), "plan".to_owned()), unknown("plan", plan)));
            }
            for rule in limits.keys().filter(|rule| !known(rule)) {
                faults.push(Fault::at(&Place::Tenant(tenant.clone(), rule.clone()), unknown("rule", rule)));
            }
        }
        if let Some(plan) = self.default_plan.as_ref().filter(|plan| !self.plans.contains_key(*plan)) {
            faults.push(Fault::at(&Place::Top("default_plan"), unknown("plan", plan)));
        }
    }

    fn check_endpoints(&self, faults: &mut Vec<(Place, Fault)>) {
        for (index, (pattern, cost)) in self.endpoints.iter().enumerate() {
            let place = Place::Endpoint(pattern.clone());
            if self.endpoints.iter().take(index).any(|(earlier, _)| earlier == pattern) {
                faults.push(Fault::at(&place, "it is there twice"));
            }
            if !split_method(pattern).1.starts_with(['/', '*']) {
                faults.push(Fault::at(&place, "a pattern is `/path` or `METHOD /path`, with `*` for any characters"));
            }
            if *cost > MAX_BURST {
                faults.push(Fault::at(&place, format!("cost {cost} is over its bound of {MAX_BURST}")));
                continue;
            }
            // Only where it is certain: a rule with conditions may never meet this endpoint.
            let always = |rule: &&Rule| rule.count == Count::Cost && rule.when.is_empty() && !rule.shadow;
            for rule in self.rules.iter().filter(always) {
                if let Some(limit) = rule.limit.filter(|limit| limit.capacity() < *cost) {
                    faults.push(Fault::at(&place, never(*cost, &rule.name, &limit)));
                }
            }
        }
    }

    fn check_settings(&self, faults: &mut Vec<(Place, Fault)>) {
        if let Some(bits) = self.ipv6_prefix.filter(|bits| !(1..=128).contains(bits)) {
            faults.push(Fault::at(&Place::Top("ipv6_prefix"), format!("{bits} is out of its bounds, 1 to 128")));
        }
        if let Some(Err(message)) = self.deadline.map(check_deadline) {
            faults.push(Fault::at(&Place::Top("deadline"), message));
        }
    }

    fn into_policy(self) -> Policy {
        let allowances = |limits: BTreeMap<String, Allowance>| -> HashMap<Arc<str>, Allowance> {
            limits.into_iter().map(|(rule, allowance)| (rule.into(), allowance)).collect()
        };
        let mut rules = self.rules;
        for rule in &mut rules {
            rule.shadow |= self.shadow;
        }
        // Stable: what counts alike stays in the order in which it was written.
        rules.sort_by_key(|rule| rule.key.rank());
        let mut endpoints: Vec<Endpoint> = self
            .endpoints
            .into_iter()
            .map(|(text, cost)| {
                let (method, path) = split_method(&text);
                let (method, pattern) = (method.map(Into::into), Pattern::new(path));
                Endpoint { method, pattern, cost, text: text.as_str().into() }
            })
            .collect();
        let close = |endpoint: &Endpoint| (endpoint.pattern.weight(), endpoint.method.is_some());
        endpoints.sort_by(|a, b| close(b).cmp(&close(a)).then_with(|| a.text.cmp(&b.text)));
        let mut headers: Vec<Arc<str>> = rules
            .iter()
            .flat_map(|rule| rule.when.headers().chain(rule.unless.headers()))
            .chain(self.allow.headers())
            .chain(self.deny.headers())
            .cloned()
            .chain(rules.iter().flat_map(|rule| rule.key.fields()).filter_map(|field| match field {
                super::Field::Header(name) => Some(Arc::clone(name)),
                _ => None,
            }))
            .collect();
        headers.sort();
        headers.dedup();
        Policy {
            rules,
            plans: self.plans.into_iter().map(|(plan, limits)| (plan.into(), allowances(limits))).collect(),
            tenants: self
                .tenants
                .into_iter()
                .map(|(tenant, (plan, limits))| {
                    (tenant.into_bytes(), Tenant { plan: plan.map(Into::into), limits: allowances(limits) })
                })
                .collect(),
            default_plan: self.default_plan.map(Into::into),
            allow: self.allow,
            deny: self.deny,
            endpoints,
            ipv6_prefix: self.ipv6_prefix.unwrap_or(64),
            on_failure: self.on_failure.unwrap_or_default(),
            deadline: self.deadline,
            headers,
        }
    }
}

/// `POST /search` is a method and a path, `/search` only a path.
fn split_method(pattern: &str) -> (Option<&str>, &str) {
    match pattern.split_once(' ') {
        Some((method, path)) => (Some(method), path.trim_start()),
        None => (None, pattern),
    }
}

/// A name goes into headers, logs and metric labels as it is.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err("a name is 1 to 64 of the characters a-z A-Z 0-9 . _ -".to_owned());
    }
    Ok(())
}

fn check_deadline(deadline: Duration) -> Result<(), String> {
    let [shortest, longest] = DEADLINES;
    if deadline < shortest || deadline > longest {
        return Err(format!("{deadline:?} is out of its bounds, {shortest:?} to {longest:?}"));
    }
    Ok(())
}

fn unknown(what: &str, name: &str) -> String {
    format!("there is no {what} `{}`", name.chars().take(64).collect::<String>().escape_debug())
}

fn never(cost: u64, rule: &str, limit: &Limit) -> String {
    format!("cost {cost} can never pass rule `{rule}`: it is over its bound of {}", limit.capacity())
}
