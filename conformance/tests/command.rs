//! The command: what it prints, what it writes, and its status.

use std::process::{Command, Output, Stdio};

#[expect(clippy::expect_used, reason = "without the command there is nothing to test")]
fn conformance(args: &[&str]) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_limiter-conformance")).args(args).output();
    command.expect("the command starts")
}

#[test]
fn the_report_is_a_table() {
    let output = conformance(&["layers::", "operations::", "--seed", "9"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for part in
        ["conformance of memory, seed 9", "layers", "operations", "admitted/due", "19 run, 0 not applicable, 0 failed"]
    {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let progress = String::from_utf8(output.stderr).unwrap();
    assert_eq!(progress.lines().count(), 19, "{progress}");
}

#[test]
fn the_report_is_json_and_junit_too() {
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("junit.xml");
    let output = conformance(&["keys", "failures", "--json", "--junit", junit.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["run"], 7);
    assert_eq!(report["not_applicable"], 3);
    assert_eq!(report["cases"][0]["group"], "keys");
    assert_eq!(report["cases"][0]["verdict"], "passed");
    assert_eq!(report["cases"][7]["verdict"], "not-applicable");
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("<testsuite name=\"keys\" tests=\"7\""), "{xml}");
    assert!(xml.contains("<skipped message=\"not applicable: "), "{xml}");
}

#[test]
fn what_did_not_run_proves_nothing() {
    // A misspelt filter is told, also beside one that is not.
    for args in
        [&["there-is-no-such-case"][..], &["layers", "there-is-no-such-case"], &["--list", "there-is-no-such-case"]]
    {
        let output = conformance(args);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.starts_with("limiter-conformance: no case has `there-is-no-such-case` in its name"), "{told}");
    }
    // These cases do not apply to memory.
    assert_eq!(conformance(&["failures"]).status.code(), Some(1));
    assert_eq!(conformance(&["layers::", "--at-least", "9"]).status.code(), Some(1));
}

#[test]
fn a_store_that_is_not_there_is_an_error_of_its_own() {
    let output = conformance(&["--store", "redis://:secret@127.0.0.1:1/", "layers"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_is_run() {
    let output = conformance(&["layers", "--junit", "/no/such/folder/junit.xml"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("limiter-conformance: /no/such/folder/junit.xml: No such file"), "{told}");
}

#[test]
fn the_cases_are_listed() {
    let text = String::from_utf8(conformance(&["--list"]).stdout).unwrap();
    assert_eq!(text.lines().count(), limiter_conformance::cases().len());
}

#[test]
fn the_report_is_ascii_where_the_locale_shows_no_more() {
    let print = |locale: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_limiter-conformance"));
        let output = command.args(["layers::"]).env("LC_ALL", locale).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(print("C").is_ascii(), "{}", print("C"));
    assert!(print("C.UTF-8").contains('│'));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    for args in [&["layers::"][..], &["layers::", "--json"], &["--list"], &["--chaos", "1", "--minutes", "1", "--list"]]
    {
        // A pipe whose reading end is closed before anything is written.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_limiter-conformance"));
        let output = command.args(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{args:?}: {:?} {told}", output.status);
        assert!(!told.contains("limiter-conformance:"), "{args:?}: {told}");
    }
}

#[test]
fn a_seed_of_chaos_is_a_plan_and_is_printed_first() {
    let plan = |seed: &str| {
        let output = conformance(&["--chaos", seed, "--minutes", "1", "--list"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = plan("42");
    assert!(text.starts_with("chaos from seed 42, about 1 min, "), "{text}");
    assert!(text.contains("  F02 ") && text.contains("  F04 not applicable: the store is in this process"), "{text}");
    assert_eq!(text, plan("42"));
    assert_ne!(text, plan("43"));
}

#[test]
fn chaos_starts_its_store_itself() {
    // It kills the store that it is given: never one of somebody else.
    let output = conformance(&["--chaos", "1", "--store", "redis://:secret@127.0.0.1/"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(told.contains("`redis`, `fred+redis`, `postgres` or `etcd`") && !told.contains("secret"), "{told}");
    let output = conformance(&["--minutes", "3"]);
    assert_eq!(output.status.code(), Some(2), "minutes of nothing");
}
