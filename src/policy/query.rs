//! What a policy is asked: who sends what, as the caller knows it.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// A request as the rules see it: whose it is, where it goes, and what it costs.
///
/// What is not told is missing, and each rule says what that means ([`Missing`](super::Missing)). Values are bytes: nothing that a
/// client sends has to be text, and none of it can turn into an error of the store.
///
/// ```
/// use limiter::policy::Query;
///
/// let query = Query::new().tenant("acme").user("42").method("POST").endpoint("/login").address([192, 0, 2, 1]);
/// # let _ = query;
/// ```
#[derive(Clone, Default)]
#[must_use = "a query asks nothing until it is given to a limiter"]
pub struct Query<'a> {
    pub(super) tenant: Option<Value<'a>>,
    pub(super) user: Option<Value<'a>>,
    pub(super) plan: Option<Value<'a>>,
    pub(super) endpoint: Option<Value<'a>>,
    pub(super) method: Option<Value<'a>>,
    pub(super) address: Option<IpAddr>,
    pub(super) headers: Vec<(Value<'a>, Option<Value<'a>>)>,
    pub(super) cost: Option<u64>,
}

impl<'a> Query<'a> {
    /// A request of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whose quota it is. Name only who is verified: a tenant that anybody can claim is a quota that anybody can burn.
    pub fn tenant(mut self, tenant: impl Into<Value<'a>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Who sends it, as verified.
    pub fn user(mut self, user: impl Into<Value<'a>>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The plan of the tenant, for one that the policy does not list.
    pub fn plan(mut self, plan: impl Into<Value<'a>>) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// Where it goes: a path, or better the route's pattern.
    pub fn endpoint(mut self, endpoint: impl Into<Value<'a>>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// The HTTP method, or what stands for it.
    pub fn method(mut self, method: impl Into<Value<'a>>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// The client's address. An IPv4 address that is mapped into IPv6 is that IPv4 address.
    pub fn address(mut self, address: impl Into<IpAddr>) -> Self {
        self.address = Some(address.into().to_canonical());
        self
    }

    /// A header that a rule asks for, by its name in lower case. One that is told twice is as good as missing: which of the
    /// two names the client would be anybody's guess, and a client's choice.
    pub fn header(mut self, name: impl Into<Value<'a>>, value: impl Into<Value<'a>>) -> Self {
        let (name, value) = (name.into(), value.into());
        if let Some((_, known)) = self.headers.iter_mut().find(|(known, _)| known.bytes() == name.bytes()) {
            *known = None;
        } else {
            self.headers.push((name, Some(value)));
        }
        self
    }

    /// What it costs, over what the policy says of its endpoint.
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = Some(units);
        self
    }

    pub(super) fn header_value(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.headers.iter().find(|(known, _)| known.bytes() == name.as_bytes())?;
        value.as_ref().map(Value::bytes)
    }
}

impl fmt::Debug for Query<'_> {
    /// Says what is told, and not what it is: it may identify somebody.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("tenant", &self.tenant.is_some())
            .field("user", &self.user.is_some())
            .field("address", &self.address.is_some())
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// Bytes, borrowed or owned.
#[derive(Clone)]
pub struct Value<'a>(Cow<'a, [u8]>);

impl Value<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Cow::Owned(bytes))
    }
}

impl<'a> From<Cow<'a, str>> for Value<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }
    }
}
