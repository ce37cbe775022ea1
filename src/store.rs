//! A URL → an engine: the one place that knows which engines this build has.

use std::sync::Arc;

use limiter_core::{Backend, Scope};

use crate::layer::GroupCommit;

/// The schemes of all engines, with the feature that brings each.
const SCHEMES: [(&str, &str); 17] = [
    ("memory", "memory"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis-cluster", "redis"),
    ("rediss-cluster", "redis"),
    ("redis-sentinel", "redis"),
    ("rediss-sentinel", "redis"),
    ("fred+redis", "fred"),
    ("fred+rediss", "fred"),
    ("fred+redis-cluster", "fred"),
    ("fred+rediss-cluster", "fred"),
    ("fred+redis-sentinel", "fred"),
    ("fred+rediss-sentinel", "fred"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
];

/// Connects to the store at `url`: `memory:` is a table in this process.
///
/// A store that others share is asked through a [`GroupCommit`] with its defaults: what arrives while a call is in flight goes together in
/// the next, which costs a lone check nothing to speak of and makes a busy store several times as fast. [`engine`] leaves it out.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let backend = limiter::connect("memory:").await?;
/// assert_eq!(backend.capabilities().engine, "memory");
/// # Ok::<(), limiter::ConnectError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ConnectError`] if the scheme is not known, this build has no engine for it, or the store can't be reached or used. The URL is
/// never repeated: it may hold a password.
pub async fn connect(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    let engine = engine(url).await?;
    if engine.capabilities().scope == Scope::Process {
        return Ok(engine);
    }
    Ok(Arc::new(GroupCommit::new(engine)))
}

/// The engine behind `url` as it is: each request is a call of its own. For a comparison, or for layers of one's own.
///
/// # Errors
/// As [`connect`].
pub async fn engine(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "memory")]
        "memory" if url == "memory:" => Ok(Arc::new(limiter_core::Memory::new())),
        "memory" if url != "memory:" => Err(ConnectError::Memory),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis-cluster" | "rediss-cluster" | "redis-sentinel" | "rediss-sentinel" => {
            Ok(Arc::new(limiter_redis::Redis::connect(limiter_redis::Config::from_url(url)?).await?))
        }
        #[cfg(feature = "fred")]
        "fred+redis"
        | "fred+rediss"
        | "fred+redis-cluster"
        | "fred+rediss-cluster"
        | "fred+redis-sentinel"
        | "fred+rediss-sentinel" => {
            let url = url.strip_prefix("fred+").unwrap_or(url);
            Ok(Arc::new(limiter_fred::Fred::connect(limiter_fred::Config::from_url(url)?).await?))
        }
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => Ok(Arc::new(limiter_etcd::Etcd::connect(limiter_etcd::Config::from_url(url)?).await?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            Ok(Arc::new(limiter_postgres::Postgres::connect(limiter_postgres::Config::from_url(url)?).await?))
        }
        _ => Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
            Some((scheme, feature)) => ConnectError::NotBuilt { scheme, feature },
            None => ConnectError::Scheme,
        }),
    }
}

/// Why there is no connection to a store.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The engine has no connection, or can't use the store.
    #[error(transparent)]
    Engine(#[from] limiter_core::Error),
    /// The URL does not begin with a scheme that is known.
    #[error(
        "store URL: the scheme is none of memory, redis, redis-cluster, redis-sentinel (rediss for TLS, fred+ for the other driver), \
         postgres, postgresql, etcd, etcds"
    )]
    Scheme,
    /// There is more than the scheme of `memory:`.
    #[error("store URL: `memory:` takes nothing after the colon")]
    Memory,
    /// This build has no engine for the scheme.
    #[error("store URL: this build has no engine for `{scheme}:`; the feature `{feature}` brings it")]
    NotBuilt {
        /// The URL's scheme.
        scheme: &'static str,
        /// The feature.
        feature: &'static str,
    },
}
