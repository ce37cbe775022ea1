//! What a row measured, each value beside its bound.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A measured value, and the bound that it has to keep, if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// Of which part of a row that has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// What was measured.
    pub name: String,
    /// How much.
    pub value: u64,
    /// In what.
    pub unit: Unit,
    /// What it may be.
    pub bound: Option<Bound>,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unit {
    /// Things.
    Count,
    /// Milliseconds.
    Millis,
    /// Thousandths.
    PerMille,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Not more than this.
    AtMost(u64),
    /// Not less than this.
    AtLeast(u64),
    /// Exactly this.
    Exactly(u64),
}

impl Figure {
    /// A number of things.
    pub(crate) fn count(name: impl Into<String>, value: u64) -> Self {
        Self { part: None, name: name.into(), value, unit: Unit::Count, bound: None }
    }

    /// A length of time, to the millisecond above.
    pub(crate) fn time(name: impl Into<String>, value: Duration) -> Self {
        Self { part: None, name: name.into(), value: millis(value), unit: Unit::Millis, bound: None }
    }

    /// A part of a whole, in thousandths.
    pub(crate) fn share(name: impl Into<String>, part: u64, whole: u64) -> Self {
        let value = u128::from(part) * 1_000 / u128::from(whole.max(1));
        Self {
            part: None,
            name: name.into(),
            value: u64::try_from(value).unwrap_or(u64::MAX),
            unit: Unit::PerMille,
            bound: None,
        }
    }

    pub(crate) fn at_most(mut self, bound: u64) -> Self {
        self.bound = Some(Bound::AtMost(bound));
        self
    }

    pub(crate) fn within(self, bound: Duration) -> Self {
        self.at_most(millis(bound))
    }

    pub(crate) fn at_least(mut self, bound: u64) -> Self {
        self.bound = Some(Bound::AtLeast(bound));
        self
    }

    pub(crate) fn exactly(mut self, bound: u64) -> Self {
        self.bound = Some(Bound::Exactly(bound));
        self
    }

    pub(crate) fn of_part(mut self, part: &str) -> Self {
        self.part = Some(part.to_owned());
        self
    }

    /// Whether the value keeps its bound.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.bound {
            None => true,
            Some(Bound::AtMost(bound)) => self.value <= bound,
            Some(Bound::AtLeast(bound)) => self.value >= bound,
            Some(Bound::Exactly(bound)) => self.value == bound,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

impl Unit {
    fn text(self, value: u64) -> String {
        match self {
            Self::Count => thousands(value),
            Self::Millis if value < 100 => format!("0.{value:03}"),
            Self::Millis => format!("{}.{}", value / 1_000, value % 1_000 / 100),
            Self::PerMille => format!("{}.{}", value / 10, value % 10),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Millis => " s",
            Self::PerMille => " %",
        }
    }
}

/// A number with its digits in threes.
fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Without a bound as `1,912 unknown`, with one as `consumed twice 0/0` or `recovered 0.4/2.0 s`.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, unit) = (self.unit.text(self.value), self.unit.name());
        match self.bound {
            None if self.unit == Unit::Count => write!(f, "{text} {}", self.name),
            None => write!(f, "{} {text}{unit}", self.name),
            Some(Bound::AtMost(bound) | Bound::Exactly(bound)) => {
                write!(f, "{} {text}/{}{unit}", self.name, self.unit.text(bound))
            }
            Some(Bound::AtLeast(bound)) => {
                write!(f, "{} {text}{unit} (at least {}{unit})", self.name, self.unit.text(bound))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_shows_its_bound_and_holds_to_it() {
        let shown = |figure: Figure| (figure.to_string(), figure.holds());
        assert_eq!(shown(Figure::count("calls", 1_048_210)), ("1,048,210 calls".to_owned(), true));
        assert_eq!(shown(Figure::count("consumed twice", 1).at_most(0)), ("consumed twice 1/0".to_owned(), false));
        assert_eq!(shown(Figure::count("admitted", 99).exactly(100)), ("admitted 99/100".to_owned(), false));
        let recovered = Figure::time("recovered", Duration::from_micros(400_001)).within(Duration::from_secs(2));
        assert_eq!(shown(recovered), ("recovered 0.4/2.0 s".to_owned(), true));
        assert_eq!(
            shown(Figure::share("of what was due", 998, 1_000).at_least(990)),
            ("of what was due 99.8 % (at least 99.0 %)".to_owned(), true)
        );
        assert_eq!(Figure::time("worst call", Duration::from_micros(1)).to_string(), "worst call 0.001 s");
    }
}
