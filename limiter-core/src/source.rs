//! Whose word a decision is: the store's, or what stands in for it.

use std::fmt;

use crate::limit::Limit;

/// Whose word a decision is.
///
/// The order is that of trust: the later, the less is known of what others have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The engine's: it was asked, and counted.
    #[default]
    Store,
    /// A refusal of the store that this process remembered and that still held. The store was not asked.
    Cache,
    /// Nobody's: another limit of the same request was refused from the cache, so this one was not asked. Only a single limit's
    /// answer has this source, never a whole request's.
    Unasked,
    /// This node's own count under its share of the limit, because the store did not decide. Degraded.
    Local,
    /// Nobody's: the store did not decide, and the failure policy lets pass. It is **counted nowhere**. Degraded.
    Open,
}

impl Source {
    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Cache => "cache",
            Self::Unasked => "unasked",
            Self::Local => "local",
            Self::Open => "open",
        }
    }

    /// Whether the store did not decide and something else stands in for it.
    #[must_use]
    pub const fn is_degraded(self) -> bool {
        matches!(self, Self::Local | Self::Open)
    }

    /// Whether `remaining`, `reset_after` and `delay` mean anything. If not they are zero, and nobody should be shown them.
    #[must_use]
    pub const fn has_numbers(self) -> bool {
        matches!(self, Self::Store | Self::Cache | Self::Local)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the layers of a record rest on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Views that the engine read.
    #[default]
    Store,
    /// Remembered views. A bit is set for each check that was not asked, the first check's the lowest.
    Cache { unasked: u64 },
    /// For each check the share that counted it, or None if nothing did.
    Fallback(Box<[Option<Limit>]>),
}

impl Basis {
    /// The source of the whole record.
    pub(crate) fn source(&self) -> Source {
        match self {
            Self::Store => Source::Store,
            Self::Cache { .. } => Source::Cache,
            Self::Fallback(shares) if shares.iter().all(Option::is_some) => Source::Local,
            Self::Fallback(_) => Source::Open,
        }
    }

    /// The source of one check, and the limit that it was decided by if that is not the request's.
    #[inline]
    pub(crate) fn of(&self, check: usize) -> (Source, Option<&Limit>) {
        match self {
            Self::Store => (Source::Store, None),
            Self::Cache { unasked } if unasked >> check & 1 == 1 => (Source::Unasked, None),
            Self::Cache { .. } => (Source::Cache, None),
            Self::Fallback(shares) => match shares.get(check) {
                Some(Some(share)) => (Source::Local, Some(share)),
                _ => (Source::Open, None),
            },
        }
    }
}
