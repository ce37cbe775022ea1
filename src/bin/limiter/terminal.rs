//! What is told to people: lines on standard error, and what their terminal can show.

use std::borrow::Cow;
use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// Writes a line to standard error. Where that is closed there is nobody to tell.
pub(crate) fn tell(message: &str) {
    let _closed = writeln!(io::stderr().lock(), "limiter: {message}");
}

/// Somebody else's text, fit for a terminal: control characters are escaped, and what is over `most` characters is cut.
pub(crate) fn printable(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut printable = String::new();
    let mut chars = text.chars();
    for character in chars.by_ref().take(most) {
        if character.is_control() {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    if chars.next().is_some() {
        printable.push('…');
    }
    Cow::Owned(printable)
}

/// Whether the locale says that more than ASCII can be shown.
pub(crate) fn is_unicode() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Whether standard output takes colours and nobody asked for none (<https://no-color.org>).
pub(crate) fn is_coloured() -> bool {
    let asked_for_none = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !asked_for_none && !dumb
}

/// An empty table in the style of all that `limiter` prints, with numbers to the right in the columns `numbers`.
pub(crate) fn table(header: &[&str], numbers: &[usize], unicode: bool) -> Table {
    let mut table = Table::new();
    let line = if unicode { '─' } else { '-' };
    let rule = LineStyle::new(' ', line, ' ', ' ');
    table.load_style(TableStyle::new().header_separator(rule).bottom_border(rule));
    table.set_header(header);
    for index in numbers {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A whole number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `part` of `whole` in percent, with one decimal: what is left out is cut off, so 100 % is said only of all.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let tenths = u128::from(part) * 1000 / u128::from(whole);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// `part` as a multiple of `whole`, with two decimals, rounded down: `10×` is said only of what is.
pub(crate) fn times(part: u64, whole: u64, unicode: bool) -> String {
    let hundredths = (u128::from(part) * 100).checked_div(u128::from(whole)).unwrap_or_default();
    let mut text = (hundredths / 100).to_string();
    let rest = hundredths % 100;
    if rest > 0 {
        let _infallible = write!(text, ".{rest:02}");
    }
    text.push(if unicode { '×' } else { 'x' });
    text
}

#[cfg(test)]
mod tests {
    use super::{grouped, percent, printable, times};

    #[test]
    fn numbers_are_written_for_people() {
        let written: Vec<String> = [0, 7, 999, 1_000, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(written, ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (percent(1, 3), percent(999_999, 1_000_000), percent(0, 0)),
            ("33.3 %".into(), "99.9 %".into(), String::new())
        );
        assert_eq!(
            (times(5_000, 500, true), times(4_999, 500, false), times(1, 0, true)),
            ("10×".into(), "9.99x".into(), "0×".into())
        );
    }

    #[test]
    fn control_characters_reach_no_terminal() {
        assert_eq!(printable("plain", 9), "plain");
        assert_eq!(printable("\u{1b}[2J\u{9b}é", 9), "\\u{1b}[2J\\u{9b}é");
        assert_eq!(printable("abcdef", 3), "abc…");
    }
}
