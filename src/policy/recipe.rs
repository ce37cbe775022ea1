//! By what a rule counts: the fields of its key, and the key that a query gives.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use limiter_core::Key;

use super::query::Query;

/// A field of a request by which a rule can count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Field {
    /// The tenant.
    Tenant,
    /// The user.
    User,
    /// The client's address; IPv6 by its network ([`PolicyBuilder::ipv6_prefix`](super::PolicyBuilder::ipv6_prefix)).
    Ip,
    /// A header, by its name in lower case.
    Header(Arc<str>),
    /// The HTTP method.
    Method,
    /// The endpoint: the pattern of the policy's endpoints that the path meets.
    Endpoint,
}

impl Field {
    fn read(text: &str) -> Result<Self, String> {
        Ok(match text {
            "tenant" => Self::Tenant,
            "user" => Self::User,
            "ip" => Self::Ip,
            "method" => Self::Method,
            "endpoint" => Self::Endpoint,
            "global" => return Err("`global` is the whole key: it can't be combined".to_owned()),
            _ => match text.split_once(':') {
                Some(("header", name)) => Self::Header(header_name(name)?),
                _ => {
                    return Err(format!(
                        "unknown field `{}`: tenant, user, ip, method, endpoint, header:NAME and global are known",
                        text.escape_debug()
                    ));
                }
            },
        })
    }

    /// The tag that keeps a user `x` from being a tenant `x`.
    fn tag(&self) -> &'static [u8] {
        match self {
            Self::Tenant => b"t=",
            Self::User => b"u=",
            Self::Ip => b"i=",
            Self::Header(_) => b"h=",
            Self::Method => b"m=",
            Self::Endpoint => b"e=",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant => f.write_str("tenant"),
            Self::User => f.write_str("user"),
            Self::Ip => f.write_str("ip"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Method => f.write_str("method"),
            Self::Endpoint => f.write_str("endpoint"),
        }
    }
}

/// A header's name as HTTP allows it, in lower case.
pub(super) fn header_name(name: &str) -> Result<Arc<str>, String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(token) {
        return Err(format!("`{}` is no name of a header", name.chars().take(64).collect::<String>().escape_debug()));
    }
    Ok(name.to_ascii_lowercase().into())
}

/// The fields of a rule's key; none of them is one key for all.
///
/// It is written as the fields with commas between them, or `global`.
///
/// ```
/// use limiter::policy::Recipe;
///
/// let recipe: Recipe = "user,tenant".parse()?;
/// assert_eq!(recipe.to_string(), "tenant,user");
/// # Ok::<(), limiter::policy::RecipeError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe(Vec<Field>);

/// A recipe that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecipeError(String);

impl FromStr for Recipe {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, RecipeError> {
        if text.trim() == "global" {
            return Ok(Self::default());
        }
        Self::of(text.split(',').map(str::trim)).map_err(RecipeError)
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("global");
        }
        for (index, field) in self.0.iter().enumerate() {
            write!(f, "{}{field}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Recipe {
    /// Fields in any order give one recipe: the tenant first, since the first field is the key's scope.
    pub(super) fn of<'t>(names: impl IntoIterator<Item = &'t str>) -> Result<Self, String> {
        let mut fields = Vec::new();
        for name in names {
            let field = Field::read(name)?;
            if fields.contains(&field) {
                return Err(format!("`{field}` is in the key twice"));
            }
            fields.push(field);
        }
        fields.sort();
        Ok(Self(fields))
    }

    /// The fields, the widest first.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.0
    }

    /// What counts many requests under one key comes before what counts few.
    pub(super) fn rank(&self) -> usize {
        let narrow = |field: &Field| match field {
            Field::Tenant => 1,
            Field::Method => 2,
            Field::User | Field::Ip | Field::Header(_) => 8,
            Field::Endpoint => 16,
        };
        self.0.iter().map(narrow).sum()
    }

    /// The key of a query under rule `rule`, or the first field that the query does not tell.
    ///
    /// The first field is the scope, so that on a Redis Cluster all limits of one tenant lie together. Every part carries the tag
    /// of its field: a rule that counts by something else after a reload never meets the keys from before.
    pub(super) fn key(&self, rule: &str, query: &Query<'_>, parts: &Parts<'_>) -> Result<Key, &Field> {
        let mut values: Vec<Vec<u8>> = Vec::new();
        for field in &self.0 {
            let value = parts.value(field, query).ok_or(field)?;
            let mut tagged = field.tag().to_vec();
            if let Field::Header(name) = field {
                tagged.extend_from_slice(name.as_bytes());
                tagged.push(b'=');
            }
            tagged.extend_from_slice(&value);
            values.push(tagged);
        }
        let (scope, rest) = match values.split_first() {
            Some((scope, rest)) => (scope.as_slice(), rest),
            None => (&[][..], &[][..]),
        };
        Ok(Key::new(scope, rule, rest))
    }
}

/// The key of what does not tell the fields of rule `rule`: by address if there is one, else one for all.
///
/// No field has its tag, so it is nobody's own key.
pub(super) fn anonymous(rule: &str, network: Option<&str>) -> Key {
    match network {
        Some(network) => Key::new(format!("?={network}"), rule, [[]; 0]),
        None => Key::new("?", rule, [[]; 0]),
    }
}

/// What the policy makes of a query before keys are built.
pub(super) struct Parts<'a> {
    /// The pattern that the endpoint meets.
    pub(super) endpoint: Option<&'a [u8]>,
    /// The address, or its network.
    pub(super) network: Option<String>,
}

impl Parts<'_> {
    fn value<'q>(&'q self, field: &Field, query: &'q Query<'_>) -> Option<std::borrow::Cow<'q, [u8]>> {
        match field {
            Field::Tenant => query.tenant.as_ref().map(|value| value.bytes().into()),
            Field::User => query.user.as_ref().map(|value| value.bytes().into()),
            Field::Ip => self.network.as_ref().map(|network| network.as_bytes().into()),
            Field::Header(name) => query.header_value(name).map(Into::into),
            Field::Method => query.method.as_ref().map(|value| value.bytes().into()),
            Field::Endpoint => self.endpoint.map(Into::into),
        }
    }
}

/// An address as it is counted: IPv4 by itself, IPv6 by its network, since a client has as many addresses as it likes in it.
pub(super) fn network(address: IpAddr, ipv6_prefix: u8) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => match ipnet::Ipv6Net::new(address, ipv6_prefix) {
            Ok(network) => network.trunc().to_string(),
            // The prefix is checked when the policy is built.
            Err(_) => address.to_string(),
        },
    }
}
