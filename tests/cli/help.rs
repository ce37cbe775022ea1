//! What `--help` says is so.

use super::limiter;

#[test]
fn help_names_what_there_is() {
    let ended = limiter(&["--help"], "");
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    for name in ["replay", "demo", "conformance", "check-policy"] {
        assert!(ended.out.contains(name), "{}", ended.out);
    }
    let ended = limiter(&["replay", "--help"], "");
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    for part in [
        "[FILE]",
        "--format",
        "--limit",
        "--key",
        "--cost",
        "--json",
        "--plot",
        "--top",
        "--store",
        r#"{"error":"cost-exceeds-limit"}"#,
        "3  some lines could not be read, or there was none",
    ] {
        assert!(ended.out.contains(part), "{part}: {}", ended.out);
    }
    assert!(ended.out.lines().all(|line| line.chars().count() <= 100), "{}", ended.out);
    let ended = limiter(&["--version"], "");
    assert_eq!((ended.status, ended.out), (0, format!("limiter {}\n", env!("CARGO_PKG_VERSION"))));
}

/// What help shows from `start` on, put on one line as it says.
fn shown(help: &str, start: &str) -> String {
    let from = help.split(start).nth(1).unwrap_or_else(|| panic!("{start}: {help}"));
    let lines = from.split("]}").next().unwrap().lines().map(str::trim);
    format!("{start}{}]}}", lines.collect::<String>())
}

#[test]
fn the_line_that_help_shows_can_be_replayed() {
    let help = limiter(&["replay", "--help"], "").out;
    let answer = limiter(&["replay", "--json"], shown(&help, r#"{"t": "#));
    assert_eq!((answer.status, answer.err.as_str()), (0, ""));
    assert_eq!(answer.out, format!("{}\n", shown(&help, r#"{"allowed":true,"retry_after":null,"delay":0,"layers":["#)));
}

#[test]
fn a_command_that_is_not_as_it_should_be_does_nothing() {
    let clf = ["replay", "--format", "clf"];
    let wrong: [(&[&str], &str); 12] = [
        (&[], "Usage: limiter <COMMAND>"),
        (&["replai"], "unrecognized subcommand 'replai'"),
        (&clf, "--format clf needs a --limit"),
        (&["replay", "--limit", "1/1m sliding-log"], "--limit, --key and --cost are for --format clf"),
        (&["replay", "--cost", "1"], "--limit, --key and --cost are for --format clf"),
        (&["replay", "--format", "clf", "--limit", "0/1m sliding-log"], "amount 0 is under its bound of 1"),
        (&["replay", "--format", "clf", "--limit", "1/1m sliding-lag"], "unknown algorithm `sliding-lag`"),
        (
            &["replay", "--format", "clf", "--limit", "9/1m sliding-log", "--cost", "10"],
            "--cost 10 can never pass `9/1m sliding-log`: it is over its bound of 9",
        ),
        (
            &["replay", "--format", "clf", "--limit", "9/1m sliding-log", "--key", "ip", "--key", "path"],
            "there are 2 --key for 1 --limit",
        ),
        (
            &["replay", "--format", "clf", "--limit", "9/1m sliding-log", "--key", "header:accept"],
            "an access log has no header `accept`",
        ),
        (&["replay", "--store", "mysql://user:secret@host"], "store URL: the scheme is none of"),
        (&["replay", "--plot", "/no/such/folder/out.svg"], "/no/such/folder/out.svg: No such file"),
    ];
    for (args, reason) in wrong {
        let ended = limiter(args, "");
        assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{args:?}");
        assert!(ended.err.contains(reason) && !ended.err.contains("secret"), "{args:?}: {}", ended.err);
    }
}
