//! The tester, tested: the suite passes the simple engine, and catches each planted fault by the case that is meant for it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;

use limiter_conformance::mutant::{Fault, subject};
use limiter_conformance::{Options, Verdict, cases, conformance_suite, run, run_case};

// The engine without a fault passes, by name.
conformance_suite!(limiter_conformance::mutant::subject(None));

/// Few calls: a fault that takes luck to be seen has not been planted well.
fn options() -> Options {
    Options::default().calls(2_400)
}

/// The first line of why a case failed.
fn verdict(fault: Fault, case: &str) -> Result<String, String> {
    let found = cases().into_iter().find(|known| known.path() == case);
    let found = found.ok_or_else(|| format!("{fault}: there is no case {case}"))?;
    match run_case(&subject(Some(fault)), &found, &options()).verdict {
        Verdict::Failed { why } if why.starts_with("panicked") => Err(format!("{fault}: {case} {why}")),
        Verdict::Failed { why } => Ok(short(&why)),
        other => Err(format!("{fault}: {case} did not catch it: {other:?}")),
    }
}

/// What a failure says, without the scopes of its keys.
fn short(why: &str) -> String {
    let mut text = why.lines().collect::<Vec<_>>().join(" ");
    while let Some(start) = text.find("rl:{") {
        let end = text[start..].find("}:").map_or(text.len(), |end| start + end + 2);
        text.replace_range(start..end, "");
    }
    text.chars().take(110).collect()
}

#[test]
fn every_planted_fault_is_caught() {
    let left = Mutex::new(Fault::ALL.to_vec());
    let caught = Mutex::new(Vec::new());
    // Most of the time they sleep, so more at a time than there are cores.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((fault, case)) = { left.lock().unwrap().pop() } {
                    caught.lock().unwrap().push((fault, case, verdict(fault, case)));
                }
            });
        }
    });
    let mut caught = caught.into_inner().unwrap();
    caught.sort_by_key(|(fault, _, _)| Fault::ALL.iter().position(|(known, _)| known == fault));
    let mut table = String::new();
    for (fault, case, verdict) in &caught {
        let (sign, why) = match verdict {
            Ok(why) => ("caught", why),
            Err(why) => ("MISSED", why),
        };
        writeln!(table, "{sign}  {:<20} {case:<42} {why}", fault.to_string()).unwrap();
    }
    let all = Fault::ALL.len();
    let sum = caught.iter().filter(|(_, _, verdict)| verdict.is_ok()).count();
    let reported = caught.iter().take(Fault::REPORTED).filter(|(_, _, verdict)| verdict.is_ok()).count();
    // Past the harness's capture: the figure is a part of what the suite is worth.
    let figure = format!("{reported}/{} of the reported faults caught, {sum}/{all} in all", Fault::REPORTED);
    std::io::stderr().write_all(format!("{table}{figure}\n").as_bytes()).unwrap();
    assert_eq!(sum, all, "\n{table}");
}

#[test]
fn the_engine_without_a_fault_lacks_only_a_nodes_clock() {
    let report = run(&subject(None), &options().filter("clock::"));
    assert!(report.passed(), "{report}");
    assert_eq!(report.not_applicable(), 3, "{report}");
}
