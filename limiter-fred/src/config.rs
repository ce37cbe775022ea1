//! Where the server is, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use fred::types::config::{Config as FredConfig, Server, ServerConfig};
use limiter_core::Error;
use limiter_core::script::{Address, Node, Together};

use crate::error::refused;

/// How to reach the server. Its `Debug` output shows no user, no password and no URL.
#[derive(Clone)]
pub struct Config {
    /// How to speak to a server that holds keys. Of a cluster, each node's address takes the place of the one that is in it.
    pub(crate) fred: FredConfig,
    /// Some nodes of a cluster; none: it is none.
    pub(crate) seeds: Vec<Node>,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) root_certificate: Option<Vec<u8>>,
}

impl Config {
    /// Of a URL:
    ///
    /// | form | what it is |
    /// | --- | --- |
    /// | `redis://[user][:password@]host[:port][/database]` | a single server |
    /// | `redis+unix:///path` | the same, by its socket |
    /// | `redis-sentinel://[user][:password@]host[:port],…[/database]?service=NAME` | the primary that these sentinels know by that name; `&sentinelUsername=…&sentinelPassword=…` are for the sentinels themselves |
    /// | `redis-cluster://[user][:password@]host[:port],…` | the cluster that these are nodes of |
    ///
    /// `rediss` in place of `redis` means TLS (feature `tls`), to sentinels too. Special characters of a password are percent-encoded.
    /// More hosts may also be given as fred has it, by `node=host:port`, and the service as `sentinelServiceName`.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused), if it can't be read or this build has no TLS. The URL is
    /// not repeated.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let tls = ["rediss:", "rediss-", "valkeys:"].iter().any(|scheme| url.starts_with(scheme));
        if tls {
            ready_for_tls()?;
        }
        if let Some(address) = Address::of_url(url) {
            return Self::of_address(&address.map_err(refused)?);
        }
        // Checked here, since the driver takes an unknown scheme for this one.
        let known = ["redis://", "rediss://", "valkey://", "valkeys://", "redis+unix://"];
        let parsed =
            if known.iter().any(|scheme| url.starts_with(scheme)) { FredConfig::from_url(url).ok() } else { None };
        let fred = parsed.ok_or_else(|| {
            refused("the URL is not of the form redis://[user][:password@]host[:port][/database] or redis+unix:///path")
        })?;
        Ok(Self::of_fred(fred, Vec::new()))
    }

    fn of_address(address: &Address) -> Result<Self, Error> {
        let hosts = || address.hosts.iter().map(|(host, port)| Server::new(host.as_str(), *port));
        let mut fred = FredConfig {
            username: address.user.clone(),
            password: address.password.clone(),
            database: Some(address.database).filter(|number| *number != 0),
            ..FredConfig::default()
        };
        set_tls(&mut fred, address.tls)?;
        let seeds = match &address.together {
            Together::Sentinel { service, user, password } => {
                fred.server = ServerConfig::Sentinel {
                    hosts: hosts().collect(),
                    service_name: service.clone(),
                    username: user.clone(),
                    password: password.clone(),
                };
                Vec::new()
            }
            Together::Cluster => address.hosts.clone(),
            _ => return Err(refused("servers that work together in another way")),
        };
        Ok(Self::of_fred(fred, seeds))
    }

    fn of_fred(mut fred: FredConfig, seeds: Vec<Node>) -> Self {
        // A call while there is no connection fails, rather than to wait in a queue.
        fred.fail_fast = true;
        Self {
            fred,
            seeds,
            connect_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_millis(500),
            #[cfg(feature = "tls")]
            root_certificate: None,
        }
    }

    /// How to reach a node of the cluster.
    pub(crate) fn of_node(&self, (host, port): &Node) -> FredConfig {
        FredConfig {
            server: ServerConfig::Centralized { server: Server::new(host.as_str(), *port) },
            ..self.fred.clone()
        }
    }

    /// The longest that connecting may take, by default 1 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The longest that a call may take, by default 500 ms: then its outcome is *unknown*.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// The certificate (PEM) that the server's has to be signed by, in place of those that the system trusts.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificate = Some(pem.into());
        self
    }
}

#[cfg(not(feature = "tls"))]
fn ready_for_tls() -> Result<(), Error> {
    Err(refused("this build has no TLS: the feature `tls` brings it"))
}

/// The driver asks rustls for the process's provider, and panics if there is none or a choice. One that is installed stays.
#[cfg(feature = "tls")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it fails")]
fn ready_for_tls() -> Result<(), Error> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn set_tls(_fred: &mut FredConfig, tls: bool) -> Result<(), Error> {
    if tls { ready_for_tls() } else { Ok(()) }
}

/// The certificates that the system trusts.
#[cfg(feature = "tls")]
fn set_tls(fred: &mut FredConfig, tls: bool) -> Result<(), Error> {
    if tls {
        let connector = fred::types::config::TlsConnector::default_rustls();
        fred.tls =
            Some(connector.map_err(|_| refused("the certificates that the system trusts can't be read"))?.into());
    }
    Ok(())
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("tls", &self.fred.uses_tls())
            .field("cluster", &!self.seeds.is_empty())
            .field("database", &self.fred.database.unwrap_or_default())
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}
