//! The conservation law: what was admitted, what was consumed, and what lies between them.

use limiter_core::Op;

use super::{Answer, History};

/// The units of one key, by what their calls were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// Units of takes that were admitted.
    pub admitted: u64,
    /// Units of refunds that were done.
    pub refunded: u64,
    /// Units of takes of which it is not known.
    pub unknown: u64,
    /// Units of refunds of which it is not known.
    pub unknown_refunded: u64,
}

impl Ledger {
    /// Whether so many units that the store counts are explained: at least what was admitted, at most that and each unknown
    /// take as often as it may have been sent. Only where nothing was gained in between, as at one given instant.
    ///
    /// ```
    /// # use limiter_conformance::history::History;
    /// let ledger = History::new(Vec::new(), Vec::new()).ledger(0);
    /// assert!(ledger.explains(0, 1) && !ledger.explains(1, 1));
    /// ```
    #[must_use]
    pub const fn explains(&self, consumed: u64, attempts: u64) -> bool {
        let least = self.admitted.saturating_sub(self.refunded + self.unknown_refunded * attempts);
        let most = (self.admitted + self.unknown * attempts).saturating_sub(self.refunded);
        least <= consumed && consumed <= most
    }
}

impl History {
    /// The units of one key, by its index.
    #[must_use]
    pub fn ledger(&self, key: usize) -> Ledger {
        let mut ledger = Ledger::default();
        for call in &self.calls {
            let units: u64 = call.checks.iter().filter(|asked| asked.key == key).map(|asked| asked.cost).sum();
            match (call.op, &call.answer) {
                (Op::Take, Answer::Decided { allowed: true, .. }) => ledger.admitted += units,
                (Op::Take, Answer::Unknown) => ledger.unknown += units,
                (Op::Refund { .. }, Answer::Decided { .. }) => ledger.refunded += units,
                (Op::Refund { .. }, Answer::Unknown) => ledger.unknown_refunded += units,
                _ => {}
            }
        }
        ledger
    }
}

/// Units of takes that began and were admitted between two readings of the monotonic clock.
pub(crate) fn admitted_between(history: &History, from: u64, until: u64) -> u64 {
    let within = history.calls.iter().filter(|call| call.invoked >= from && call.returned <= until);
    let admitted =
        within.filter(|call| call.op == Op::Take && matches!(call.answer, Answer::Decided { allowed: true, .. }));
    admitted.flat_map(|call| &call.checks).map(|asked| asked.cost).sum()
}
