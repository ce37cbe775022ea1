//! Sliding log: every admission with its instant, exact over any half-open window.
//!
//! Entries are in order of time, and carry the sum of units up to and with themselves. So both questions,
//! what still counts and when enough of it is gone, are a binary search; and only an admission
//! drops what has expired, which is amortised to the entries that it dropped.

use std::collections::VecDeque;

use super::Answer;
use crate::decision::Decision;
use crate::instant::Instant;
use crate::limit::Limit;

/// So many entries are looked at one by one before a binary search pays.
const FEW: usize = 4;
/// Entries that even a short log keeps room for.
const SPARE: usize = 32;

/// The admitted (time, cost) pairs, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLog {
    entries: VecDeque<Entry>,
    /// The sum of what was dropped before the first entry: each entry's `upto` counts from 0.
    dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    upto: u64,
}

/// What one decision reads of a log, whatever the log's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogView {
    /// Units that still count.
    pub live: u64,
    /// The newest entry's instant, in µs since the epoch; 0 if the log is empty.
    pub newest: u64,
    /// When enough has expired for the cost to pass, in µs since the epoch; 0 if it passes at once.
    pub opens_at: u64,
}

impl SlidingLog {
    /// A log of these (instant in µs, cost) pairs, which must be in order of time. Costs of 0 are left out.
    ///
    /// Pairs that come from outside may be anything: [`State::check`](crate::State::check) tells whether the log is sound.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut log = Self::default();
        for (at, cost) in entries {
            // What came from outside is checked afterwards, so until then no sum may wrap.
            log.push(at, cost.min(u64::MAX - log.sum()));
        }
        log
    }

    /// The (instant in µs, cost) pairs, oldest first; those of one instant are one.
    #[must_use]
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        let mut before = self.dropped;
        self.entries.iter().map(move |entry| {
            let cost = entry.upto - before;
            before = entry.upto;
            (entry.at, cost)
        })
    }

    /// How many entries are stored, those that have expired included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many of the oldest entries no longer count at `now`, and the sum up to there.
    #[inline]
    fn expired(&self, limit: &Limit, now: Instant) -> (usize, u64) {
        let expired = |entry: &Entry| entry.at + limit.period_micros() <= now.micros();
        // Since the last admission seldom more than a few have.
        let few = self.entries.iter().take(FEW).take_while(|entry| expired(entry)).count();
        let count = if few < FEW { few } else { self.entries.partition_point(expired) };
        let upto =
            count.checked_sub(1).and_then(|last| self.entries.get(last)).map_or(self.dropped, |entry| entry.upto);
        (count, upto)
    }

    #[inline]
    pub(crate) fn reset_at(&self, limit: &Limit) -> u64 {
        self.entries.back().map_or(0, |entry| entry.at + limit.period_micros())
    }

    /// The newest entry's instant, in µs since the epoch; 0 if the log is empty.
    pub(crate) fn newest(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.at)
    }

    #[inline]
    fn sum(&self) -> u64 {
        self.entries.back().map_or(self.dropped, |entry| entry.upto)
    }

    #[inline]
    pub(crate) fn view(&self, limit: &Limit, now: Instant, cost: u64) -> LogView {
        let (_, gone) = self.expired(limit, now);
        let live = self.sum() - gone;
        let newest = self.entries.back().map_or(0, |entry| entry.at);
        let excess = (live + cost).saturating_sub(limit.amount());
        let opens_at = if cost == 0 || excess == 0 { 0 } else { self.frees(gone + excess) + limit.period_micros() };
        LogView { live, newest, opens_at }
    }

    /// The instant of the entry with which the sum reaches `upto`.
    fn frees(&self, upto: u64) -> u64 {
        let index = self.entries.partition_point(|entry| entry.upto < upto);
        self.entries.get(index).or(self.entries.back()).map_or(0, |entry| entry.at)
    }

    #[inline]
    pub(crate) fn take(&mut self, limit: &Limit, now: Instant, cost: u64) {
        let (count, gone) = self.expired(limit, now);
        for _ in 0..count {
            self.entries.pop_front();
        }
        self.dropped = gone;
        if self.entries.is_empty() {
            // The sums start anew, so that they never grow with the life of a key.
            self.dropped = 0;
        }
        let newest = self.entries.back().map_or(0, |entry| entry.at);
        self.push(newest.max(now.micros()), cost);
        // A log that was once long does not keep its memory for ever.
        if self.entries.capacity() > 4 * self.entries.len() + SPARE {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// Whether a charge at `now` leaves the log longer than it was: no entry has expired, and none is of this instant.
    #[cfg(feature = "memory")]
    pub(crate) fn grows(&self, limit: &Limit, now: Instant) -> bool {
        self.entries.back().is_none_or(|newest| newest.at < now.micros()) && self.expired(limit, now).0 == 0
    }

    #[inline]
    fn push(&mut self, at: u64, cost: u64) {
        let upto = self.sum() + cost;
        match self.entries.back_mut() {
            _ if cost == 0 => {}
            Some(last) if last.at == at => last.upto = upto,
            _ => self.entries.push_back(Entry { at, upto }),
        }
    }

    /// Gives back what was taken at `taken`, unless it has expired.
    ///
    /// The entry of that very instant gives first. If the clock had gone back, the units stand at a later
    /// instant; then the oldest that are not before `taken` give, since what stays then counts at least as
    /// long as it should, and a refund never lets a window hold more than its limit.
    pub(crate) fn refund(&mut self, limit: &Limit, now: Instant, cost: u64, taken: Instant) {
        if taken.micros() + limit.period_micros() <= now.micros() {
            return;
        }
        let mut owed = cost;
        let kept: Vec<(u64, u64)> = self
            .entries()
            .map(|(at, units)| {
                // What is not before `taken` has not expired either.
                let given = if at >= taken.micros() { units.min(owed) } else { 0 };
                owed -= given;
                (at, units - given)
            })
            .collect();
        *self = Self::from_entries(kept);
    }
}

impl LogView {
    #[inline]
    pub(crate) fn admits(self, limit: &Limit, _now: Instant, cost: u64) -> bool {
        cost == 0 || self.live + cost <= limit.amount()
    }

    #[inline]
    pub(crate) fn decision(mut self, limit: &Limit, now: Instant, cost: u64, charged: bool) -> Decision {
        let allowed = self.admits(limit, now, cost);
        if charged {
            self.live += cost;
            self.newest = self.newest.max(now.micros());
        }
        let answer = Answer {
            allowed,
            remaining: limit.amount().saturating_sub(self.live),
            retry_at: self.opens_at,
            reset_at: if self.live == 0 { 0 } else { self.newest + limit.period_micros() },
            delay: 0,
        };
        answer.decision(limit, now)
    }
}
