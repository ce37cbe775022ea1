//! Where the server is, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use fred::types::config::Config as FredConfig;
use limiter_core::Error;

use crate::error::refused;

/// How to reach the server. Its `Debug` output shows no user, no password and no URL.
#[derive(Clone)]
pub struct Config {
    pub(crate) fred: FredConfig,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
}

impl Config {
    /// Of a URL: `redis://[user][:password@]host[:port][/database]`, `rediss://` for TLS (feature `tls`), or
    /// `redis+unix:///path`. Special characters of a password are percent-encoded.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused), if it can't be read or this build has no TLS. The URL is
    /// not repeated.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        if cfg!(not(feature = "tls")) && (url.starts_with("rediss:") || url.starts_with("valkeys:")) {
            return Err(refused("this build has no TLS: the feature `tls` brings it"));
        }
        // Checked here, since the driver takes an unknown scheme for this one.
        let known = ["redis://", "rediss://", "valkey://", "valkeys://", "redis+unix://"];
        let parsed =
            if known.iter().any(|scheme| url.starts_with(scheme)) { FredConfig::from_url(url).ok() } else { None };
        let mut fred = parsed.ok_or_else(|| {
            refused("the URL is not of the form redis://[user][:password@]host[:port][/database] or redis+unix:///path")
        })?;
        // A call while there is no connection fails, rather than to wait in a queue.
        fred.fail_fast = true;
        Ok(Self { fred, connect_timeout: Duration::from_secs(1), call_timeout: Duration::from_millis(500) })
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
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("tls", &self.fred.uses_tls())
            .field("database", &self.fred.database.unwrap_or_default())
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}
