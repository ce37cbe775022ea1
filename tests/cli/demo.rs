//! `limiter demo`: the numbers are counted, so they have to come out as the contract says.

use super::{Ended, command, limiter};

fn told(args: &[&str]) -> serde_json::Value {
    let mut all = vec!["demo", "--json"];
    all.extend_from_slice(args);
    let Ended { status, err, out } = limiter(&all, "");
    assert_eq!((status, err.as_str()), (0, ""));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn ten_nodes_let_ten_times_the_limit_through_and_one_store_exactly_the_limit() {
    for algorithm in ["fixed-window", "sliding-log"] {
        for _ in 0..5 {
            let told = told(&["--limit", &format!("100/1m {algorithm}")]);
            assert_eq!((&told["granted"], &told["requests"]), (&500.into(), &15_000.into()));
            for (run, each) in [("own", 1_000), ("shared", 100)] {
                let run = &told[run];
                assert_eq!(run["allowed"], 5 * each);
                assert_eq!(run["denied"], 15_000 - 5 * each);
                assert_eq!(run["undecided"], 0);
                let periods = run["by_period"].as_array().unwrap();
                assert_eq!(periods.len(), 5);
                for period in periods {
                    let nodes: Vec<u64> =
                        period.as_array().unwrap().iter().map(|node| node.as_u64().unwrap()).collect();
                    assert_eq!((nodes.len(), nodes.iter().sum::<u64>()), (10, each));
                }
            }
        }
    }
}

#[test]
fn what_is_not_so_is_not_said() {
    // Too little traffic for each node to reach its limit: 30 of 100.
    let told = told(&["--requests", "300"]);
    assert_eq!((&told["own"]["allowed"], &told["shared"]["allowed"]), (&1_500.into(), &500.into()));
    let ended = limiter(&["demo", "--requests", "300"], "");
    assert!(ended.out.contains("through: 3× the 500 that the limit grants in 5 minutes."), "{}", ended.out);
}

#[test]
fn nodes_and_periods_can_be_chosen() {
    let told = told(&["--nodes", "3", "--limit", "7/13s fixed-window", "--minutes", "2", "--requests", "100"]);
    assert_eq!((&told["own"]["allowed"], &told["shared"]["allowed"]), (&42.into(), &14.into()));
    for wrong in [
        ["--nodes", "0"],
        ["--nodes", "101"],
        ["--periods", "0"],
        ["--requests", "0"],
        ["--limit", "0/1m fixed-window"],
    ] {
        let ended = limiter(&["demo", wrong[0], wrong[1]], "");
        assert_eq!((ended.status, ended.out.as_str()), (2, ""));
        assert!(ended.err.contains(wrong[0]), "{}", ended.err);
    }
}

#[test]
fn the_picture_fits_the_terminal() {
    let ended = limiter(&["demo"], "");
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(ended.out.contains("█████│▒▒▒▒▒█████"), "{}", ended.out);
    assert_eq!(ended.row("all"), ["all", "15,000", "5,000", "=", "10×", "500", "=", "1×"]);
    assert!(!ended.out.contains('\u{1b}'), "no colours where there is no terminal");
    assert!(ended.out.lines().filter(|line| line.contains('│')).all(|line| line.chars().count() <= 80));
    let plain = command(&["demo"]).env("LANG", "C").output().unwrap();
    assert!(plain.stdout.is_ascii(), "{}", String::from_utf8_lossy(&plain.stdout));
    assert_eq!(limiter(&["demo", "--ascii"], "").out.as_bytes(), plain.stdout);
}
