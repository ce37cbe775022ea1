//! One line of JSON → one check.

use std::borrow::Cow;
use std::collections::HashMap;

use limiter::{Instant, Limit, MAX_BURST, MAX_CHECKS};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::check::{Check, Part};
use super::lines::BYTE_ORDER_MARK;
use crate::object::Object;
use crate::terminal::printable;

/// The longest piece of a line that an error repeats, in characters.
const QUOTED: usize = 64;

/// `{"t": µs, "cost": 1, "limits": [{"limit": "10/1s token-bucket burst=20", "key": "a"}, …]}`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    t: Number<'a>,
    #[serde(borrow, default)]
    cost: Number<'a>,
    #[serde(borrow)]
    limits: Vec<Object<Layer<'a>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer<'a> {
    #[serde(borrow)]
    limit: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
}

/// A value as it was written: what is wrong with a number is said with its own digits. None if it was left out.
#[derive(Default)]
struct Number<'a>(Option<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for Number<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|value| Self(Some(value.get())))
    }
}

/// Reads lines of JSON. It remembers the limits that it has read, since a trace names few of them over and over.
#[derive(Default)]
pub(super) struct Reader {
    limits: HashMap<String, Limit>,
}

impl Reader {
    /// The most limits that are remembered.
    const REMEMBERED: usize = 1024;

    /// What the line asks, or why it can't be read.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<Check, String> {
        let text = str::from_utf8(line).map_err(|error| not_utf8(line, error.valid_up_to()))?;
        if line.starts_with(BYTE_ORDER_MARK) {
            return Err("a byte order mark where a line begins that is not the first".to_owned());
        }
        let Object(fields): Object<Fields<'_>> = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        let at = whole("t", fields.t.0.unwrap_or_default(), Instant::MAX.micros())?;
        let at = Instant::from_micros(at).map_err(|error| error.to_string())?;
        let cost = fields.cost.0.map_or(Ok(1), |cost| whole("cost", cost, MAX_BURST))?;
        if fields.limits.is_empty() || fields.limits.len() > MAX_CHECKS {
            return Err(format!("limits has {} entries; its bounds are 1 to {MAX_CHECKS}", fields.limits.len()));
        }
        let mut check = Check::new(at, cost);
        for (index, Object(layer)) in fields.limits.into_iter().enumerate() {
            let limit = self.limit(&layer.limit).map_err(|error| format!("limits[{index}].limit: {error}"))?;
            check.push(limit, vec![Part::from(layer.key.into_owned().into_bytes())]);
        }
        Ok(check)
    }

    fn limit(&mut self, text: &str) -> Result<Limit, limiter::LimitError> {
        if let Some(limit) = self.limits.get(text) {
            return Ok(*limit);
        }
        let limit = text.parse()?;
        if self.limits.len() >= Self::REMEMBERED {
            self.limits.clear();
        }
        self.limits.insert(text.to_owned(), limit);
        Ok(limit)
    }
}

/// A whole number from 0 to `most`.
fn whole(field: &str, text: &str, most: u64) -> Result<u64, String> {
    let written = printable(text, QUOTED);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if text.strip_prefix('-').is_some_and(digits) {
        return Err(format!("{field} {written} is under its bound of 0"));
    }
    if !digits(text) {
        return Err(format!("{field} {written} is not a whole number"));
    }
    // Only digits: what does not parse is too large for 64 bits, hence over the bound too.
    text.parse()
        .ok()
        .filter(|number| *number <= most)
        .ok_or_else(|| format!("{field} {written} is over its bound of {most}"))
}

fn not_utf8(line: &[u8], at: usize) -> String {
    let byte = line.get(at).copied().unwrap_or_default();
    format!("column {}: byte 0x{byte:02X} is not UTF-8", at + 1)
}

/// The longest reason, in characters.
const REASON: usize = 300;

/// serde's words without its line number, which counts from the line itself.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    // It repeats a field's name that it does not know, whatever that is made of.
    let reason = printable(text.strip_suffix(&place).unwrap_or(&text), REASON);
    // Where the very first byte is wrong, serde says 0.
    let column = error.column().max(1);
    match error.classify() {
        Category::Eof => format!("column {column}: the line is cut off: {reason}"),
        _ => format!("column {column}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;

    fn refused(line: &str) -> String {
        Reader::default().read(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn a_number_out_of_bounds_is_named_as_it_was_written() {
        let line = |t: &str, cost: &str| {
            format!(r#"{{"t":{t},"cost":{cost},"limits":[{{"limit":"1/s fixed-window","key":""}}]}}"#)
        };
        let wrong = [
            ("-5", "1", "t -5 is under its bound of 0"),
            ("1.0", "1", "t 1.0 is not a whole number"),
            ("1e3", "1", "t 1e3 is not a whole number"),
            ("\"1\"", "1", "t \"1\" is not a whole number"),
            ("null", "1", "t null is not a whole number"),
            ("9007199254740992", "1", "t 9007199254740992 is over its bound of 9007199254740991"),
            ("99999999999999999999999", "1", "t 99999999999999999999999 is over its bound of 9007199254740991"),
            ("0", "-1", "cost -1 is under its bound of 0"),
            ("0", "null", "cost null is not a whole number"),
            ("0", "1000000000002", "cost 1000000000002 is over its bound of 1000000000001"),
        ];
        for (t, cost, reason) in wrong {
            assert_eq!(refused(&line(t, cost)), reason);
        }
        assert!(Reader::default().read(line("9007199254740991", "0").as_bytes()).is_ok());
    }

    #[test]
    fn a_misspelt_field_is_no_default() {
        let reason = refused(r#"{"t":0,"kost":2,"limits":[]}"#);
        assert_eq!(reason, "column 13: unknown field `kost`, expected one of `t`, `cost`, `limits`");
        let reason = refused("{\"\\u001b[2J\":1}");
        assert!(reason.contains("unknown field `\\u{1b}[2J`"), "{reason:?}");
        assert_eq!(refused(r#"{"t":0,"t":0,"limits":[]}"#), "column 10: duplicate field `t`");
        assert_eq!(refused(r#"{"limits":[]}"#), "column 13: missing field `t`");
    }

    #[test]
    fn a_list_of_limits_has_bounds() {
        let line = |count: usize| {
            let limits = vec![r#"{"limit":"1/s fixed-window","key":"k"}"#; count].join(",");
            format!(r#"{{"t":0,"limits":[{limits}]}}"#)
        };
        assert_eq!(refused(&line(0)), "limits has 0 entries; its bounds are 1 to 64");
        assert_eq!(refused(&line(65)), "limits has 65 entries; its bounds are 1 to 64");
        assert!(Reader::default().read(line(64).as_bytes()).is_ok());
    }
}
