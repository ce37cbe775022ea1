//! `--chaos`: the fault rows on a store that is started for each of them.

use std::io::Write;
use std::time::Duration;

use limiter_core::Backend;
use serde::Serialize;

use super::{Arguments, Ended, kind, unread};
use crate::case::Failure;
use crate::fault::chaos::Plan;
use crate::fault::{Row, RowReport, Site, Verdict, Worst, rows, soak};
use crate::subject::BoxError;

/// The whole, for programs.
#[derive(Serialize)]
struct Whole<'r> {
    passed: bool,
    seed: u64,
    minutes: u64,
    rows: &'r [RowReport],
}

/// Prints the plan, then a line for each row.
pub(super) fn run<F, Fut, B>(arguments: &Arguments, seed: u64, connect: F) -> Result<bool, Ended>
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
    B: Backend,
{
    let site = site(&arguments.store, connect)?;
    let mut output = std::io::stdout().lock();
    let minutes = arguments.minutes;
    if arguments.soak {
        let report = soak::run(&site, seed, Duration::from_mins(minutes));
        let reports = [report];
        if arguments.json {
            return finish(arguments, seed, &reports);
        }
        writeln!(output, "{}", reports.each_ref().map(ToString::to_string).concat()).map_err(unread)?;
        return Ok(reports.iter().all(passed));
    }
    let named = |row: &Row, name: &String| row.id().eq_ignore_ascii_case(name);
    if let Some(name) = arguments.filters.iter().find(|name| !rows().iter().any(|row| named(row, name))) {
        return Err(Failure::new(format!("there is no row `{name}`; --list shows all")).into());
    }
    let wanted = |row: &Row| arguments.filters.is_empty() || arguments.filters.iter().any(|name| named(row, name));
    let plan = Plan::of_rows(&site, seed, minutes, wanted);
    if arguments.list || !arguments.json {
        write!(output, "{plan}").map_err(unread)?;
        output.flush().map_err(unread)?;
    }
    if arguments.list {
        return Ok(true);
    }
    let mut written = Ok(());
    let reports = plan.run(&site, |report| {
        if !arguments.json && written.is_ok() {
            written = writeln!(output, "{report}").and_then(|()| output.flush());
        }
    });
    written.map_err(unread)?;
    if arguments.json {
        drop(output);
        return finish(arguments, seed, &reports);
    }
    let worst_of_each = Worst::of(&reports);
    if worst_of_each.len() < reports.len() {
        writeln!(output, "\nof each row the worst:").map_err(unread)?;
        for worst in worst_of_each {
            writeln!(output, "{worst}").map_err(unread)?;
        }
    }
    let broken = reports.iter().filter(|report| !passed(report)).count();
    writeln!(output, "{} rows from seed {seed}, {broken} broken", reports.len()).map_err(unread)?;
    Ok(broken == 0 && !reports.is_empty())
}

fn passed(report: &RowReport) -> bool {
    !matches!(report.verdict, Verdict::Broken { .. })
}

fn finish(arguments: &Arguments, seed: u64, rows: &[RowReport]) -> Result<bool, Ended> {
    let passed = !rows.is_empty() && rows.iter().all(passed);
    let whole = Whole { passed, seed, minutes: arguments.minutes, rows };
    let json = serde_json::to_string_pretty(&whole).map_err(Failure::from)?;
    writeln!(std::io::stdout().lock(), "{json}").map_err(unread)?;
    Ok(passed)
}

/// The site of a store that is named by its kind: one of somebody else is not ours to kill.
fn site<F, Fut, B>(store: &str, connect: F) -> Result<Site, Failure>
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
    B: Backend,
{
    if store == "memory:" {
        return Ok(Site::memory());
    }
    match kind(store) {
        // As a service connects: calls go in groups, and may wait for the group before.
        Some((driver, kind)) => Ok(Site::of(kind, store, connect).scheme(driver).turns(2)),
        None => Err(Failure::new(
            "chaos kills the store that it is given, and starts its own: name `memory:`, `redis`, `fred+redis`, `postgres` or `etcd`",
        )),
    }
}
