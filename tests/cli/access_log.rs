//! A real access log, whose time goes back over and over, against a count by other means.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use super::{Ended, file, limiter, scratch};

fn log() -> String {
    file("examples/data/access.log").to_str().unwrap().to_owned()
}

fn replay(more: &[&str]) -> Ended {
    let log = log();
    let mut args = vec!["replay", &log, "--format", "clf"];
    args.extend_from_slice(more);
    limiter(&args, "")
}

/// What `awk` says: the address of each line, and whether it may pass.
fn counted(amount: u64) -> Vec<(String, bool)> {
    let script = file("tests/cli/sliding_log.awk");
    let amount = format!("amount={amount}");
    let output =
        Command::new("awk").args(["-v", &amount, "-v", "window=60", "-f"]).arg(script).arg(log()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| line.rsplit_once(' ').map(|(ip, passes)| (ip.to_owned(), passes == "1")).unwrap();
    text.lines().map(line).collect()
}

#[test]
fn every_line_is_decided_as_awk_decides_it() {
    for amount in [1, 10] {
        let counted = counted(amount);
        assert_eq!(counted.len(), 10_000);
        let ended = replay(&["--json", "--limit", &format!("{amount}/1m sliding-log")]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        let answers = ended.json();
        assert_eq!(answers.len(), counted.len());
        for (number, (answer, (ip, passes))) in answers.iter().zip(&counted).enumerate() {
            assert_eq!(answer["allowed"], *passes, "line {} of {ip}: {answer}", number + 1);
        }
    }
}

#[test]
fn the_report_has_awks_totals_and_awks_count_of_every_key() {
    let mut denied = BTreeMap::new();
    for (ip, passes) in counted(10) {
        *denied.entry(ip).or_insert(0) += u64::from(!passes);
    }
    denied.retain(|_, count| *count > 0);
    let ended = replay(&["--key", "ip", "--limit", "10/1m sliding-log", "--top", "10000"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    assert_eq!(number(ended.row("requests")[1]), 10_000);
    assert_eq!(number(ended.row("denied")[1]), denied.values().sum::<u64>());
    assert_eq!(number(ended.row("denied")[1]), 1_729);
    assert_eq!(number(ended.row("allowed")[1]), 10_000 - 1_729);
    let rows = ended.out.lines().filter(|line| line.contains("198.18."));
    let listed: BTreeMap<String, u64> = rows
        .map(|row| row.split_whitespace())
        .map(|mut row| (row.next().unwrap().to_owned(), number(row.next().unwrap())))
        .collect();
    assert_eq!(listed, denied);
}

#[test]
fn the_report_tells_the_span_the_worst_minute_and_the_keys_denied_most() {
    let ended = replay(&["--key", "ip", "--limit", "10/1m sliding-log", "--top", "2"]);
    assert!(ended.out.starts_with("access.log: 10/1m sliding-log by ip\n"), "{}", ended.out);
    assert!(ended.out.contains("from 2015-05-17 10:05:00 to 2015-05-20 21:05:59 UTC, 3 d 11 h\n"), "{}", ended.out);
    assert!(ended.out.contains("worst minute: 2015-05-18 08:05 UTC, 98 denied of 110 checks\n"), "{}", ended.out);
    assert_eq!(ended.row("198.18.4.137"), ["198.18.4.137", "284", "10/1m", "sliding-log"]);
    assert!(ended.out.ends_with("and 77 more; --top N lists more of them\n"), "{}", ended.out);
}

#[test]
fn several_limits_are_one_decision() {
    let ended = replay(&[
        "--json",
        "--key",
        "ip",
        "--limit",
        "10/1m sliding-log",
        "--key",
        "global",
        "--limit",
        "50/1m fixed-window",
    ]);
    assert_eq!(ended.status, 0);
    let mut seen = BTreeMap::new();
    for answer in ended.json() {
        let layers = answer["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 2);
        let passes = |index: usize| layers[index]["allowed"] == true;
        assert_eq!(answer["allowed"], passes(0) && passes(1));
        *seen.entry((passes(0), passes(1))).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 4, "each limit refuses alone, and both together: {seen:?}");
    let both = replay(&[
        "--key",
        "ip",
        "--limit",
        "10/1m sliding-log",
        "--key",
        "global",
        "--limit",
        "50/1m fixed-window",
        "--top",
        "1000",
    ]);
    let blamed = both.row("(all)")[1].replace(',', "").parse::<u64>().unwrap();
    assert_eq!(blamed, seen[&(true, false)] + seen[&(false, false)]);
}

#[test]
fn a_combination_of_fields_is_one_key() {
    let denied = |key: &str| {
        let ended = replay(&["--key", key, "--limit", "1/366d fixed-window", "--top", "0"]);
        assert_eq!(ended.status, 0, "{}", ended.err);
        10_000 - ended.row("denied")[1].replace(',', "").parse::<usize>().unwrap()
    };
    // One request passes of each key: so many keys are there.
    let log = fs::read_to_string(log()).unwrap();
    let distinct = |key: &dyn Fn(Vec<&str>) -> String| {
        log.lines().map(|line| key(line.split(' ').collect())).collect::<std::collections::HashSet<_>>().len()
    };
    let path = |words: &[&str]| words[6].split('?').next().unwrap().to_owned();
    assert_eq!(denied("ip"), distinct(&|words| words[0].to_owned()));
    assert_eq!(denied("path"), distinct(&|words| path(&words)));
    assert_eq!(denied("target"), distinct(&|words| words[6].to_owned()));
    assert_eq!(denied("ip,path"), distinct(&|words| format!("{} {}", words[0], path(&words))));
    assert_eq!(denied("method,status"), distinct(&|words| format!("{} {}", words[5], words[8])));
    assert_eq!(denied("global"), 1);
}

#[test]
fn the_plot_shows_every_check() {
    let plot = scratch("access.svg");
    let ended = replay(&["--limit", "10/1m sliding-log", "--plot", &plot]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("access.log: 10/1m sliding-log by ip</text>"));
    assert!(svg.contains("10,000 checks: 8,271 admitted, 1,729 denied"));
    let (mut admitted, mut denied) = (0, 0);
    for title in svg.split("<title>").skip(1).map(|rest| rest.split("</title>").next().unwrap()) {
        let counts: Vec<u64> = title.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        let [bin_admitted, bin_denied] = counts[..] else { panic!("{title}") };
        admitted += bin_admitted;
        denied += bin_denied;
    }
    assert_eq!((admitted, denied), (8_271, 1_729));
    // Written again, nothing is left of a longer picture.
    fs::write(&plot, "x".repeat(1_000_000)).unwrap();
    assert_eq!(replay(&["--limit", "10/1m sliding-log", "--plot", &plot]).status, 0);
    assert_eq!(fs::read_to_string(&plot).unwrap(), svg);
}
