//! The tester, tested: an engine that does right goes through all rows, and each planted fault is caught by the row that is meant
//! for it.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use std::io::Write as _;

use limiter_conformance::fault::planted::{Plant, connect, site, site_with_fallback};
use limiter_conformance::fault::{Site, Terms, Verdict, rows, run_row};
use limiter_conformance::fault_rows;

fault_rows!(site(None), connect);

mod memory {
    use super::*;

    fault_rows!(Site::memory());
}

fn with_worker(site: Site) -> Site {
    site.worker_args(["faults::worker", "--exact", "--nocapture"].map(str::to_owned))
}

/// The figures that broke, or why it was not caught.
fn caught(plant: Plant, id: &str) -> Result<String, String> {
    let row = rows().into_iter().find(|row| row.id() == id).ok_or_else(|| format!("there is no row {id}"))?;
    match run_row(&with_worker(site(Some(plant))), &row, Terms::default()).verdict {
        Verdict::Broken { why } if why.starts_with("panicked") => Err(format!("{plant}: {id} {why}")),
        Verdict::Broken { why } => Ok(format!("{plant}: {id}: {}", why.lines().next().unwrap_or_default())),
        other => Err(format!("{plant}: {id} did not catch it: {other:?}")),
    }
}

#[test]
fn every_planted_fault_is_caught() {
    let mut missed = Vec::new();
    for (plant, id) in Plant::ALL {
        match caught(plant, id) {
            Ok(how) => drop(writeln!(std::io::stderr(), "{how}")),
            Err(why) => missed.push(why),
        }
    }
    assert!(missed.is_empty(), "{} of {} were missed:\n{}", missed.len(), Plant::ALL.len(), missed.join("\n"));
}

#[test]
fn a_fallback_that_keeps_to_the_limit_passes() {
    let row = rows().into_iter().find(|row| row.id() == "F29").unwrap();
    let report = run_row(&with_worker(site_with_fallback()), &row, Terms::default());
    let _ = writeln!(std::io::stderr(), "{report}");
    assert_eq!(report.verdict, Verdict::Held, "{report}");
}
