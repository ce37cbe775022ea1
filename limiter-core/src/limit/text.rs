//! The text form of a limit: `<amount>/<period> <algorithm> [burst=N] [queue=N]`.
//!
//! Reading and printing round-trip. What is printed is the shortest form: the largest unit that
//! divides the period, and no burst or queue that the amount implies.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Algorithm, Limit, LimitBuilder, LimitError, MAX_AMOUNT, MAX_BURST, MAX_PERIOD, MIN_PERIOD};

/// Units of a period in microseconds, smallest first. `min` is read, `m` is printed.
const UNITS: [(&str, u64); 7] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// The longest piece of somebody's text that an error repeats, in characters.
const QUOTED: usize = 64;

impl FromStr for Limit {
    type Err = LimitError;

    /// Reads the text form. Fields may be parted by any white space.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let form = || LimitError::Form { text: quoted(text) };
        let mut fields = text.split_whitespace();
        let (amount, period) = fields.next().and_then(|rate| rate.split_once('/')).ok_or_else(form)?;
        let algorithm = fields.next().ok_or_else(form)?;
        let amount = whole("amount", amount, MAX_AMOUNT)?;
        let period = read_period(period)?;
        let algorithm = Algorithm::from_str(algorithm)?;
        let mut builder = LimitBuilder::new(algorithm, amount, period);
        for option in fields {
            let unexpected = || LimitError::Option { value: quoted(option) };
            match option.split_once('=') {
                Some(("burst", value)) if builder.burst.is_none() => {
                    builder = builder.burst(whole("burst", value, MAX_BURST)?);
                }
                Some(("queue", value)) if builder.queue.is_none() => {
                    builder = builder.queue(whole("queue", value, MAX_AMOUNT)?);
                }
                _ => return Err(unexpected()),
            }
        }
        builder.build()
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.amount, Printed(self.period), self.algorithm)?;
        if self.capacity == self.amount {
            return Ok(());
        }
        let field = if self.algorithm == Algorithm::LeakyBucket { "queue" } else { "burst" };
        write!(f, " {field}={}", self.capacity)
    }
}

impl FromStr for Algorithm {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == text)
            .ok_or_else(|| LimitError::Algorithm { value: quoted(text) })
    }
}

/// A period in µs, printed in the largest unit that divides it.
struct Printed(u64);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let largest = UNITS.iter().rev().find(|(name, unit)| *name != "min" && self.0.is_multiple_of(*unit));
        let (name, unit) = largest.copied().unwrap_or(("us", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

fn read_period(text: &str) -> Result<Duration, LimitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let micros = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, micros)| *micros);
    let micros = micros.ok_or_else(|| match unit.chars().next() {
        // "-5s", "1.5s" and "1e3s" are numbers to whoever wrote them, so the number is what is wrong.
        Some('-' | '+' | '.' | 'e' | 'E') => LimitError::NotWhole { field: "period", value: quoted(text) },
        _ => LimitError::Unit { value: quoted(text) },
    })?;
    // The number may be left out when it is 1.
    let number = if number.is_empty() { Some(1) } else { number.parse::<u64>().ok() };
    number
        .and_then(|number| number.checked_mul(micros))
        .map(Duration::from_micros)
        .filter(|period| (MIN_PERIOD..=MAX_PERIOD).contains(period))
        .ok_or_else(|| LimitError::PeriodOutOfBounds { period: quoted(text) })
}

/// A whole number in decimal digits: no sign, no point, no exponent.
fn whole(field: &'static str, text: &str, max: u64) -> Result<u64, LimitError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(LimitError::NotWhole { field, value: quoted(text) });
    }
    // Only digits: what does not parse is too large for 64 bits, hence over the bound too.
    text.parse().map_err(|_| LimitError::TooLarge { field, value: quoted(text), max })
}

fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let mut quoted: String = chars.by_ref().take(QUOTED).flat_map(char::escape_debug).collect();
    if chars.next().is_some() {
        quoted.push('…');
    }
    quoted
}

#[cfg(feature = "serde")]
mod serde_impl {
    use super::Limit;
    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::{Serialize, Serializer};
    use std::fmt;

    /// A limit is its text, in every format.
    impl Serialize for Limit {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Limit {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_str(Text)
        }
    }

    struct Text;

    impl Visitor<'_> for Text {
        type Value = Limit;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a limit such as \"100/1m fixed-window\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
            text.parse().map_err(E::custom)
        }
    }
}
