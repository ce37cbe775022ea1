//! The command: what it prints, what it writes, and its status.

use std::process::{Command, Output};

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
        assert!(told.starts_with("error: no case has `there-is-no-such-case` in its name"), "{told}");
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
    assert!(told.starts_with("error: /no/such/folder/junit.xml: No such file"), "{told}");
}

#[test]
fn the_cases_are_listed() {
    let text = String::from_utf8(conformance(&["--list"]).stdout).unwrap();
    assert_eq!(text.lines().count(), limiter_conformance::cases().len());
}
