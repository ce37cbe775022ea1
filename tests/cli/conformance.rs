//! `limiter conformance`: the suite on a store of one's own.

use super::{limiter, scratch};

#[test]
fn the_embedded_store_passes_and_programs_are_told() {
    let junit = scratch("conformance.xml");
    let ended = limiter(&["conformance", "--json", "--junit", &junit, "layers", "several_processes"], "");
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&report["passed"], &report["failed"], &report["not_applicable"]), (&true.into(), &0.into(), &1.into()));
    assert!(ended.err.contains("ok  layers::refused_charges_none"), "{}", ended.err);
    assert!(ended.err.contains("n/a  concurrency::several_processes"), "{}", ended.err);
    let junit = std::fs::read_to_string(junit).unwrap();
    assert!(junit.contains("<testsuite") && junit.contains("refused_charges_none"), "{junit}");
}

#[test]
fn a_store_that_is_not_there_is_no_failure_of_the_suite_and_keeps_its_password() {
    let ended = limiter(&["conformance", "--store", "nosuch://user:marker@127.0.0.1/"], "");
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
    assert!(ended.err.contains("store URL: the scheme is none of memory"), "{}", ended.err);
    assert!(!ended.err.contains("marker"), "{}", ended.err);
}

#[cfg(feature = "redis")]
#[test]
fn a_store_is_started_for_the_run_and_gone_after_it() {
    let ended = limiter(&["conformance", "--store", "redis", "--json", "several_processes", "one_instant"], "");
    assert_eq!(ended.status, 0, "{}", ended.err);
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&report["subject"], &report["failed"]), (&"redis".into(), &0.into()), "{report}");
    assert!(ended.err.contains("ok  concurrency::several_processes"), "{}", ended.err);
}
