//! A state as bytes, for stores that keep a value and know nothing of it.
//!
//! ```text
//!   1 byte   form (high 4 bits: 1) and machine (low 4 bits)
//!   then whole numbers, 7 bits a byte, the least first, the high bit on all but the last:
//!     1 fixed window     start, count
//!     2 sliding log      for each entry: µs since the one before (the first: since the epoch), units
//!     3 sliding counter  start, current, previous
//!     4 bucket           seen, tat, rest
//! ```
//!
//! There is one spelling of each state, so bytes that differ are states that differ.

use super::{State, Unsound};
use crate::algorithm::bucket::Bucket;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::algorithm::sliding_log::SlidingLog;
use crate::limit::MAX_LOG;

const FIXED_WINDOW: u8 = 0x11;
const SLIDING_LOG: u8 = 0x12;
const SLIDING_COUNTER: u8 = 0x13;
const BUCKET: u8 = 0x14;

/// Seven bits of a number, and whether more follow.
const DIGIT: u8 = 0x7f;
const MORE: u8 = 0x80;

impl State {
    /// Appends the state's byte form, which begins with the version of the form: at most 30 bytes, or some 4 for each entry of
    /// a log.
    ///
    /// ```
    /// use limiter_core::{FixedWindow, State};
    ///
    /// let state = State::FixedWindow(FixedWindow { start: 60_000_000, count: 3 });
    /// let mut bytes = Vec::new();
    /// state.write_bytes(&mut bytes);
    /// assert_eq!(State::from_bytes(&bytes)?, state);
    /// # Ok::<(), limiter_core::Unsound>(())
    /// ```
    pub fn write_bytes(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::FixedWindow(state) => put(bytes, FIXED_WINDOW, &[state.start, state.count]),
            Self::SlidingCounter(state) => {
                put(bytes, SLIDING_COUNTER, &[state.start, state.current, state.previous]);
            }
            Self::Bucket(state) => put(bytes, BUCKET, &[state.seen, state.tat, state.rest]),
            Self::SlidingLog(log) => {
                bytes.push(SLIDING_LOG);
                let mut before = 0;
                for (at, units) in log.entries() {
                    put_number(bytes, at - before);
                    put_number(bytes, units);
                    before = at;
                }
            }
        }
    }

    /// The state of these bytes, if it is [sound](State::check).
    ///
    /// # Errors
    /// [`Unsound`] if they are not all of a state's, and nothing else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Unsound> {
        let (machine, rest) = bytes.split_first().ok_or(Unsound::Form)?;
        let mut numbers = Numbers(rest);
        let state = match *machine {
            FIXED_WINDOW => Self::FixedWindow(FixedWindow { start: numbers.take()?, count: numbers.take()? }),
            SLIDING_COUNTER => Self::SlidingCounter(SlidingCounter {
                start: numbers.take()?,
                current: numbers.take()?,
                previous: numbers.take()?,
            }),
            BUCKET => {
                let (seen, tat, rest) = (numbers.take()?, numbers.take()?, numbers.take()?);
                Self::Bucket(Bucket { tat, rest, seen })
            }
            SLIDING_LOG => Self::SlidingLog(numbers.log()?),
            _ => return Err(Unsound::Form),
        };
        if !numbers.0.is_empty() {
            return Err(Unsound::Form);
        }
        state.check()?;
        Ok(state)
    }
}

fn put(bytes: &mut Vec<u8>, machine: u8, numbers: &[u64]) {
    bytes.push(machine);
    for number in numbers {
        put_number(bytes, *number);
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > u64::from(DIGIT) {
        bytes.push(number.to_le_bytes()[0] | MORE);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// What is left of the bytes.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take(&mut self) -> Result<u64, Unsound> {
        let mut number = 0_u64;
        for place in 0..9_u32 {
            let (byte, rest) = self.0.split_first().ok_or(Unsound::Form)?;
            self.0 = rest;
            // 9 × 7 bits: below 2^63, which is more than any field may have.
            number |= u64::from(byte & DIGIT) << (7 * place);
            if byte & MORE == 0 {
                let padded = *byte == 0 && place > 0;
                return if padded { Err(Unsound::Form) } else { Ok(number) };
            }
        }
        Err(Unsound::Form)
    }

    /// Entries up to the end. They are summed here: a sum that passed 64 bits would be too late to check in the log.
    fn log(&mut self) -> Result<SlidingLog, Unsound> {
        let mut entries = Vec::new();
        let (mut at, mut sum) = (0_u64, 0_u64);
        while !self.0.is_empty() {
            let (since, units) = (self.take()?, self.take()?);
            if units == 0 || (since == 0 && !entries.is_empty()) {
                return Err(Unsound::LogOrder);
            }
            at = at.saturating_add(since);
            sum = sum.saturating_add(units);
            if sum > MAX_LOG {
                return Err(Unsound::OverBound { field: "sliding-log sum of units", bound: MAX_LOG });
            }
            entries.push((at, units));
        }
        Ok(SlidingLog::from_entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each machine's bytes as they are stored: a change here is a change of the stored form, and needs a new number.
    #[test]
    fn the_form_is_fixed() {
        let now = 1_764_559_423_123_456;
        let form = |state: State| {
            let mut bytes = Vec::new();
            state.write_bytes(&mut bytes);
            bytes
        };
        assert_eq!(
            form(State::FixedWindow(FixedWindow { start: 128, count: 127 })),
            [0x11, 0x80, 0x01, 0x7f],
            "7 bits a byte, the least first"
        );
        assert_eq!(form(State::SlidingLog(SlidingLog::default())), [0x12]);
        assert_eq!(
            form(State::SlidingLog(SlidingLog::from_entries([(300, 1), (301, 2)]))),
            [0x12, 0xac, 0x02, 1, 1, 2],
            "an entry's instant is told from the one before"
        );
        assert_eq!(form(State::SlidingCounter(SlidingCounter { start: 1, current: 2, previous: 3 })), [0x13, 1, 2, 3]);
        assert_eq!(form(State::Bucket(Bucket { tat: 2, rest: 3, seen: 1 })), [0x14, 1, 2, 3]);
        assert_eq!(form(State::Bucket(Bucket { tat: now, rest: 999_999, seen: now })).len(), 1 + 8 + 8 + 3);
    }

    #[test]
    fn what_is_not_of_the_form_is_told_so() {
        for bytes in [
            &[][..],
            &[0x00],
            &[0x21, 1, 1],
            &[0x11],
            &[0x11, 1],
            &[0x11, 0x80],
            &[0x11, 1, 1, 1],
            &[0x11, 0x80, 0x00, 1],
            &[0x12, 1],
            &[0x14, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0],
        ] {
            assert_eq!(State::from_bytes(bytes), Err(Unsound::Form), "{bytes:x?}");
        }
        assert_eq!(State::from_bytes(&[0x12, 5, 1, 0, 1]), Err(Unsound::LogOrder), "two entries of one instant");
        assert_eq!(State::from_bytes(&[0x12, 5, 0]), Err(Unsound::LogOrder), "no units");
    }
}
