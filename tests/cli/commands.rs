//! Each command on each store that is asked by a driver of its own. On Redis, with its two, it is in `stores.rs`.

use limiter_conformance::store::{Kind, Launch};

use super::limiter;

/// Every command, on a server of its own.
fn every_command(kind: Kind, engine: &str) {
    let store = Launch::new(kind).own().start().unwrap();
    super::vectors::every_trace(store.url());

    let ended = limiter(&["demo", "--json", "--store", store.url(), "--requests", "300"], "");
    assert_eq!(ended.status, 0, "{}", ended.err);
    let told: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let shared = &told["shared"];
    assert_eq!((&shared["allowed"], &shared["undecided"]), (&500.into(), &0.into()), "{told}");

    let ended = limiter(&["conformance", "--store", store.url(), "--json", "several_processes", "one_instant"], "");
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&report["subject"], &report["failed"]), (&engine.into(), &0.into()), "{report}");
}

/// Nobody listens there, and the password is a secret all the same.
fn no_server(engine: &str, url: &str) {
    let ended = limiter(&["demo", "--store", url], "");
    assert!(ended.status != 0 && ended.err.contains(&format!("{engine}: not-sent")), "{}", ended.err);
    assert!(!ended.err.contains("marker"), "{}", ended.err);
}

#[cfg(feature = "etcd")]
#[test]
fn every_command_runs_on_etcd() {
    every_command(Kind::Etcd, "etcd");
}

#[cfg(feature = "etcd")]
#[test]
fn an_etcd_that_is_not_there_is_told_without_its_password() {
    no_server("etcd", "etcd://user:marker@127.0.0.1:1");
}

#[cfg(feature = "postgres")]
#[test]
fn every_command_runs_on_postgres() {
    every_command(Kind::Postgres, "postgres");
}

#[cfg(feature = "postgres")]
#[test]
fn a_postgres_that_is_not_there_is_told_without_its_password() {
    no_server("postgres", "postgres://user:marker@127.0.0.1:1/app");
}
