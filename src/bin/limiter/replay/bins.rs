//! Counts over time, in memory that does not grow with the length of a trace.

use std::collections::BTreeMap;

use limiter::Instant;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// What was admitted and what denied in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) admitted: u64,
    pub(super) denied: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.denied += other.denied;
    }

    pub(super) fn all(self) -> u64 {
        self.admitted + self.denied
    }

    fn of(allowed: bool) -> Self {
        Self { admitted: u64::from(allowed), denied: u64::from(!allowed) }
    }
}

/// Counts in equal bins over the whole trace. As the trace grows longer, the bins grow wider.
#[derive(Debug, Default)]
pub(super) struct Bins {
    /// By the bin's number since the epoch. Those without a count are left out.
    counts: BTreeMap<u64, Counts>,
    /// The position of the bins' width in [`WIDTHS`](Self::WIDTHS).
    width: usize,
}

impl Bins {
    /// The most bins.
    pub(super) const MOST: u64 = 240;
    /// The widths in µs. Each is a multiple of the one before, so that bins merge whole; the widest spans all
    /// instants with [`MOST`](Self::MOST) bins.
    const WIDTHS: [u64; 23] = [
        1_000,
        5_000,
        10_000,
        50_000,
        100_000,
        500_000,
        SECOND,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        30 * MINUTE,
        HOUR,
        3 * HOUR,
        6 * HOUR,
        12 * HOUR,
        DAY,
        4 * DAY,
        16 * DAY,
        64 * DAY,
        512 * DAY,
    ];

    pub(super) fn add(&mut self, at: Instant, allowed: bool) {
        let bin = at.micros() / self.width();
        self.counts.entry(bin).or_default().add(Counts::of(allowed));
        while self.span() > Self::MOST && self.width + 1 < Self::WIDTHS.len() {
            self.widen();
        }
    }

    fn widen(&mut self) {
        let before = self.width();
        self.width += 1;
        let factor = self.width() / before;
        for (bin, counts) in std::mem::take(&mut self.counts) {
            self.counts.entry(bin / factor).or_default().add(counts);
        }
    }

    fn span(&self) -> u64 {
        self.bounds().map_or(0, |(first, last)| last - first + 1)
    }

    fn bounds(&self) -> Option<(u64, u64)> {
        Some((*self.counts.first_key_value()?.0, *self.counts.last_key_value()?.0))
    }

    /// The width of a bin, in µs.
    pub(super) fn width(&self) -> u64 {
        Self::WIDTHS.get(self.width).copied().unwrap_or(SECOND)
    }

    /// Where the first bin begins, in µs, and all bins from there to the last, empty ones too.
    pub(super) fn all(&self) -> Option<(u64, Vec<Counts>)> {
        let (first, last) = self.bounds()?;
        let counts = (first..=last).map(|bin| self.counts.get(&bin).copied().unwrap_or_default()).collect();
        Some((first * self.width(), counts))
    }
}

/// The minute with the most denials: exact, unless time goes back over more than
/// [`MAX_MINUTES`](Self::MAX_MINUTES) later minutes that had requests.
#[derive(Debug, Default)]
pub(super) struct WorstMinute {
    /// By the minute's number since the epoch.
    minutes: BTreeMap<u64, Counts>,
    /// The worst of those that were dropped.
    dropped: Option<(u64, Counts)>,
}

impl WorstMinute {
    /// The most minutes that are counted at once: 45 days of them.
    const MAX_MINUTES: usize = 1 << 16;

    pub(super) fn add(&mut self, at: Instant, allowed: bool) {
        self.minutes.entry(at.micros() / MINUTE).or_default().add(Counts::of(allowed));
        if self.minutes.len() > Self::MAX_MINUTES {
            let oldest = self.minutes.pop_first();
            self.dropped = worse(self.dropped, oldest);
        }
    }

    /// When the minute began, in µs, and what was in it. None if nothing was denied.
    pub(super) fn worst(&self) -> Option<(u64, Counts)> {
        let kept = self.minutes.iter().map(|(minute, counts)| Some((*minute, *counts)));
        kept.fold(self.dropped, worse)
            .filter(|(_, counts)| counts.denied > 0)
            .map(|(minute, counts)| (minute * MINUTE, counts))
    }
}

/// The one with more denials, or else the first.
fn worse(first: Option<(u64, Counts)>, second: Option<(u64, Counts)>) -> Option<(u64, Counts)> {
    let denied = |minute: Option<(u64, Counts)>| minute.map(|(_, counts)| counts.denied);
    if denied(second) > denied(first) { second } else { first }
}

#[cfg(test)]
mod tests {
    use limiter::Instant;

    use super::{Bins, Counts, MINUTE, SECOND, WorstMinute};

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros).unwrap()
    }

    #[test]
    fn each_width_is_a_multiple_of_the_one_before() {
        for pair in Bins::WIDTHS.windows(2) {
            assert_eq!(pair[1] % pair[0], 0, "{pair:?}");
        }
        assert!(Instant::MAX.micros() / Bins::WIDTHS[Bins::WIDTHS.len() - 1] < Bins::MOST);
    }

    #[test]
    fn bins_merge_without_losing_a_count() {
        let mut bins = Bins::default();
        let mut number = 0;
        for micros in [5 * MINUTE, 0, 240_000, 3 * SECOND, 7 * MINUTE, Instant::MAX.micros(), 1] {
            bins.add(at(micros), number % 2 == 0);
            number += 1;
            let (start, counts) = bins.all().unwrap();
            let all: u64 = counts.iter().map(|counts| counts.all()).sum();
            assert_eq!(all, number);
            assert!(counts.len() <= 240 && start % bins.width() == 0);
        }
    }

    #[test]
    fn the_worst_minute_is_found_whatever_the_order() {
        let mut worst = WorstMinute::default();
        worst.add(at(0), true);
        assert_eq!(worst.worst(), None);
        for micros in [MINUTE, 0, MINUTE + 59 * SECOND, 0, 0] {
            worst.add(at(micros), false);
        }
        for minute in 2..100_000 {
            worst.add(at(minute * MINUTE), minute % 2 == 0);
        }
        assert_eq!(worst.worst(), Some((0, Counts { admitted: 1, denied: 3 })));
        assert!(worst.minutes.len() <= 1 << 16);
    }
}
