//! What the engine counts of its own work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Attempts that are told apart; more count as so many.
const ATTEMPTS: usize = 64;

/// What an engine has done since it was made. Each number only grows, but for the last two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Requests that were decided.
    pub decisions: u64,
    /// Transactions that were sent, each time that one was.
    pub sent: u64,
    /// Transactions that decided something. By the number of attempts that they took: the first number is of those that took one.
    pub committed: Vec<u64>,
    /// Attempts in vain, because a key had been written by another node.
    pub conflicts: u64,
    /// Requests that were given up after all attempts, as *contended*.
    pub contended: u64,
    /// Transactions of which it was not known at first whether they were applied.
    pub doubtful: u64,
    /// Of those, the ones of which it was found out.
    pub resolved: u64,
    /// Leases that were granted.
    pub leases_granted: u64,
    /// States that were further ahead of this node's clock than [`max_skew`](crate::Config::max_skew).
    pub ahead: u64,
    /// Leases that may be put to use now.
    pub leases: usize,
    /// Keys whose state is remembered now.
    pub cached_keys: usize,
}

impl Figures {
    /// The number of attempts that at least this share of the committed transactions did with, in percent.
    #[must_use]
    pub fn attempts(&self, percent: u64) -> usize {
        let all: u64 = self.committed.iter().sum();
        let mut so_far = 0;
        let enough = self.committed.iter().position(|count| {
            so_far += count;
            so_far * 100 >= all * percent
        });
        enough.map_or(0, |index| index + 1)
    }

    /// Attempts for each committed transaction, in hundredths.
    #[must_use]
    pub fn attempts_per_commit_percent(&self) -> u64 {
        let all: u64 = self.committed.iter().sum();
        ((all + self.conflicts) * 100).checked_div(all).unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) decisions: AtomicU64,
    pub(crate) sent: AtomicU64,
    committed: [AtomicU64; ATTEMPTS],
    pub(crate) conflicts: AtomicU64,
    pub(crate) contended: AtomicU64,
    pub(crate) doubtful: AtomicU64,
    pub(crate) resolved: AtomicU64,
    pub(crate) leases_granted: AtomicU64,
    pub(crate) ahead: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let zero = AtomicU64::default;
        Self {
            decisions: zero(),
            sent: zero(),
            committed: std::array::from_fn(|_| zero()),
            conflicts: zero(),
            contended: zero(),
            doubtful: zero(),
            resolved: zero(),
            leases_granted: zero(),
            ahead: zero(),
        }
    }

    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
    }

    pub(crate) fn committed(&self, attempts: u32, requests: usize) {
        let index = usize::try_from(attempts).unwrap_or(ATTEMPTS).clamp(1, ATTEMPTS) - 1;
        if let Some(counter) = self.committed.get(index) {
            Self::add(counter, 1);
        }
        Self::add(&self.decisions, requests);
    }

    pub(crate) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            decisions: read(&self.decisions),
            sent: read(&self.sent),
            committed: self.committed.iter().map(read).collect(),
            conflicts: read(&self.conflicts),
            contended: read(&self.contended),
            doubtful: read(&self.doubtful),
            resolved: read(&self.resolved),
            leases_granted: read(&self.leases_granted),
            ahead: read(&self.ahead),
            leases: 0,
            cached_keys: 0,
        }
    }
}
