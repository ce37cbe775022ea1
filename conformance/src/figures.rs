//! What a case counts while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// The counters of a running case.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    calls: AtomicU64,
    differences: AtomicU64,
    admitted: AtomicU64,
    due: AtomicU64,
}

/// What a case counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Requests that were sent.
    pub calls: u64,
    /// Answers that were not the contract's.
    pub differences: u64,
    /// Units that were admitted where the limit was to be reached exactly.
    pub admitted: u64,
    /// Units that should have been.
    pub due: u64,
}

impl Counters {
    pub(crate) fn called(&self, calls: usize) {
        self.calls.fetch_add(u64::try_from(calls).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn differed(&self, differences: u64) {
        self.differences.fetch_add(differences, Ordering::Relaxed);
    }

    /// `admitted` units passed where `due` should have.
    pub(crate) fn reached(&self, admitted: u64, due: u64) {
        self.admitted.fetch_add(admitted, Ordering::Relaxed);
        self.due.fetch_add(due, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> Figures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            calls: of(&self.calls),
            differences: of(&self.differences),
            admitted: of(&self.admitted),
            due: of(&self.due),
        }
    }
}

impl Figures {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            differences: self.differences + other.differences,
            admitted: self.admitted + other.admitted,
            due: self.due + other.due,
        }
    }
}
