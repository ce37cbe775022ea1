//! Steady demand: what a bucket had to give to those who always asked for more, and what it gave.

use limiter_core::Limit;

use super::{Answer, History};

/// Units of one bucket, until it last refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steady {
    /// What it gave.
    pub admitted: u64,
    /// What it had: at a refusal, all of it is given.
    pub due: u64,
}

impl History {
    /// What takes of one unit each got of a key that nobody had used before, and what was due to them; nothing if none was refused.
    pub(crate) fn steady(&self, key: usize, limit: &Limit) -> Option<Steady> {
        let asked = self.calls.iter().filter(|call| call.checks.iter().any(|asked| asked.key == key));
        let decided: Vec<(bool, u64)> = asked
            .filter_map(|call| match call.answer {
                Answer::Decided { allowed, at, .. } => Some((allowed, at.micros())),
                _ => None,
            })
            .collect();
        let refused = decided.iter().filter(|(allowed, _)| !allowed).map(|(_, at)| *at).max()?;
        let allowed = decided.iter().filter(|(allowed, at)| *allowed && *at <= refused);
        let mut taken: Vec<u64> = allowed.map(|(_, at)| *at).collect();
        taken.sort_unstable();
        Some(Steady { admitted: u64::try_from(taken.len()).ok()?, due: due(limit, &taken, refused) })
    }
}

/// The units that a bucket has had to give until an instant, in µs: it was full at the first of the sorted instants at which one was taken.
///
/// What it would gain while it is full is lost, and so it is between the first take and the next, where the store is slow to begin.
fn due(limit: &Limit, taken: &[u64], until: u64) -> u64 {
    let (unit, amount) = (limit.period().as_micros(), u128::from(limit.amount()));
    let full = u128::from(limit.capacity()) * unit;
    let after = |level: u128, elapsed: u64| full.min(level + u128::from(elapsed) * amount);
    let (mut level, mut given, mut last) = (full, 0, taken.first().copied().unwrap_or(until));
    for at in taken {
        level = after(level, at - last);
        if level >= unit {
            (level, given) = (level - unit, given + 1);
        }
        last = *at;
    }
    given + u64::try_from(after(level, until - last) / unit).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::due;

    /// 30 units and 30 a second, asked for without a pause but for one after the first.
    #[test]
    fn a_bucket_owes_nothing_for_the_time_that_it_was_full() {
        let limit = "30/1s token-bucket".parse().expect("a limit");
        let after = |pause: u64| {
            let mut taken = vec![0];
            taken.resize(30, pause);
            taken
        };
        // It is full again 33.3 ms after its first take, and what it would gain in the 16.7 ms thereafter is lost.
        for (pause, owed) in [(0, 57), (33_333, 57), (50_000, 56), (200_000, 52)] {
            assert_eq!(due(&limit, &after(pause), 900_000), owed, "after {pause} µs");
        }
        assert_eq!(due(&limit, &[], 900_000), 30, "all of it, if nothing was taken");
        assert_eq!(due(&limit, &[0; 40], 0), 30, "what is taken beyond that was not due");
    }
}
