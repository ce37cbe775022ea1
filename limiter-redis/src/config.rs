//! Where the server is, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use limiter_core::{Error, ErrorKind};
use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::ENGINE;

/// How to reach the server. Its `Debug` output shows no user, no password and no URL.
#[derive(Clone)]
pub struct Config {
    pub(crate) info: ConnectionInfo,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) root_certificate: Option<Vec<u8>>,
}

impl Config {
    /// Of a URL: `redis://[user][:password@]host[:port][/database]`, `rediss://` for TLS (feature `tls`), or
    /// `redis+unix:///path[?db=N&user=…&pass=…]`. Special characters of a password are percent-encoded.
    /// `?protocol=resp2` is for a proxy that knows no RESP3: then a connection that was closed is noticed by the next call
    /// only, whose outcome is *unknown*.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`], if it can't be read or this build has no TLS. The URL is not repeated.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let unusable = |message: &'static str| Error::new(ENGINE, ErrorKind::Refused, message);
        if cfg!(not(feature = "tls")) && (url.starts_with("rediss:") || url.starts_with("valkeys:")) {
            return Err(unusable("this build has no TLS: the feature `tls` brings it"));
        }
        let info = url.into_connection_info().map_err(|_| {
            unusable(
                "the URL is not of the form redis://[user][:password@]host[:port][/database] or redis+unix:///path",
            )
        })?;
        if info.redis_settings().db() < 0 {
            return Err(unusable("the URL's database number is below 0"));
        }
        // Small calls that each wait for their answer: Nagle's algorithm would only hold them up.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let mut redis = info.redis_settings().clone().set_skip_set_lib_name();
        if !url.contains("protocol=resp2") && !url.contains("protocol=2") {
            redis = redis.set_protocol(ProtocolVersion::RESP3);
        }
        Ok(Self {
            info: info.set_redis_settings(redis),
            connect_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_millis(500),
            #[cfg(feature = "tls")]
            root_certificate: None,
        })
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
        f.debug_struct("Config")
            .field("road", &road)
            .field("database", &self.info.redis_settings().db())
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}
