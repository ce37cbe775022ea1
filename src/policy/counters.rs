//! What each rule has decided: numbers by rule and outcome, never by key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What one rule has decided since its limiter was made. A rule that is reloaded goes on counting.
#[derive(Debug, Default)]
pub(super) struct RuleCounters {
    allowed: AtomicU64,
    limited: AtomicU64,
    degraded: AtomicU64,
}

impl RuleCounters {
    pub(super) fn decided(&self, allowed: bool) {
        let counter = if allowed { &self.allowed } else { &self.limited };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }
}

/// The counters of all rules that there ever were, by name.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<BTreeMap<Arc<str>, Arc<RuleCounters>>>);

impl Counters {
    pub(super) fn of(&self, rule: &Arc<str>) -> Arc<RuleCounters> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(Arc::clone(rule)).or_default())
    }

    pub(super) fn read(&self) -> Vec<RuleCount> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        all.iter()
            .map(|(rule, counters)| RuleCount {
                rule: Arc::clone(rule),
                allowed: read(&counters.allowed),
                limited: read(&counters.limited),
                degraded: read(&counters.degraded),
            })
            .collect()
    }
}

/// What one rule has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleCount {
    /// The rule.
    pub rule: Arc<str>,
    /// Requests that it let pass, also where another rule refused them.
    pub allowed: u64,
    /// Requests that it refused, or would have as a shadow rule.
    pub limited: u64,
    /// Requests that its failure policy decided in place of the store.
    pub degraded: u64,
}
