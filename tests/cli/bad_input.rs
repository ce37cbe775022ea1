//! Bad input: one clear line that names it, and the good lines still count.

use std::fs;

use super::{limiter, scratch};

fn good(t: u64) -> String {
    format!(r#"{{"t":{t},"cost":1,"limits":[{{"limit":"2/1s fixed-window","key":"k"}}]}}"#)
}

fn with_limit(limit: &str) -> String {
    format!(r#"{{"t":1,"limits":[{{"limit":"{limit}","key":"k"}}]}}"#)
}

fn with(t: &str, cost: &str) -> String {
    format!(r#"{{"t":{t},"cost":{cost},"limits":[{{"limit":"2/1s fixed-window","key":"k"}}]}}"#)
}

/// Between two good lines, the bad one is told with its number and counted, and the second good line is the second
/// that passes.
#[track_caller]
fn check(bad: &[u8], reason: &str) {
    let mut input = format!("{}\n", good(1)).into_bytes();
    input.extend_from_slice(bad);
    input.extend_from_slice(format!("\n{}\n", good(1)).as_bytes());
    let ended = limiter(&["replay", "--json"], &input);
    assert_eq!(ended.err, format!("limiter: line 2: {reason}\nlimiter: 1 of 3 lines could not be read\n"));
    assert_eq!(ended.status, 3);
    let answers = ended.json();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[1], serde_json::json!({"error": "unreadable", "line": 2, "reason": reason}));
    assert_eq!((&answers[0]["layers"][0]["remaining"], &answers[2]["layers"][0]["remaining"]), (&1.into(), &0.into()));

    let ended = limiter(&["replay"], &input);
    assert_eq!(ended.err, format!("limiter: line 2: {reason}\nlimiter: 1 of 3 lines could not be read\n"));
    assert_eq!((ended.status, ended.row("requests")[1], ended.row("allowed")[1]), (3, "2", "2"));
    assert_eq!(ended.row("unreadable"), ["unreadable", "lines", "1"]);
}

#[test]
fn a_limit_out_of_its_bounds() {
    for (limit, reason) in [
        ("0/1s fixed-window", "amount 0 is under its bound of 1"),
        ("-1/1s fixed-window", "amount `-1` is not a whole number"),
        ("1.5/1s fixed-window", "amount `1.5` is not a whole number"),
        ("1e3/1s fixed-window", "amount `1e3` is not a whole number"),
        ("1000000000001/1s fixed-window", "amount 1000000000001 is over its bound of 1000000000000"),
        (
            "99999999999999999999999/1s fixed-window",
            "amount 99999999999999999999999 is over its bound of 1000000000000",
        ),
        ("100001/1s sliding-log", "amount 100001 of a sliding-log is over its bound of 100000"),
        ("1/999us fixed-window", "period 999us is out of its bounds, 1ms to 366d"),
        ("1/367d fixed-window", "period 367d is out of its bounds, 1ms to 366d"),
        ("1/1w fixed-window", "period `1w` has no unit of us, ms, s, m, min, h, d"),
        ("1/1s token-bucket burst=0", "burst 0 is under its bound of 1"),
        (
            "1/1s fixed-window burst=2",
            "burst does not go with fixed-window: burst is for token-bucket, queue for leaky-bucket",
        ),
        (
            "1/1s leaking-bucket",
            "unknown algorithm `leaking-bucket`: fixed-window, sliding-log, sliding-counter, token-bucket and \
             leaky-bucket are known",
        ),
        ("", "`` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]"),
    ] {
        check(with_limit(limit).as_bytes(), &format!("limits[0].limit: {reason}"));
    }
}

#[test]
fn a_number_out_of_its_bounds() {
    for (t, cost, reason) in [
        ("-1", "1", "t -1 is under its bound of 0"),
        ("1.5", "1", "t 1.5 is not a whole number"),
        ("9007199254740992", "1", "t 9007199254740992 is over its bound of 9007199254740991"),
        ("1e400", "1", "t 1e400 is not a whole number"),
        ("1", "-1", "cost -1 is under its bound of 0"),
        ("1", "0.5", "cost 0.5 is not a whole number"),
        ("1", "\"2\"", "cost \"2\" is not a whole number"),
        ("1", "1000000000002", "cost 1000000000002 is over its bound of 1000000000001"),
        ("1", "99999999999999999999", "cost 99999999999999999999 is over its bound of 1000000000001"),
    ] {
        check(with(t, cost).as_bytes(), reason);
    }
}

#[test]
fn a_line_that_is_no_check() {
    for (line, reason) in [
        (r#"{"t":1,"limits":[{"limit":"2/1s fixed"#, "column 37: the line is cut off: EOF while parsing a string"),
        (r#"{"t":1,"#, "column 7: the line is cut off: EOF while parsing a value"),
        (r#"{"t":1,"kost":2,"limits":[]}"#, "column 13: unknown field `kost`, expected one of `t`, `cost`, `limits`"),
        (r#"{"t":1,"t":2,"limits":[]}"#, "column 10: duplicate field `t`"),
        (r#"{"t":1,"cost":1}"#, "column 16: missing field `limits`"),
        (r#"{"t":1,"limits":[]}"#, "limits has 0 entries; its bounds are 1 to 64"),
        (r#"{"t":1,"limits":[{"limit":"2/1s fixed-window"}]}"#, "column 46: missing field `key`"),
        (
            r#"{"t":1,"limits":"2/1s fixed-window"}"#,
            "column 35: invalid type: string \"2/1s fixed-window\", expected a sequence",
        ),
        ("no JSON", "column 2: expected ident"),
        (
            r#"[1,1,[["2/1s fixed-window","k"]]]"#,
            "column 1: invalid type: sequence, expected an object with named fields",
        ),
        (
            r#"{"t":1,"limits":[["2/1s fixed-window","k"]]}"#,
            "column 17: invalid type: sequence, expected an object with named fields",
        ),
        ("7", "column 1: invalid type: integer `7`, expected an object with named fields"),
        (&format!("{} 1", good(1)), "column 69: trailing characters"),
        ("\u{feff}{}", "a byte order mark where a line begins that is not the first"),
        (
            r#"{"t":1,"\u001b[2J":2,"limits":[]}"#,
            "column 18: unknown field `\\u{1b}[2J`, expected one of `t`, `cost`, `limits`",
        ),
    ] {
        check(line.as_bytes(), reason);
    }
    let mut latin = good(1).into_bytes();
    let key = latin.len() - 5;
    latin[key] = 0xe9;
    check(&latin, &format!("column {}: byte 0xE9 is not UTF-8", key + 1));
}

#[test]
fn a_cost_over_the_limit_is_an_answer() {
    let over = with("1", "3");
    let ended = limiter(&["replay", "--json"], format!("{}\n{over}\n{}\n", good(1), good(1)));
    assert_eq!(ended.status, 0);
    assert_eq!(ended.err, "limiter: line 2: cost-exceeds-limit: cost 3 is over the capacity 2 of limits[0]\n");
    assert_eq!(ended.out.lines().nth(1), Some(r#"{"error":"cost-exceeds-limit"}"#));
    assert_eq!(ended.json()[2]["layers"][0]["remaining"], 0);
    let ended = limiter(&["replay"], format!("{}\n{over}\n", good(1)));
    assert_eq!((ended.status, ended.row("requests")[1], ended.row("allowed")[1]), (0, "2", "1"));
    assert_eq!(ended.row("cost over the limit")[4], "1");
}

#[test]
fn one_key_under_two_limits_is_two_states() {
    let line = r#"{"t":1,"limits":[{"limit":"2/1s fixed-window","key":"k"},{"limit":"2/1s fixed-window","key":"k"}]}"#;
    let ended = limiter(&["replay", "--json"], line);
    assert_eq!(ended.status, 0);
    let layers = ended.json()[0]["layers"].clone();
    assert_eq!((&layers[0]["remaining"], &layers[1]["remaining"]), (&1.into(), &1.into()));
}

#[test]
fn nothing_to_read() {
    let empty = scratch("empty.jsonl");
    for content in ["", "\n\n \r\n", "\u{feff}", "\u{feff}\n"] {
        fs::write(&empty, content).unwrap();
        for args in [&["replay", &empty][..], &["replay", &empty, "--json"]] {
            let ended = limiter(args, "");
            assert_eq!((ended.status, ended.out.as_str()), (3, ""));
            assert_eq!(ended.err, "limiter: empty.jsonl is empty: there is no check in it\n");
        }
    }
    let ended = limiter(&["replay"], "");
    assert_eq!(ended.err, "limiter: standard input is empty: there is no check in it\n");
}

#[test]
fn a_file_that_is_none() {
    for (path, reason) in [("/no/such/trace", "No such file or directory (os error 2)"), ("/", "is a directory")] {
        let ended = limiter(&["replay", path, "--json"], "");
        assert_eq!((ended.status, ended.out.as_str()), (2, ""));
        assert_eq!(ended.err, format!("limiter: {path}: {reason}\n"));
    }
}

#[test]
fn a_bad_line_of_a_log() {
    let line = "h - - [20/May/2015:21:05:00 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let args = ["replay", "--format", "clf", "--limit", "2/1m fixed-window"];
    let input =
        [line.as_bytes(), b"h - - [20/May/2015:25:05:00 +0000] \"\xff\" 200 5\n", b"\x00\x01\n", line.as_bytes()];
    let ended = limiter(&args, input.concat());
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ended.err);
    assert!(lines[0].starts_with("limiter: line 2: time `20/May/2015:25:05:00 +0000`: "), "{}", ended.err);
    assert_eq!(lines[1], "limiter: line 3: ident: the line ends before it");
    assert_eq!(lines[2], "limiter: 2 of 4 lines could not be read");
    assert_eq!((ended.status, ended.row("allowed")[1]), (3, "2"));
    // Bytes that are not text are no fault of a log's.
    let ended = limiter(&args, line.replace('h', "\u{1}").replace("GET", "\u{2}"));
    assert_eq!(ended.status, 0);
}
