//! Seeded randomness: the same numbers for the same seed, in every version of this crate and on every machine.

/// A generator of pseudo-random numbers (`SplitMix64`). Good enough to vary tests, and nothing else.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for part `index` of whatever `seed` seeds.
    #[must_use]
    pub fn part(seed: u64, index: u64) -> Self {
        let mut mixed = Self(seed ^ index.wrapping_mul(0xD1B5_4A32_D192_ED03));
        Self(mixed.next())
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, or 0 if the bound is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let bits = self.next();
        if bound == 0 { 0 } else { bits % bound }
    }

    /// One of `items`; None if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let bound = u64::try_from(items.len()).unwrap_or(u64::MAX);
        items.get(usize::try_from(self.below(bound)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut random = Random::new(42);
        assert_eq!([random.next(), random.next()], [0xBDD7_3226_2FEB_6E95, 0x28EF_E333_B266_F103]);
        assert_ne!(Random::part(42, 0).next(), Random::part(42, 1).next());
    }
}
