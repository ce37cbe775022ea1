//! The keys denied most, in memory that does not grow with the number of keys.

use std::collections::HashMap;

use limiter::{Key, Limit};

/// Denials by key: exact up to [`MAX_KEYS`](Self::MAX_KEYS) denied keys.
///
/// Whenever there are more, the half that was denied least is dropped. A dropped key that is denied again starts
/// anew, so its count may be too low, by at most [`missed`](Self::missed) of that instant. It is never too high.
#[derive(Debug, Default)]
pub(super) struct Denied {
    keys: HashMap<Key, Count>,
    /// The sum, over all times that keys were dropped, of the largest count that was.
    missed: u64,
}

/// How often a key was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) denied: u64,
    /// How many more it may be.
    pub(super) or_more: u64,
    /// The key as people read it.
    pub(super) name: String,
    pub(super) limit: Limit,
}

impl Denied {
    /// The most denied keys that are counted at once.
    pub(super) const MAX_KEYS: usize = 1 << 15;

    /// One more denial; `name` is asked only of a key that is new.
    pub(super) fn add(&mut self, key: &Key, limit: Limit, name: impl FnOnce() -> String) {
        if let Some(count) = self.keys.get_mut(key) {
            count.denied += 1;
            return;
        }
        if self.keys.len() >= Self::MAX_KEYS {
            self.drop_least();
        }
        self.keys.insert(key.clone(), Count { denied: 1, or_more: self.missed, name: name(), limit });
    }

    fn drop_least(&mut self) {
        let mut counts: Vec<u64> = self.keys.values().map(|count| count.denied).collect();
        let (_, middle, _) = counts.select_nth_unstable(Self::MAX_KEYS / 2);
        let middle = *middle;
        // Those with the middle count go too: where all have it, half of them would be no answer.
        self.keys.retain(|_, count| count.denied > middle);
        self.missed += middle;
    }

    /// How much the counts of keys that are new from now on may be too low.
    pub(super) fn missed(&self) -> u64 {
        self.missed
    }

    /// The `most` keys denied most, most first; equal ones by name.
    pub(super) fn most(&self, most: usize) -> Vec<Count> {
        let mut counts: Vec<&Count> = self.keys.values().collect();
        counts.sort_unstable_by(|a, b| b.denied.cmp(&a.denied).then_with(|| a.name.cmp(&b.name)));
        counts.into_iter().take(most).cloned().collect()
    }

    /// How many denied keys are counted.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use limiter::Key;

    use super::Denied;

    #[test]
    fn a_heavy_key_outlives_a_flood_of_others() {
        let limit = "1/s fixed-window".parse().unwrap();
        let mut denied = Denied::default();
        let mut add = |name: String| denied.add(&Key::new("", "", [&name]), limit, || name.clone());
        let flood = 5 * Denied::MAX_KEYS;
        for number in 0..flood {
            add(number.to_string());
            if number % 10 == 0 {
                add("heavy".to_owned());
            }
        }
        let most = denied.most(1);
        assert_eq!(
            (most[0].name.as_str(), most[0].denied, most[0].or_more),
            ("heavy", u64::try_from(flood / 10).unwrap(), 0)
        );
        assert!(denied.keys.len() <= Denied::MAX_KEYS);
        assert!(denied.missed() > 0);
    }

    #[test]
    fn counts_are_exact_below_the_bound() {
        let limit = "1/s fixed-window".parse().unwrap();
        let mut denied = Denied::default();
        for name in ["b", "a", "c", "a", "b", "a"] {
            denied.add(&Key::new("", "", [name]), limit, || name.to_owned());
        }
        let most: Vec<(String, u64)> = denied.most(2).into_iter().map(|count| (count.name, count.denied)).collect();
        assert_eq!(most, [("a".to_owned(), 3), ("b".to_owned(), 2)]);
        assert_eq!((denied.len(), denied.missed()), (3, 0));
    }
}
