//! Which rules a query meets, and under which keys: the one place that both the decision and its explanation ask.

use std::sync::Arc;

use limiter_core::{Check, Limit};

use super::model::{Endpoint, Policy};
use super::query::{Query, Value};
use super::recipe::{Parts, anonymous, network};
use super::rule::{Allowance, Count, Missing, Rule};

/// What a policy says of a query before any limit is asked.
pub(super) enum Choice {
    /// It meets a field of the allow list: nothing is counted.
    Exempt(String),
    /// It meets a field of the deny list.
    Listed(String),
    /// It does not tell a field that a rule wants.
    Missing { rule: usize, field: String },
    /// The rules that apply, by their number in the policy.
    Rules(Vec<(usize, Check)>),
}

/// What one rule says of a query.
pub(super) enum Considered {
    Applies { check: Check, anonymous: Option<String> },
    Missing { field: String },
    SkippedFor { field: String },
    WhenNotMet,
    UnlessMet,
    Unlimited,
    NoLimit,
}

/// A query in the light of a policy.
pub(super) struct Context<'a, 'q> {
    pub(super) policy: &'a Policy,
    pub(super) query: &'a Query<'q>,
    pub(super) plan: Option<&'a str>,
    pub(super) path: Option<Vec<u8>>,
    pub(super) endpoint: Option<&'a Endpoint>,
    pub(super) cost: u64,
    network: Option<String>,
}

impl<'a, 'q> Context<'a, 'q> {
    pub(super) fn new(policy: &'a Policy, query: &'a Query<'q>) -> Self {
        let path = query.endpoint.as_ref().map(|endpoint| canonical(endpoint.bytes()));
        let method = query.method.as_ref().map(Value::bytes);
        let endpoint = path.as_deref().and_then(|path| {
            policy.endpoints.iter().find(|endpoint| {
                let wanted = endpoint.method.as_deref().map(str::as_bytes);
                (wanted.is_none() || wanted == method) && endpoint.pattern.matches(path)
            })
        });
        let cost = query.cost.unwrap_or_else(|| endpoint.map_or(1, |endpoint| endpoint.cost));
        let network = query.address.map(|address| network(address, policy.ipv6_prefix));
        Self { policy, query, plan: plan(policy, query), path, endpoint, cost, network }
    }

    pub(super) fn choose(&self) -> Choice {
        let Self { policy, query, plan, .. } = self;
        let path = self.path.as_deref();
        if let Some(field) = policy.deny.any(query, *plan, path) {
            return Choice::Listed(field);
        }
        if let Some(field) = policy.allow.any(query, *plan, path) {
            return Choice::Exempt(field);
        }
        let mut chosen = Vec::new();
        for (index, rule) in policy.rules.iter().enumerate() {
            match self.consider(rule) {
                Considered::Applies { check, .. } => chosen.push((index, check)),
                // A shadow rule refuses nothing.
                Considered::Missing { field } if !rule.shadow => return Choice::Missing { rule: index, field },
                _ => {}
            }
        }
        Choice::Rules(chosen)
    }

    pub(super) fn consider(&self, rule: &Rule) -> Considered {
        let path = self.path.as_deref();
        if !rule.when.all(self.query, self.plan, path) {
            return Considered::WhenNotMet;
        }
        if !rule.unless.is_empty() && rule.unless.all(self.query, self.plan, path) {
            return Considered::UnlessMet;
        }
        let limit = match self.allowance(rule) {
            Some(Allowance::Limit(limit)) => limit,
            Some(Allowance::Unlimited) => return Considered::Unlimited,
            None => return Considered::NoLimit,
        };
        let parts = Parts { endpoint: self.counted_endpoint(), network: self.network.clone() };
        let (key, anonymous) = match rule.key.key(&rule.name, self.query, &parts) {
            Ok(key) => (key, None),
            Err(field) => {
                let field = field.to_string();
                match rule.missing {
                    Missing::Skip => return Considered::SkippedFor { field },
                    Missing::Refuse => return Considered::Missing { field },
                    Missing::Ip => (anonymous(&rule.name, self.network.as_deref()), Some(field)),
                    Missing::Share => (anonymous(&rule.name, None), Some(field)),
                }
            }
        };
        let cost = if rule.count == Count::Requests { self.cost.min(1) } else { self.cost };
        Considered::Applies { check: Check::new(key, limit, cost), anonymous }
    }

    /// The limit of a rule for this query: the tenant's own, else its plan's, else the rule's.
    fn allowance(&self, rule: &Rule) -> Option<Allowance> {
        let own = self.query.tenant.as_ref().and_then(|tenant| self.policy.tenants.get(tenant.bytes()));
        own.and_then(|tenant| tenant.limits.get(&rule.name))
            .or_else(|| self.plan.and_then(|plan| self.policy.plans.get(plan)?.get(&rule.name)))
            .copied()
            .or_else(|| rule.limit.map(Limit::into))
    }

    /// The endpoint as keys tell it: a pattern of the policy, so that made-up paths give no fresh keys.
    fn counted_endpoint(&self) -> Option<&[u8]> {
        let path = self.path.as_deref()?;
        if self.policy.endpoints.is_empty() {
            return Some(path);
        }
        Some(self.endpoint.map_or(b"*", |endpoint| endpoint.text.as_bytes()))
    }
}

/// The tenant's plan in the policy, else the one that the query names and the policy knows, else the default.
fn plan<'a>(policy: &'a Policy, query: &Query<'_>) -> Option<&'a str> {
    let tenant = query.tenant.as_ref().and_then(|tenant| policy.tenants.get(tenant.bytes()));
    let named = || {
        let named = std::str::from_utf8(query.plan.as_ref()?.bytes()).ok()?;
        policy.plans.get_key_value(named).map(|(plan, _)| plan)
    };
    tenant.and_then(|tenant| tenant.plan.as_ref()).or_else(named).or(policy.default_plan.as_ref()).map(Arc::as_ref)
}

/// A path in the one form that patterns are held against: without query, `%41` as what it stands for where that means the same,
/// and no doubled `/`. Else a rule for `/login` would not see `//login` or `/%6cogin`.
fn canonical(path: &[u8]) -> Vec<u8> {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let mut rest = path.get(..end).unwrap_or_default();
    let mut canonical = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let mut byte = byte;
        if byte == b'%'
            && let [high, low, after @ ..] = rest
            && let (Some(high), Some(low)) = (char::from(*high).to_digit(16), char::from(*low).to_digit(16))
            && let Ok(decoded) = u8::try_from(high * 16 + low)
            && (decoded.is_ascii_alphanumeric() || matches!(decoded, b'-' | b'.' | b'_' | b'~'))
        {
            byte = decoded;
            rest = after;
        }
        if byte == b'/' && canonical.last() == Some(&b'/') {
            continue;
        }
        canonical.push(byte);
    }
    canonical
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn a_path_has_one_form() {
        let canonical = |path: &str| String::from_utf8(canonical(path.as_bytes())).unwrap();
        for path in ["/login", "//login", "/%6cogin", "/%6Cogin?x=%6c", "/log%69n#f", "///login"] {
            assert_eq!(canonical(path), "/login", "{path}");
        }
        // What would mean another path stays: an encoded `/`, `%` and all that is not plain.
        for path in ["/a%2Fb", "/a%25", "/%", "/%6", "/%zz", "/a%E9", "/login/"] {
            assert_eq!(canonical(path), path);
        }
    }
}
