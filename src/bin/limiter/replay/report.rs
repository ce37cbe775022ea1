//! What a replay tells people at its end.

use std::io::{self, Write};

use jiff::Timestamp;

use super::tally::Tally;
use super::top::Denied;
use crate::terminal::{self, grouped, percent};

/// The report. `top` is how many of the keys denied most it lists.
pub(super) fn write(out: &mut impl Write, tally: &Tally, heading: &str, top: usize) -> io::Result<()> {
    let unicode = terminal::is_unicode();
    writeln!(out, "{heading}\n")?;
    writeln!(out, "{}\n", summary(tally, unicode))?;
    for line in times(tally) {
        writeln!(out, "{line}")?;
    }
    if top == 0 || tally.keys.len() == 0 {
        return Ok(());
    }
    let most = tally.keys.most(top);
    let mut table = terminal::table(&["keys denied most", "denied", "limit"], &[1], unicode);
    for count in &most {
        let exact = if count.or_more == 0 { "" } else { "at least " };
        table.add_row([count.name.clone(), format!("{exact}{}", grouped(count.denied)), count.limit.to_string()]);
    }
    writeln!(out, "\n{table}")?;
    let others = tally.keys.len() - most.len();
    if tally.keys.missed() > 0 {
        writeln!(
            out,
            "\nMore than {} keys were denied, and those denied least were forgotten on the way: a count that says\n\
             `at least`, and one that is not listed, may be up to {} higher.",
            grouped(u64::try_from(Denied::MAX_KEYS).unwrap_or(u64::MAX)),
            grouped(tally.keys.missed())
        )?;
    } else if others > 0 {
        writeln!(out, "and {} more; --top N lists more of them", grouped(u64::try_from(others).unwrap_or(u64::MAX)))?;
    }
    Ok(())
}

fn summary(tally: &Tally, unicode: bool) -> comfy_table::Table {
    let mut table = terminal::table(&["", "checks", "share"], &[1, 2], unicode);
    let requests = tally.lines - tally.unreadable;
    let mut row = |name: &str, count: u64, share: String| {
        table.add_row([name.to_owned(), grouped(count), share]);
    };
    row("requests", requests, String::new());
    row("allowed", tally.allowed, percent(tally.allowed, requests));
    row("denied", tally.denied, percent(tally.denied, requests));
    let rare = [
        ("cost over the limit", tally.over_cost),
        ("not decided by the store", tally.not_sent),
        ("maybe charged by the store", tally.unknown),
    ];
    for (name, count) in rare.into_iter().filter(|(_, count)| *count > 0) {
        row(name, count, percent(count, requests));
    }
    row("time went back", tally.back, percent(tally.back, requests));
    row("unreadable lines", tally.unreadable, String::new());
    table
}

/// When it was, and which minute was worst.
fn times(tally: &Tally) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((first, last)) = tally.span {
        let length = last.micros() - first.micros();
        lines.push(format!("from {} to {} UTC, {}", instant(first.micros()), instant(last.micros()), duration(length)));
    }
    if let Some((start, counts)) = tally.minutes.worst() {
        let minute = date(start).map_or_else(String::new, |date| date.strftime("%F %H:%M").to_string());
        lines.push(format!(
            "worst minute: {minute} UTC, {} denied of {} checks",
            grouped(counts.denied),
            grouped(counts.all())
        ));
    }
    lines
}

/// An instant in UTC, for formatting. There is one for each instant that a limit knows.
pub(super) fn date(micros: u64) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()
}

fn instant(micros: u64) -> String {
    let format = if micros.is_multiple_of(1_000_000) { "%F %T" } else { "%F %T%.f" };
    date(micros).map_or_else(String::new, |date| date.strftime(format).to_string())
}

/// The two largest units of a length of time.
pub(super) fn duration(micros: u64) -> String {
    const UNITS: [(&str, u64); 6] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];
    let mut rest = micros;
    let parts: Vec<String> = UNITS
        .iter()
        .filter_map(|(name, unit)| {
            let count = rest / unit;
            rest %= unit;
            (count > 0).then(|| format!("{} {name}", grouped(count)))
        })
        .take(2)
        .collect();
    if parts.is_empty() { "0 s".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::{duration, instant};

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(duration(0), "0 s");
        assert_eq!(duration(298_859_000_000), "3 d 11 h");
        assert_eq!(duration(1_500), "1 ms 500 us");
        assert_eq!(instant(1_432_155_900_000_000), "2015-05-20 21:05:00");
        assert_eq!(instant(1_432_155_900_250_000), "2015-05-20 21:05:00.25");
    }
}
