//! Where lines come from and where answers go.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use super::{command, limiter, scratch};

const LINE: &str = r#"{"t":1,"limits":[{"limit":"2/1s fixed-window","key":"k"}]}"#;

#[test]
fn a_file_and_standard_input_are_the_same() {
    let trace = scratch("trace.jsonl");
    let text = format!("{LINE}\n").repeat(3);
    fs::write(&trace, &text).unwrap();
    let of_file = limiter(&["replay", "--json", &trace], "");
    assert_eq!(of_file.out.lines().count(), 3);
    for args in [&["replay", "--json"][..], &["replay", "-", "--json"]] {
        assert_eq!(limiter(args, &text).out, of_file.out);
    }
    assert!(limiter(&["replay", &trace], "").out.starts_with("trace.jsonl: 2/1s fixed-window\n"));
    assert!(limiter(&["replay"], &text).out.starts_with("standard input: 2/1s fixed-window\n"));
}

#[test]
fn lines_may_end_in_any_usual_way() {
    let expected = limiter(&["replay", "--json"], format!("{LINE}\n{LINE}\n"));
    assert_eq!((expected.status, expected.out.lines().count()), (0, 2));
    for text in [
        format!("{LINE}\n{LINE}"),
        format!("{LINE}\r\n{LINE}\r\n"),
        format!("\u{feff}{LINE}\n\n \r\n{LINE}\n\n"),
        format!("  {LINE}  \n\t{LINE}\n"),
    ] {
        let ended = limiter(&["replay", "--json"], &text);
        assert_eq!((ended.status, ended.out, ended.err), (0, expected.out.clone(), String::new()), "{text:?}");
    }
}

#[test]
fn a_line_over_the_bound_is_skipped() {
    let long = LINE.replace("\"k\"", &format!("\"{}\"", "k".repeat(3 << 20)));
    let ended = limiter(&["replay", "--json"], format!("{LINE}\n{long}\n{LINE}"));
    assert_eq!(ended.status, 3);
    let reason = "the line is over its bound of 1048576 bytes";
    assert_eq!(ended.err, format!("limiter: line 2: {reason}\nlimiter: 1 of 3 lines could not be read\n"));
    let answers = ended.json();
    assert_eq!((answers.len(), &answers[1]["reason"]), (3, &reason.into()));
    // A key just below the bound is a key like any other.
    let long = LINE.replace("\"k\"", &format!("\"{}\"", "k".repeat((1 << 20) - 100)));
    assert_eq!(limiter(&["replay", "--json"], long).status, 0);
}

#[test]
fn an_answer_does_not_wait_for_the_next_line() {
    let mut child = command(&["replay", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        writeln!(stdin, "{LINE}").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"allowed\":"), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let trace = scratch("long.jsonl");
    fs::write(&trace, format!("{LINE}\n").repeat(20_000)).unwrap();
    let mut child =
        command(&["replay", "--json", &trace]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap()), (Some(0), String::new()));
}

#[test]
fn the_answer_of_a_log_is_in_the_order_of_its_lines() {
    let entry = |minute: u32| format!("h - - [20/May/2015:21:{minute:02}:00 +0000] \"GET / HTTP/1.1\" 200 5\n");
    let text = format!("{}{}no line of a log\n{}{}", entry(2), entry(2), entry(1), entry(3));
    let ended = limiter(&["replay", "--format", "clf", "--limit", "2/1m fixed-window", "--json"], text);
    let allowed: Vec<_> = ended.json().iter().map(|answer| answer.get("allowed").cloned()).collect();
    // The minute before is refused: the window is in the future, and full.
    assert_eq!(allowed, [Some(true.into()), Some(true.into()), None, Some(false.into()), Some(true.into())]);
    assert_eq!(ended.status, 3);
}

#[test]
fn the_trace_is_never_overwritten_by_its_plot() {
    let trace = scratch("trace-and-plot.jsonl");
    fs::write(&trace, LINE).unwrap();
    let ended = limiter(&["replay", &trace, "--plot", &trace], "");
    assert_eq!(ended.status, 2);
    assert!(ended.err.ends_with("is the trace itself\n"), "{}", ended.err);
    assert_eq!(fs::read_to_string(&trace).unwrap(), LINE);
}
