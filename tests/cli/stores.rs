//! The command on Redis, by both drivers: as on memory, and without a secret in what it says.

use std::fmt::Write;

use limiter_conformance::store::topology::RedisCluster;
use limiter_conformance::store::wire::Resp;
use limiter_conformance::store::{Kind, Launch, Store, shared};
use limiter_conformance::vectors;

use super::vectors::{answers, lines};
use super::{limiter, scratch};

/// A URL for each driver that this build has.
fn both(url: &str) -> Vec<String> {
    let drivers = [("redis", cfg!(feature = "redis")), ("fred", cfg!(feature = "fred"))];
    drivers
        .iter()
        .filter(|(_, built)| *built)
        .map(|(driver, _)| if *driver == "fred" { format!("fred+{url}") } else { url.to_owned() })
        .collect()
}

#[test]
fn every_trace_gets_the_worked_answers_from_the_store() {
    let vectors = vectors::all().unwrap();
    // One run of the command for all of them, as a trace; the keys tell them apart.
    for url in both(shared(Kind::Redis).unwrap().url()) {
        let mut steps = 0;
        for vector in &vectors {
            let ended = limiter(&["replay", "--json", "--store", &url], lines(vector));
            assert_eq!(ended.status, 0, "{}: {}", vector.case, ended.err);
            let expected: Vec<_> = vector.steps.iter().map(|step| step.expected.clone()).collect();
            assert_eq!(answers(&ended), expected, "{}", vector.case);
            steps += expected.len();
        }
        assert_eq!(steps, 5_760);
    }
}

#[test]
fn an_access_log_gets_the_same_report_as_from_memory() {
    let path = scratch("stores.log");
    let mut log = String::new();
    for line in 0..300 {
        let (minute, second) = (line / 60, line % 60);
        writeln!(
            log,
            "10.0.0.{} - - [01/Dec/2026:10:{minute:02}:{second:02} +0000] \"GET /{} HTTP/1.1\" 200 5",
            line % 3,
            line % 7
        )
        .unwrap();
    }
    std::fs::write(&path, log).unwrap();
    let args = |store: &str| {
        [
            "replay",
            "--format",
            "clf",
            "--limit",
            "5/1m sliding-log",
            "--limit",
            "50/5m token-bucket",
            "--key",
            "ip",
            "--key",
            "path",
            "--json",
            "--store",
            store,
            &path,
        ]
        .map(str::to_owned)
    };
    let run = |store: &str| {
        let args = args(store);
        let ended = limiter(&args.iter().map(String::as_str).collect::<Vec<_>>(), "");
        assert_eq!(ended.status, 0, "{}", ended.err);
        ended.out
    };
    let memory = run("memory:");
    assert_eq!(memory.lines().count(), 300);
    for url in both(shared(Kind::Redis).unwrap().url()) {
        assert_eq!(run(&url), memory);
    }
}

#[test]
fn the_demo_counts_the_same_on_a_shared_store() {
    let run = |store: &str| {
        let ended = limiter(&["demo", "--json", "--requests", "300", "--store", store], "");
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        let told: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        (told["own"]["allowed"].clone(), told["shared"]["allowed"].clone(), told["shared"]["undecided"].clone())
    };
    let memory = run("memory:");
    assert_eq!(memory, (1_500.into(), 500.into(), 0.into()));
    for url in both(shared(Kind::Redis).unwrap().url()) {
        assert_eq!(run(&url), memory);
    }
}

#[test]
fn the_suite_runs_on_a_store_that_is_there_and_on_sets_of_servers_that_are_started() {
    let there = shared(Kind::Redis).unwrap().url();
    for store in both(there).into_iter().chain(both("redis-cluster")).chain(both("redis-sentinel")) {
        let ended =
            limiter(&["conformance", "--store", &store, "--json", "scopes", "one_instant", "several_processes"], "");
        assert_eq!(ended.status, 0, "{store}: {}", ended.err);
        let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        let without = u64::from(store.contains("cluster"));
        let due = (&0.into(), &without.into());
        assert_eq!((&report["failed"], &report["not_applicable"]), due, "{report}");
        assert!(report["run"].as_u64().unwrap() >= 4, "{report}");
        assert!(ended.err.contains("ok  concurrency::several_processes"), "{}", ended.err);
    }
}

/// A server that asks for a password.
fn locked() -> Store {
    let store = Launch::new(Kind::Redis).own().start().unwrap();
    let set = ["CONFIG", "SET", "requirepass", "another"];
    assert_eq!(Resp::connect(store.addr()).unwrap().call(&set).unwrap().text(), "OK");
    store
}

#[test]
fn a_start_that_fails_tells_no_secret() {
    const MARKER: &str = "m4rk3r-s3cr3t";
    let (locked, cluster) = (locked(), RedisCluster::start().unwrap());
    let (locked, node) = (locked.addr(), cluster.nodes[0].addr());
    let mut told = 0;
    for url in [
        format!("redis://{MARKER}:{MARKER}@{locked}/"),
        format!("redis://:{MARKER}@127.0.0.1:1/"),
        format!("redis://:{MARKER}@:/{MARKER}"),
        format!("rediss://:{MARKER}@{locked}/"),
        format!("redis://:{MARKER}@{node}/{MARKER}"),
        format!("redis-cluster://{MARKER}:{MARKER}@{node}/"),
        format!("redis-cluster://:{MARKER}@127.0.0.1:1,{locked}/"),
        format!("redis-sentinel://:{MARKER}@{locked}/?service={MARKER}&sentinelPassword={MARKER}"),
        format!("redis-sentinel://:{MARKER}@{locked}/?{MARKER}={MARKER}"),
        format!("redis-no-such://:{MARKER}@{locked}/"),
    ] {
        for url in both(&url) {
            for command in ["replay", "demo", "conformance"] {
                let ended = limiter(&[command, "--store", &url], "");
                assert_ne!(ended.status, 0, "{command} --store {url}");
                let said = format!("{}{}", ended.out, ended.err);
                assert!(!said.contains(MARKER), "{command} --store {url}: {said}");
                assert!(
                    said.starts_with("error: ") || said.starts_with("limiter: "),
                    "{command} --store {url}: {said}"
                );
                told += 1;
            }
        }
    }
    assert!(told >= 30);
}
