//! `limiter bench`: rows that add up, in both forms.

use super::{limiter, scratch};

#[test]
fn each_load_is_a_row_of_the_table() {
    let ended = limiter(&["bench", "--seconds", "1", "--tasks", "1,4", "--layers", "4"], "");
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    for tasks in ["1 tasks", "4 tasks"] {
        let row = ended.row(tasks);
        assert_eq!((row.len(), row[2], row[3], row[11]), (12, "1", "4", "0"), "{}", ended.out);
    }
}

#[test]
fn json_tells_what_was_denied() {
    let ended = limiter(
        &["bench", "--json", "--seconds", "1", "--tasks", "2", "--keys", "3", "--limit", "5/1h sliding-log"],
        "",
    );
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let rows = ended.json();
    assert_eq!(rows.len(), 1);
    let number = |name: &str| rows[0][name].as_u64().unwrap();
    // Five of each of the three keys, less the one that was taken to see whether the store answers.
    assert!(number("decided") > 20 && number("decided") - number("denied") == 14, "{}", ended.out);
    assert!(number("p50_ns") <= number("p99_ns") && number("p99_ns") <= number("max_ns"), "{}", ended.out);
}

#[test]
fn an_open_loop_keeps_to_its_rate() {
    let ended = limiter(&["bench", "--json", "--seconds", "1", "--rate", "200"], "");
    assert_eq!((ended.status, &ended.json()[0]["decided"], &ended.json()[0]["rate"]), (0, &200.into(), &200.into()));
}

#[test]
fn the_waits_of_all_rows_are_drawn() {
    let name = &*scratch("bench.svg");
    let ended = limiter(&["bench", "--seconds", "1", "--tasks", "1,2", "--plot", name], "");
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let drawn = std::fs::read_to_string(name).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    for told in ["on memory</text>", ">1 tasks, 1 keys, 1 layers: ", ">2 tasks, 1 keys, 1 layers: "] {
        assert!(drawn.contains(told), "{told}: {drawn}");
    }
    let ended = limiter(&["bench", "--plot", "no/such/place.svg"], "");
    assert!(ended.status == 2 && ended.err.contains("no/such/place.svg"), "{}", ended.err);
}

#[test]
fn what_is_out_of_bounds_is_named() {
    for (flag, value) in [("--tasks", "0"), ("--keys", "1000001"), ("--layers", "9"), ("--rate", "0")] {
        let ended = limiter(&["bench", flag, value], "");
        assert_eq!(ended.status, 2, "{flag}");
        assert!(ended.err.contains(flag) && ended.err.contains(value), "{}", ended.err);
    }
}

#[cfg(feature = "redis")]
#[test]
fn checks_share_calls_unless_the_flag_says_otherwise() {
    use limiter_conformance::store::wire::Resp;
    use limiter_conformance::store::{Kind, Launch};

    let store = Launch::new(Kind::Redis).own().start().unwrap();
    let mut server = Resp::connect(store.addr()).unwrap();
    // How many checks were decided, and how many calls of the script they took.
    let mut measure = |flags: &[&str]| {
        server.call(&["CONFIG", "RESETSTAT"]).unwrap();
        let base = ["bench", "--json", "--seconds", "1", "--tasks", "32", "--store", store.url()];
        let ended = limiter(&[&base, flags].concat(), "");
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        let stats = server.call(&["INFO", "commandstats"]).unwrap().text().to_owned();
        let (_, calls) = stats.split_once("cmdstat_evalsha:calls=").unwrap();
        let calls: u64 = calls.split_once(',').unwrap().0.parse().unwrap();
        (ended.json()[0]["decided"].as_u64().unwrap(), calls)
    };
    let (checks, calls) = measure(&[]);
    assert!(calls < checks / 2, "{calls} calls for {checks} checks");
    let (checks, calls) = measure(&["--no-group-commit"]);
    assert!(calls >= checks, "{calls} calls for {checks} checks");
}

#[cfg(feature = "redis")]
#[test]
fn a_store_that_is_not_there_is_an_error() {
    let ended = limiter(&["bench", "--store", "redis://127.0.0.1:1", "--seconds", "1"], "");
    assert_eq!((ended.status, ended.out.as_str()), (1, ""), "{}", ended.err);
}
