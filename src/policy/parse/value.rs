//! Single values of a policy file.

use std::time::Duration;

use limiter_core::{Limit, MAX_BURST};
use toml::de::DeValue;

use crate::layer::FailurePolicy;
use crate::policy::rule::Allowance;

/// What a value is, for an error.
pub(super) const fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn wanted(value: &DeValue<'_>, what: &str) -> String {
    format!("{} where {what} is wanted", kind(value))
}

fn quoted(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

pub(super) fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        _ => Err(wanted(value, "a text")),
    }
}

/// A text, or a list of them.
pub(super) fn texts<'v>(value: &'v DeValue<'_>) -> Result<Vec<&'v str>, String> {
    match value {
        DeValue::String(text) => Ok(vec![text.as_ref()]),
        DeValue::Array(list) => list
            .iter()
            .map(|value| match value.get_ref() {
                DeValue::String(text) => Ok(text.as_ref()),
                other => Err(wanted(other, "a text")),
            })
            .collect(),
        _ => Err(wanted(value, "a text or a list of them")),
    }
}

pub(super) fn truth(value: &DeValue<'_>) -> Result<bool, String> {
    match value {
        DeValue::Boolean(truth) => Ok(*truth),
        _ => Err(wanted(value, "true or false")),
    }
}

pub(super) fn limit(value: &DeValue<'_>) -> Result<Limit, String> {
    match value {
        DeValue::String(text) => text.parse().map_err(|error: limiter_core::LimitError| error.to_string()),
        _ => Err(wanted(value, "a limit such as \"100/1m fixed-window\"")),
    }
}

pub(super) fn allowance(value: &DeValue<'_>) -> Result<Allowance, String> {
    match value {
        DeValue::String(text) if text == "unlimited" => Ok(Allowance::Unlimited),
        _ => limit(value).map(Allowance::Limit),
    }
}

fn whole(value: &DeValue<'_>) -> Result<i128, String> {
    match value {
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| format!("{} is no whole number of a size that makes sense", quoted(number.as_str()))),
        _ => Err(wanted(value, "a whole number")),
    }
}

fn bounded(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let number = whole(value)?;
    if number < i128::from(least) {
        return Err(format!("{number} is under its bound of {least}"));
    }
    u64::try_from(number)
        .ok()
        .filter(|number| *number <= most)
        .ok_or_else(|| format!("{number} is over its bound of {most}"))
}

pub(super) fn small(value: &DeValue<'_>) -> Result<u8, String> {
    let number = bounded(value, 1, 128)?;
    u8::try_from(number).map_err(|_| format!("{number} is over its bound of 128"))
}

/// The cost of an endpoint: a number, or `{ cost = number }`.
pub(super) fn cost(value: &DeValue<'_>) -> Result<u64, String> {
    match value {
        DeValue::Table(table) if table.len() == 1 => match table.get("cost") {
            Some(cost) => bounded(cost.get_ref(), 0, MAX_BURST),
            None => Err("unknown field: cost is known".to_owned()),
        },
        DeValue::Table(_) => Err("an endpoint has one field, cost".to_owned()),
        _ => bounded(value, 0, MAX_BURST),
    }
}

pub(super) fn failure_policy(value: &DeValue<'_>) -> Result<FailurePolicy, String> {
    match value {
        DeValue::String(text) => {
            text.parse().map_err(|error: crate::layer::FailurePolicyError| format!("`{}`: {error}", quoted(text)))
        }
        _ => Err(wanted(value, "open, closed or local")),
    }
}

/// A duration such as `250ms` or `2s`.
pub(super) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    let DeValue::String(text) = value else { return Err(wanted(value, "a duration such as \"250ms\"")) };
    let wrong = || format!("`{}` is no duration: it is a whole number and ms, s or m", quoted(text));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).map(Duration::from_millis).ok_or_else(wrong)
}

pub(super) fn one_of<T: Copy>(value: &DeValue<'_>, names: &[(&str, T)]) -> Result<T, String> {
    let text = text(value)?;
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("`{}` is none of {}", quoted(&text), known.join(", "))
    })
}
