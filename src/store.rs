//! A URL → an engine: the one place that knows which engines this build has.

use std::sync::Arc;

use limiter_core::Backend;

/// The schemes of all engines, with the feature that brings each. None: nobody has built it yet.
const SCHEMES: [(&str, Option<&str>); 8] = [
    ("memory", Some("memory")),
    ("redis", Some("redis")),
    ("rediss", Some("redis")),
    ("fred+redis", Some("fred")),
    ("fred+rediss", Some("fred")),
    ("postgres", None),
    ("postgresql", None),
    ("etcd", None),
];

/// Connects to the store at `url`: `memory:` is a table in this process.
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
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "memory")]
        "memory" if url == "memory:" => Ok(Arc::new(limiter_core::Memory::new())),
        "memory" if url != "memory:" => Err(ConnectError::Memory),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(Arc::new(limiter_redis::Redis::connect(limiter_redis::Config::from_url(url)?).await?)),
        #[cfg(feature = "fred")]
        "fred+redis" | "fred+rediss" => {
            let url = url.strip_prefix("fred+").unwrap_or(url);
            Ok(Arc::new(limiter_fred::Fred::connect(limiter_fred::Config::from_url(url)?).await?))
        }
        _ => Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
            Some((scheme, Some(feature))) => ConnectError::NotBuilt { scheme, feature },
            Some((scheme, None)) => ConnectError::NotYet { scheme },
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
        "store URL: the scheme is none of memory, redis, rediss, fred+redis, fred+rediss, postgres, postgresql, etcd"
    )]
    Scheme,
    /// There is more than the scheme of `memory:`.
    #[error("store URL: `memory:` takes nothing after the colon")]
    Memory,
    /// There is no engine for the scheme yet.
    #[error("store URL: there is no engine for `{scheme}:` yet")]
    NotYet {
        /// The URL's scheme.
        scheme: &'static str,
    },
    /// This build has no engine for the scheme.
    #[error("store URL: this build has no engine for `{scheme}:`; the feature `{feature}` brings it")]
    NotBuilt {
        /// The URL's scheme.
        scheme: &'static str,
        /// The feature.
        feature: &'static str,
    },
}
