//! Where the server is, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use limiter_core::script::{Address, Node, Together};
use limiter_core::{Error, ErrorKind};
use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::ENGINE;

/// How to reach the server. Its `Debug` output shows no user, no password and no URL.
#[derive(Clone)]
pub struct Config {
    /// Of the servers that hold keys. Only of a single one is the address the right one already.
    pub(crate) info: ConnectionInfo,
    pub(crate) road: Road,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) root_certificate: Option<Vec<u8>>,
}

/// The way to the server that holds a key.
#[derive(Clone)]
pub(crate) enum Road {
    Single,
    /// Sentinels, and the name by which they know the primary.
    Sentinels {
        all: Vec<ConnectionInfo>,
        service: String,
    },
    /// Some nodes of a cluster.
    Cluster(Vec<Node>),
}

impl Config {
    /// Of a URL:
    ///
    /// | form | what it is |
    /// | --- | --- |
    /// | `redis://[user][:password@]host[:port][/database]` | a single server |
    /// | `redis+unix:///path[?db=N&user=…&pass=…]` | the same, by its socket |
    /// | `redis-sentinel://[user][:password@]host[:port],…[/database]?service=NAME` | the primary that these sentinels know by that name; `&sentinelUsername=…&sentinelPassword=…` are for the sentinels themselves |
    /// | `redis-cluster://[user][:password@]host[:port],…` | the cluster that these are nodes of |
    ///
    /// `rediss` in place of `redis` means TLS (feature `tls`), to sentinels too. Special characters of a password are percent-encoded.
    /// `?protocol=resp2` is for a proxy that knows no RESP3: then a connection that was closed is noticed by the next call
    /// only, whose outcome is *unknown*.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`], if it can't be read or this build has no TLS. The URL is not repeated.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let unusable = |message: &'static str| Error::new(ENGINE, ErrorKind::Refused, message);
        if cfg!(not(feature = "tls")) && ["rediss:", "rediss-", "valkeys:"].iter().any(|tls| url.starts_with(tls)) {
            return Err(unusable("this build has no TLS: the feature `tls` brings it"));
        }
        if let Some(address) = Address::of_url(url) {
            return Self::of_address(address.map_err(unusable)?);
        }
        let info = url.into_connection_info().map_err(|_| {
            unusable(
                "the URL is not of the form redis://[user][:password@]host[:port][/database] or redis+unix:///path",
            )
        })?;
        if info.redis_settings().db() < 0 {
            return Err(unusable("the URL's database number is below 0"));
        }
        let mut redis = info.redis_settings().clone().set_skip_set_lib_name();
        if !url.contains("protocol=resp2") && !url.contains("protocol=2") {
            redis = redis.set_protocol(ProtocolVersion::RESP3);
        }
        Ok(Self::of_info(info.set_redis_settings(redis), Road::Single))
    }

    fn of_address(address: Address) -> Result<Self, Error> {
        let Address { tls, hosts, .. } = &address;
        let credentials = |user: &Option<String>, password: &Option<String>| {
            let redis = RedisConnectionInfo::default().set_skip_set_lib_name();
            let redis = user.iter().fold(redis, RedisConnectionInfo::set_username);
            password.iter().fold(redis, RedisConnectionInfo::set_password)
        };
        let mut redis = credentials(&address.user, &address.password).set_db(i64::from(address.database));
        if !address.resp2 {
            redis = redis.set_protocol(ProtocolVersion::RESP3);
        }
        let mut infos = Vec::with_capacity(hosts.len());
        for host in hosts {
            let info = addr(*tls, host).into_connection_info();
            infos.push(info.map_err(|_| Error::new(ENGINE, ErrorKind::Refused, "the URL's hosts can't be used"))?);
        }
        let Some(info) = infos.first().cloned().map(|info| info.set_redis_settings(redis)) else {
            return Err(Error::new(ENGINE, ErrorKind::Refused, "the URL names no host"));
        };
        let road = match address.together {
            Together::Sentinel { service, user, password } => {
                let redis = credentials(&user, &password);
                let all = infos.into_iter().map(|info| with_nodelay(info.set_redis_settings(redis.clone())));
                Road::Sentinels { all: all.collect(), service }
            }
            Together::Cluster => Road::Cluster(address.hosts),
            _ => return Err(Error::new(ENGINE, ErrorKind::Refused, "servers that work together in another way")),
        };
        Ok(Self::of_info(info, road))
    }

    fn of_info(info: ConnectionInfo, road: Road) -> Self {
        Self {
            info: with_nodelay(info),
            road,
            connect_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_millis(500),
            #[cfg(feature = "tls")]
            root_certificate: None,
        }
    }

    /// How to reach another server in the same way.
    pub(crate) fn info_of(&self, node: &Node) -> ConnectionInfo {
        let tls = matches!(self.info.addr(), ConnectionAddr::TcpTls { .. });
        self.info.clone().set_addr(addr(tls, node))
    }

    /// The longest that connecting may take, by default 1 s. A call that has to connect waits no longer than its own timeout.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The longest that a call may take, by default 500 ms: then its outcome is *unknown*, or *not sent* if there was no
    /// connection yet.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// The certificate (PEM) that the server's has to be signed by, in place of the usual authorities.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificate = Some(pem.into());
        self
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let road = match self.info.addr() {
            ConnectionAddr::Tcp(..) => "tcp",
            ConnectionAddr::TcpTls { .. } => "tls",
            ConnectionAddr::Unix(_) => "unix",
            _ => "other",
        };
        let servers = match &self.road {
            Road::Single => "single",
            Road::Sentinels { .. } => "sentinels",
            Road::Cluster(_) => "cluster",
        };
        f.debug_struct("Config")
            .field("road", &road)
            .field("servers", &servers)
            .field("database", &self.info.redis_settings().db())
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}

fn addr(tls: bool, (host, port): &Node) -> ConnectionAddr {
    if tls {
        ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host.clone(), *port)
    }
}

/// Small calls that each wait for their answer: Nagle's algorithm would only hold them up.
fn with_nodelay(info: ConnectionInfo) -> ConnectionInfo {
    info.set_tcp_settings(TcpSettings::default().set_nodelay(true))
}
