//! Whole numbers as the doubles that Lua reads, by their bits: nothing here is computed in floating point.

/// Below this a double holds each whole number.
const EXACT: u64 = 1 << 53;
const MANTISSA: u64 = (1 << 52) - 1;
const BIAS: u64 = 1023;
/// −1.
pub(super) const MINUS_ONE: [u8; 8] = (1 << 63 | BIAS << 52_u64).to_le_bytes();

/// A whole number below 2^53.
pub(super) fn put(bytes: &mut Vec<u8>, number: u64) {
    debug_assert!(number < EXACT, "{number} is not exact in a double");
    let bits = number.checked_ilog2().map_or(0, |exponent| {
        let exponent = u64::from(exponent);
        (BIAS + exponent) << 52 | number << 52_u64.saturating_sub(exponent) & MANTISSA
    });
    bytes.extend_from_slice(&bits.to_le_bytes());
}

/// The rest of a reply. Each reading is None if that is not what is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn count(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// A double that holds a whole number of at most 2^53 in size.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let bits = self.bytes().map(u64::from_le_bytes)?;
        if bits << 1 == 0 {
            return Some(0);
        }
        let exponent = (bits >> 52 & 0x7ff).checked_sub(BIAS)?;
        let digits = bits & MANTISSA | 1 << 52;
        let size = match exponent {
            0..=52 if digits.trailing_zeros() >= u32::try_from(52 - exponent).ok()? => digits >> (52 - exponent),
            53 if digits == 1 << 52 => EXACT,
            _ => return None,
        };
        let size = i64::try_from(size).ok()?;
        Some(if bits >> 63 == 1 { -size } else { size })
    }

    /// As [`signed`](Self::signed), and not below 0.
    pub(super) fn whole(&mut self) -> Option<u64> {
        self.signed().and_then(|number| u64::try_from(number).ok())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_survive_the_way_through_a_double() {
        let edges = (0..53).flat_map(|shift| [(1 << shift) - 1, 1 << shift, (1 << shift) + 1]);
        for number in edges.chain([EXACT - 1, EXACT - 2, 1_000_000_000_000, 1_764_559_423_123_456]) {
            if number == EXACT {
                continue;
            }
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            assert_eq!(Reader(&bytes).whole(), Some(number));
            if let Some(last) = bytes.last_mut() {
                *last |= 0x80;
            }
            assert_eq!(Reader(&bytes).signed(), Some(-i64::try_from(number).unwrap()));
        }
        assert_eq!(Reader(&MINUS_ONE).signed(), Some(-1));
    }

    #[test]
    fn what_is_not_a_whole_number_of_that_size_is_refused() {
        // 1.5, 0.5, infinity, not a number, 2^53 + 2, 2^54, and too few bytes.
        for bits in [0x3ff8_u64 << 48, 0x3fe0 << 48, 0x7ff0 << 48, 0x7ff8 << 48, 0x4340_0000_0000_0001, 0x4350 << 48] {
            assert_eq!(Reader(&bits.to_le_bytes()).signed(), None, "{bits:#x}");
        }
        assert_eq!(Reader(&(0x4340_u64 << 48).to_le_bytes()).signed(), Some(1 << 53));
        assert_eq!(Reader(&[0; 7]).signed(), None);
    }
}
