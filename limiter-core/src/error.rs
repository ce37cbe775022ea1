//! Failures of a store, sorted by what they leave behind.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::outcome::Divergence;
use crate::request::RequestError;

/// What a failure means for the caller. Retries, failure policies and metric labels go by this, never by a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store was not reached, so nothing was applied.
    NotSent,
    /// The store answered that it will not: read-only, out of memory, a lock that timed out. Nothing was applied.
    Refused,
    /// The engine has no room for one more live key. Nothing was applied.
    Full,
    /// Too many others were at the key at once, and the bounded attempts ran out. Nothing was applied.
    Contended,
    /// Too many requests wait for the store already, in this process, so it was not asked. Nothing was applied. It says
    /// that the store is slower than what is asked of it, not that it fails.
    Overloaded,
    /// Sent, and no answer came. It may have been applied.
    Unknown {
        /// Whether it may still be applied after this error, as after a timeout; false if that is settled either way.
        in_flight: bool,
    },
    /// The store's verdict is not the core's: a fault in the engine. It may have been applied.
    Divergence,
}

impl ErrorKind {
    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotSent => "not-sent",
            Self::Refused => "refused",
            Self::Full => "full",
            Self::Contended => "contended",
            Self::Overloaded => "overloaded",
            Self::Unknown { in_flight: true } => "unknown-in-flight",
            Self::Unknown { in_flight: false } => "unknown",
            Self::Divergence => "divergence",
        }
    }

    /// Whether it is certain that nothing was applied, so that a repeat is safe.
    #[must_use]
    pub const fn is_certain(self) -> bool {
        matches!(self, Self::NotSent | Self::Refused | Self::Full | Self::Contended | Self::Overloaded)
    }
}

/// A failure of an engine.
///
/// Its texts are safe to log: an engine puts no key, no address with a password and no reply of a store in them.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    engine: &'static str,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `engine`; `message` says what, and must hold no secret.
    pub fn new(engine: &'static str, kind: ErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, engine, message: message.into(), source: None }
    }

    /// The same with what caused it, whose texts must hold no secret either.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    pub(crate) fn divergence(divergence: Divergence) -> Self {
        Self::new("core", ErrorKind::Divergence, divergence.to_string()).with_source(divergence)
    }

    /// What it means for the caller.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The engine that failed.
    #[must_use]
    pub const fn engine(&self) -> &'static str {
        self.engine
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.engine, self.kind.name(), self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| {
            let source: &(dyn StdError + 'static) = source;
            source
        })
    }
}

/// Why a check has no decision.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The request is unsound: the caller's fault, never the store's. Nothing was charged.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The store did not decide, and nothing was charged. A repeat is safe.
    #[error(transparent)]
    NotSent(Error),
    /// The store may have charged it.
    #[error(transparent)]
    Unknown(Error),
}

impl CheckError {
    /// A failure of the store, sorted by whether it is certain that nothing was charged.
    #[must_use]
    pub fn from_failure(error: Error) -> Self {
        if error.kind().is_certain() { Self::NotSent(error) } else { Self::Unknown(error) }
    }
}
