//! The `tower` layer: who is asked, what is told, and what happens to a request that waits.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use http::request::Parts;
use http::response;
use tokio::sync::Semaphore;
use tower_layer::Layer;

use super::address::TrustedProxies;
use super::fields::Fields;
use super::refusal::Refusal;
use super::service::RateLimit;
use crate::policy::{PolicyLimiter, Query};

/// The address of whoever opened the connection, as an extension of the request.
///
/// A server that has no extension of its own for it inserts this one. With feature `axum` its `ConnectInfo` is read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// How long a leaky bucket may hold a request back, unless it is told otherwise.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// How many requests may be held back at a time, unless it is told otherwise.
const MAX_WAITING: usize = 1_024;

/// Puts a [`PolicyLimiter`] in front of a service: axum's, tonic's, hyper's, or any other of `tower`'s.
///
/// A refusal is a *response* and never an error, so the service keeps its error type. It needs a Tokio runtime with its timer.
///
/// ```
/// use std::sync::Arc;
/// use limiter::Memory;
/// use limiter::http::{RateLimitLayer, TrustedProxies};
/// use limiter::policy::{Policy, PolicyLimiter};
///
/// let policy = Policy::parse("[[rule]]\nname = \"all\"\nkey = \"ip\"\nlimit = \"100/1m sliding-log\"\n")?;
/// let layer = RateLimitLayer::new(PolicyLimiter::new(Arc::new(Memory::new()), policy))
///     .trusted_proxies(TrustedProxies::new(["10.0.0.0/8"])?)
///     .refund_if(|response| response.status.is_server_error());
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A client that hangs up while the store is asked may have been counted; one that hangs up while a leaky bucket holds it back gives
/// its place back.
///
/// # What a request tells
/// Its method, its path (with feature `axum` the route's pattern, where the layer stands inside the router), the headers that the
/// policy looks at, and the client's address: the peer's, or by [`trusted_proxies`](Self::trusted_proxies). Tenant and user are
/// told by [`identify`](Self::identify), after whoever authenticates: this layer belongs inside of that one.
#[derive(Clone)]
#[must_use]
pub struct RateLimitLayer {
    settings: Settings,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) limiter: PolicyLimiter,
    pub(super) fields: Fields,
    pub(super) refusal: Refusal,
    pub(super) refund_if: Option<Chosen>,
    pub(super) max_delay: Duration,
    pub(super) waiting: Arc<Semaphore>,
    pub(super) deadline: Option<Deadline>,
    proxies: Option<TrustedProxies>,
    identify: Option<Identify>,
}

pub(super) type Chosen = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;
type Deadline = Arc<dyn Fn(&Parts) -> Option<Duration> + Send + Sync>;
type Identify = Arc<dyn for<'a> Fn(&'a Parts, Query<'a>) -> Query<'a> + Send + Sync>;

impl RateLimitLayer {
    /// A layer that asks `limiter` about each request.
    pub fn new(limiter: PolicyLimiter) -> Self {
        Self {
            settings: Settings {
                limiter,
                fields: Fields::default(),
                refusal: Refusal::default(),
                refund_if: None,
                max_delay: MAX_DELAY,
                waiting: Arc::new(Semaphore::new(MAX_WAITING)),
                deadline: None,
                proxies: None,
                identify: None,
            },
        }
    }

    /// Believes these proxies about the client's address.
    pub fn trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.settings.proxies = Some(proxies);
        self
    }

    /// Tells more of a request, or other things: the tenant and the user that were authenticated, a cost, another address.
    ///
    /// ```
    /// # use limiter::http::RateLimitLayer;
    /// #[derive(Clone)]
    /// struct Account { tenant: String, id: u64 }
    ///
    /// # fn of(layer: RateLimitLayer) -> RateLimitLayer {
    /// layer.identify(|parts, query| match parts.extensions.get::<Account>() {
    ///     Some(account) => query.tenant(&account.tenant).user(account.id.to_string()),
    ///     None => query,
    /// })
    /// # }
    /// ```
    pub fn identify(
        mut self,
        identify: impl for<'a> Fn(&'a Parts, Query<'a>) -> Query<'a> + Send + Sync + 'static,
    ) -> Self {
        self.settings.identify = Some(Arc::new(identify));
        self
    }

    /// Which fields responses have.
    pub fn fields(mut self, fields: Fields) -> Self {
        self.settings.fields = fields;
        self
    }

    /// What refusals look like.
    pub fn refusal(mut self, refusal: Refusal) -> Self {
        self.settings.refusal = refusal;
        self
    }

    /// Gives back what a request was charged if its response is such: a 5xx, say, so that a failure does not count.
    ///
    /// It is given back before the response leaves, once, and not repeated if the store fails. Like the fields, it goes by the
    /// response's head: a body that breaks off later counts.
    pub fn refund_if(mut self, chosen: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.settings.refund_if = Some(Arc::new(chosen));
        self
    }

    /// How long a leaky bucket may hold a request back; 5 s if it is not said. What would wait longer is refused at once, and
    /// takes no place in the queue.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.settings.max_delay = delay;
        self
    }

    /// How many requests may be held back at a time, by all clones of this layer; 1,024 if it is not said. More are refused.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.settings.waiting = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
        self
    }

    /// How long a request's caller waits: no request is held back longer than that. gRPC's own deadline is read anyway.
    pub fn deadline(mut self, deadline: impl Fn(&Parts) -> Option<Duration> + Send + Sync + 'static) -> Self {
        self.settings.deadline = Some(Arc::new(deadline));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::new(self.settings.clone()))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateLimitLayer({:?})", self.limiter)
    }
}

impl Settings {
    /// What a request tells, put to the limiter.
    pub(super) fn ask<T>(&self, parts: &Parts, ask: impl FnOnce(&PolicyLimiter, &Query<'_>) -> T) -> T {
        let policy = self.limiter.policy();
        let mut query = Query::new().method(parts.method.as_str()).endpoint(endpoint(parts));
        let peer = peer(&parts.extensions);
        let client = match &self.proxies {
            Some(proxies) => proxies.client(peer, &parts.headers),
            None => peer,
        };
        if let Some(client) = client {
            query = query.address(client);
        }
        for name in policy.headers() {
            for value in parts.headers.get_all(&**name) {
                query = query.header(&**name, value.as_bytes());
            }
        }
        ask_identified(self.identify.as_ref(), parts, query, |query| ask(&self.limiter, query))
    }
}

/// The query's lifetime is shortened to what the closure may name.
fn ask_identified<'a, T>(
    identify: Option<&Identify>,
    parts: &'a Parts,
    query: Query<'a>,
    ask: impl FnOnce(&Query<'a>) -> T,
) -> T {
    match identify {
        Some(identify) => ask(&identify(parts, query)),
        None => ask(&query),
    }
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let told = extensions.get::<PeerAddress>().map(|peer| peer.0);
    #[cfg(feature = "axum")]
    let told = told.or_else(|| {
        let connected = extensions.get::<axum::extract::ConnectInfo<std::net::SocketAddr>>();
        connected.map(|peer| peer.0.ip())
    });
    #[cfg(feature = "tonic")]
    let told = told.or_else(|| {
        let connected = extensions.get::<tonic::transport::server::TcpConnectInfo>();
        connected.and_then(tonic::transport::server::TcpConnectInfo::remote_addr).map(|peer| peer.ip())
    });
    told
}

/// The route's pattern, if the router has told it, else the path.
fn endpoint(parts: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(route) = parts.extensions.get::<axum::extract::MatchedPath>() {
        return route.as_str();
    }
    parts.uri.path()
}
