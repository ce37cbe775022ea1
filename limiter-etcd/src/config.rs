//! Where the cluster is, and how long to wait for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Clock, Error, SystemClock};

use crate::error::refused;

/// The port that an address without one means.
const PORT: &str = "2379";
/// The most operations in one transaction that a server takes, unless it was told otherwise.
const SERVER_OPS: usize = 128;

/// How to reach the cluster. Its `Debug` output shows no user, no password and no address.
#[derive(Clone)]
pub struct Config {
    /// Each member as a URL.
    pub(crate) endpoints: Vec<String>,
    pub(crate) user: Option<(String, String)>,
    pub(crate) prefix: Arc<str>,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) max_keys_per_txn: usize,
    pub(crate) max_in_flight: usize,
    pub(crate) max_waiting: usize,
    pub(crate) max_attempts: u32,
    pub(crate) cached_keys: usize,
    pub(crate) margin: Duration,
    pub(crate) skew: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    #[cfg(feature = "tls")]
    pub(crate) root_certificate: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Config {
    /// Of a URL: `etcd://[user:password@]host[:port][,host[:port]…]`, or `etcds://` for TLS (feature `tls`). Special characters
    /// of a user or a password are percent-encoded. Name all members: the next is asked where one fails.
    ///
    /// `?prefix=limits/` is where the keys lie (by default `limiter/`); `&max-txn-ops=64` how many keys go into one transaction at
    /// most.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused), if it can't be read or this build has no TLS. The URL is
    /// not repeated.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let form =
            || refused("the URL is not of the form etcd://[user:password@]host[:port][,host[:port]…][?prefix=…]");
        let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
        let http = match scheme {
            "etcd" => "http",
            "etcds" if cfg!(feature = "tls") => "https",
            "etcds" => return Err(refused("this build has no TLS: the feature `tls` brings it")),
            _ => return Err(form()),
        };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let address = address.strip_suffix('/').unwrap_or(address);
        let (user, hosts) = match address.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, address),
        };
        let user = match user.map(|user| user.split_once(':')) {
            Some(Some((name, password))) => {
                Some((decoded(name).ok_or_else(form)?, decoded(password).ok_or_else(form)?))
            }
            Some(None) => return Err(refused("the URL names a user without a password")),
            None => None,
        };
        let endpoints = hosts.split(',').map(|host| Some(format!("{http}://{}", with_port(host)?)));
        let mut config = Self {
            endpoints: endpoints.collect::<Option<_>>().ok_or_else(form)?,
            user,
            prefix: "limiter/".into(),
            connect_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_secs(1),
            max_keys_per_txn: SERVER_OPS / 2,
            max_in_flight: 4,
            max_waiting: 1 << 15,
            max_attempts: 128,
            cached_keys: 1 << 16,
            margin: Duration::from_secs(60),
            skew: Duration::from_secs(1),
            clock: Arc::new(SystemClock),
            #[cfg(feature = "tls")]
            root_certificate: None,
            #[cfg(feature = "tls")]
            identity: None,
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("prefix", prefix)) => config.prefix = decoded(prefix).ok_or_else(form)?.into(),
                Some(("max-txn-ops", ops)) => {
                    let ops = ops.parse().map_err(|_| refused("the URL's `max-txn-ops` is not a whole number"))?;
                    config = config.max_keys_per_txn(ops);
                }
                _ => return Err(refused("the URL has an option that is not one of `prefix` and `max-txn-ops`")),
            }
        }
        Ok(config)
    }

    /// The longest that connecting to one member may take, by default 1 s. A call that has to connect waits no longer than its
    /// own timeout.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The longest that a call may take, by default 1 s, waiting for its turn and all attempts included. Half of it is the
    /// longest that one answer of a server is waited for.
    ///
    /// A cluster that loses its leader has another after its election timeout, by default another second: a call that is to
    /// outlast this needs 3 s.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// What all keys begin with, by default `limiter/`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The most keys in one transaction, by default 64; at least 1. A server takes 128 operations of each kind unless
    /// `--max-txn-ops` says otherwise, and a request of more checks than that can't be decided in one step. If the server
    /// takes fewer than are sent, that is noticed, and fewer are sent from then on.
    #[must_use]
    pub fn max_keys_per_txn(mut self, keys: usize) -> Self {
        self.max_keys_per_txn = keys.max(1);
        self
    }

    /// The most transactions on their way at a time, those that are tried again not counted, by default 4. A second one is only
    /// sent while the first is on its way if it is full.
    #[must_use]
    pub fn max_in_flight(mut self, transactions: usize) -> Self {
        self.max_in_flight = transactions.max(1);
        self
    }

    /// The most requests that wait for their turn in this process, by default 2^15: more are refused at once, with an error of kind
    /// [`ErrorKind::Overloaded`](limiter_core::ErrorKind::Overloaded).
    #[must_use]
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// How often a transaction is tried while other nodes are quicker, by default 128 times; then the outcome is an error of kind
    /// [`ErrorKind::Contended`](limiter_core::ErrorKind::Contended).
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// How many keys' states are remembered in this process, by default 2^16 (some 15 MB; long logs count for several). A key that
    /// is remembered is decided in one round trip.
    #[must_use]
    pub fn cached_keys(mut self, keys: usize) -> Self {
        self.cached_keys = keys;
        self
    }

    /// How long a stored key outlives its state at least, by default 1 min: more than the nodes' clocks may be apart, or go back.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// How far a state may be ahead of this node's clock before there is a warning (by `tracing`), by default 1 s.
    #[must_use]
    pub fn max_skew(mut self, skew: Duration) -> Self {
        self.skew = skew;
        self
    }

    /// The clock that decides, by default the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The certificate (PEM) that the servers' have to be signed by, in place of the usual authorities.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificate = Some(pem.into());
        self
    }

    /// The certificate and the key (PEM) that the servers know this client by.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("members", &self.endpoints.len())
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}

/// The address with its port; None if it is none.
fn with_port(host: &str) -> Option<String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(valid) {
        return None;
    }
    // The colons of an IPv6 address stand in brackets.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, PORT),
    };
    let bracketed = name.starts_with('[') && name.ends_with(']');
    if name.is_empty() || (name.contains(':') && !bracketed) || port.parse::<u16>().is_err() {
        return None;
    }
    Some(format!("{name}:{port}"))
}

/// The text with its `%XX` replaced.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, left)) = rest.split_first() {
        rest = left;
        if *byte == b'%' {
            let ([high, low], left) = left.split_first_chunk()?;
            let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            bytes.push(digit(high)? << 4 | digit(low)?);
            rest = left;
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_members_a_user_and_options() {
        let config = Config::from_url("etcd://10.0.0.1:2379,etcd-2,[::1]:99,[::1]").unwrap();
        let members = ["http://10.0.0.1:2379", "http://etcd-2:2379", "http://[::1]:99", "http://[::1]:2379"];
        assert_eq!(config.endpoints, members);
        assert_eq!((config.user, &*config.prefix), (None, "limiter/"));
        let config = Config::from_url("etcd://me:p%40ss%2f%3A@host/?prefix=a%2F&max-txn-ops=7").unwrap();
        assert_eq!(config.user, Some(("me".to_owned(), "p@ss/:".to_owned())));
        assert_eq!((&*config.prefix, config.max_keys_per_txn), ("a/", 7));
    }

    #[test]
    fn what_is_no_url_is_refused_and_not_repeated() {
        for url in [
            "",
            "etcd",
            "etcd:",
            "etcd://",
            "etcd://secret,",
            "etcd://secret:port",
            "etcd://::1",
            "etcd://:2379",
            "etcd://me@secret",
            "etcd://me:%zz@secret",
            "etcd://me:%f@secret",
            "etcd://secret/path",
            "etcd://secret?lease=1",
            "etcd://secret?max-txn-ops=many",
            "http://secret",
        ] {
            let error = Config::from_url(url).unwrap_err().to_string();
            assert!(error.starts_with("etcd: refused: ") && !error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn a_config_shows_no_secret() {
        let config = Config::from_url("etcd://somebody:secret@address").unwrap();
        let shown = format!("{config:?}");
        assert!(["somebody", "secret", "address"].iter().all(|word| !shown.contains(word)), "{shown}");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_build_without_tls_says_so() {
        assert!(Config::from_url("etcds://host").unwrap_err().to_string().contains("feature `tls`"));
    }
}
