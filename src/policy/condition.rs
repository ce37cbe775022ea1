//! When a rule applies: patterns over the fields of a request.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::query::Query;
use super::recipe::header_name;

/// A text in which `*` stands for any run of characters, also none, also with `/` in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern(Arc<str>);

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// How much of it is told: the more, the closer the pattern.
    pub(super) fn weight(&self) -> usize {
        self.0.bytes().filter(|byte| *byte != b'*').count()
    }

    /// Linear in the text for each `*`: the last `*` is the only one that ever has to move.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let pattern = self.0.as_bytes();
        let (mut at, mut from) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        loop {
            match (pattern.get(at), text.get(from)) {
                (None, None) => return true,
                (Some(b'*'), _) => {
                    star = Some((at + 1, from));
                    at += 1;
                }
                (Some(wanted), Some(found)) if wanted == found => {
                    at += 1;
                    from += 1;
                }
                (_, None) => return false,
                (_, Some(_)) => match &mut star {
                    Some((after, eaten)) => {
                        *eaten += 1;
                        (at, from) = (*after, *eaten);
                    }
                    None => return false,
                },
            }
        }
    }
}

/// A field that a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Looked {
    Tenant,
    User,
    Plan,
    Method,
    Endpoint,
    Ip,
    Header(Arc<str>),
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant => f.write_str("tenant"),
            Self::User => f.write_str("user"),
            Self::Plan => f.write_str("plan"),
            Self::Method => f.write_str("method"),
            Self::Endpoint => f.write_str("endpoint"),
            Self::Ip => f.write_str("ip"),
            Self::Header(name) => write!(f, "header.{name}"),
        }
    }
}

/// Values of one field, any of which will do.
#[derive(Clone, Debug)]
enum Wanted {
    Text(Vec<Pattern>),
    Networks(Vec<IpNet>),
}

/// Fields and what they may be. A field that a request does not tell is nothing, and meets no pattern.
#[derive(Clone, Debug, Default)]
pub struct Condition(Vec<(Looked, Wanted)>);

impl Condition {
    /// No field: it is met by every request as `when`, and by none as a list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One of these values for a field: `tenant`, `user`, `plan`, `method`, `endpoint` and `header.NAME` with `*` for any run of
    /// characters, `ip` as addresses or networks (`10.0.0.0/8`).
    ///
    /// # Errors
    /// What is wrong with the field or a value.
    pub fn any_of<'t>(
        mut self,
        field: &str,
        values: impl IntoIterator<Item = &'t str>,
    ) -> Result<Self, ConditionError> {
        self.push(field, values).map_err(ConditionError)?;
        Ok(self)
    }

    pub(super) fn push<'t>(&mut self, field: &str, values: impl IntoIterator<Item = &'t str>) -> Result<(), String> {
        let looked = match field {
            "tenant" => Looked::Tenant,
            "user" => Looked::User,
            "plan" => Looked::Plan,
            "method" => Looked::Method,
            "endpoint" => Looked::Endpoint,
            "ip" => Looked::Ip,
            _ => match field.split_once('.') {
                Some(("header", name)) => Looked::Header(header_name(name)?),
                _ => {
                    return Err(format!(
                        "unknown field `{}`: tenant, user, plan, method, endpoint, ip and header.NAME are known",
                        field.escape_debug()
                    ));
                }
            },
        };
        if self.0.iter().any(|(known, _)| *known == looked) {
            return Err(format!("`{looked}` is there twice"));
        }
        let wanted = if looked == Looked::Ip {
            let networks: Result<Vec<IpNet>, String> = values.into_iter().map(network).collect();
            Wanted::Networks(networks?)
        } else {
            Wanted::Text(values.into_iter().map(Pattern::new).collect())
        };
        if matches!(&wanted, Wanted::Text(list) if list.is_empty())
            || matches!(&wanted, Wanted::Networks(list) if list.is_empty())
        {
            return Err(format!("`{looked}` has no value: a list without one is met by nothing"));
        }
        self.0.push((looked, wanted));
        Ok(())
    }

    /// Whether nothing is asked.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all fields are as wanted.
    pub(super) fn all(&self, query: &Query<'_>, plan: Option<&str>, endpoint: Option<&[u8]>) -> bool {
        self.0.iter().all(|(looked, wanted)| meets(looked, wanted, query, plan, endpoint))
    }

    /// Whether a field is as wanted; the first that is.
    pub(super) fn any(&self, query: &Query<'_>, plan: Option<&str>, endpoint: Option<&[u8]>) -> Option<String> {
        let met = self.0.iter().find(|(looked, wanted)| meets(looked, wanted, query, plan, endpoint));
        met.map(|(looked, _)| looked.to_string())
    }

    /// The headers that are looked at.
    pub(super) fn headers(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().filter_map(|(looked, _)| match looked {
            Looked::Header(name) => Some(name),
            _ => None,
        })
    }

    /// The plans that are named.
    pub(super) fn plans(&self) -> impl Iterator<Item = &str> {
        let plans = self.0.iter().filter(|(looked, _)| *looked == Looked::Plan);
        plans.flat_map(|(_, wanted)| match wanted {
            Wanted::Text(patterns) => patterns.iter().map(Pattern::as_str).collect::<Vec<_>>(),
            Wanted::Networks(_) => Vec::new(),
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (looked, wanted)) in self.0.iter().enumerate() {
            let values: Vec<String> = match wanted {
                Wanted::Text(patterns) => patterns.iter().map(|pattern| pattern.0.escape_debug().to_string()).collect(),
                Wanted::Networks(networks) => networks.iter().map(ToString::to_string).collect(),
            };
            write!(f, "{}{looked} is {}", if index == 0 { "" } else { " and " }, values.join(" or "))?;
        }
        Ok(())
    }
}

fn meets(looked: &Looked, wanted: &Wanted, query: &Query<'_>, plan: Option<&str>, endpoint: Option<&[u8]>) -> bool {
    let value = match looked {
        Looked::Tenant => query.tenant.as_ref().map(super::query::Value::bytes),
        Looked::User => query.user.as_ref().map(super::query::Value::bytes),
        Looked::Method => query.method.as_ref().map(super::query::Value::bytes),
        Looked::Header(name) => query.header_value(name),
        Looked::Plan => plan.map(str::as_bytes),
        Looked::Endpoint => endpoint,
        Looked::Ip => {
            return query.address.is_some_and(|address| match wanted {
                Wanted::Networks(networks) => networks.iter().any(|network| network.contains(&address)),
                Wanted::Text(_) => false,
            });
        }
    };
    match (value, wanted) {
        (Some(value), Wanted::Text(patterns)) => patterns.iter().any(|pattern| pattern.matches(value)),
        _ => false,
    }
}

/// A network, or one address as the network of itself; mapped IPv4 as what it is.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let wrong =
        || format!("`{}` is no address and no network", text.chars().take(64).collect::<String>().escape_debug());
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let network: IpNet = text.parse().map_err(|_| wrong())?;
    match network {
        IpNet::V6(net) if net.prefix_len() >= 96 => match net.addr().to_ipv4_mapped() {
            Some(address) => ipnet::Ipv4Net::new(address, net.prefix_len() - 96).map(IpNet::V4).map_err(|_| wrong()),
            None => Ok(network.trunc()),
        },
        _ => Ok(network.trunc()),
    }
}

/// A condition that can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConditionError(String);

#[cfg(feature = "http")]
impl ConditionError {
    pub(crate) const fn new(message: String) -> Self {
        Self(message)
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Pattern, network};
    use crate::policy::Query;

    #[test]
    fn a_star_is_any_run() {
        let matches = |pattern: &str, text: &str| Pattern::new(pattern).matches(text.as_bytes());
        for (pattern, text) in
            [("*", ""), ("/a/*", "/a/"), ("/a/*/c", "/a/b/x/c"), ("*b*b", "abab"), ("a**", "a"), ("", "")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("/a/*", "/a"), ("*b", "aba"), ("a", "A"), ("a*c", "ab")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        // The bad case of a matcher that goes back over every star.
        assert!(!matches(&"a*".repeat(30), &format!("{}b", "b".repeat(100_000))));
        assert!(!matches(&format!("{}c", "a*".repeat(30)), &"a".repeat(100_000)));
    }

    #[test]
    fn a_network_holds_mapped_addresses() {
        let condition = Condition::new().any_of("ip", ["::ffff:10.0.0.0/104", "2001:db8::/32"]).unwrap();
        let met = |address: &str| {
            let address: std::net::IpAddr = address.parse().unwrap();
            condition.all(&Query::new().address(address), None, None)
        };
        assert!(met("10.1.2.3") && met("::ffff:10.1.2.3") && met("2001:db8:9::1"));
        assert!(!met("11.0.0.1") && !met("2001:db9::1"));
        assert!(!condition.all(&Query::new(), None, None));
        assert_eq!(network("10.0.0.1/33").unwrap_err(), "`10.0.0.1/33` is no address and no network");
        assert_eq!(network("\u{1b}[2J").unwrap_err(), "`\\u{1b}[2J` is no address and no network");
    }
}
