//! The policies that are shown to people are sound, and say what is said of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::fs;
use std::path::Path;

use limiter::policy::{Policy, Query};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The block of TOML in a text, without the comment marks before it.
fn block(text: &str) -> String {
    let inside = text.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    inside.lines().map(|line| line.strip_prefix("//!").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_policies_of_the_examples_are_sound() {
    let gateway = policy(&read("examples/gateway/policy.toml"));
    let told = gateway.explain(&Query::new().endpoint("/login").address([192, 0, 2, 1])).to_string();
    assert!(told.contains("login      3/1m sliding-log, cost 1, key rl:{i=192.0.2.1}:login"), "{told}");
    let envoy = policy(&read("examples/envoy/policy.toml"));
    let told = envoy.explain(&Query::new().tenant("acme").header("envoy-domain", "edge")).to_string();
    assert!(told.contains("100000/1d fixed-window, cost 1, key rl:{t=acme}:daily"), "{told}");
    // Each key that Envoy is told to send is one that the service knows.
    let config = read("examples/envoy/envoy.yaml");
    for key in config.split("descriptor_key: ").skip(1).map(|rest| rest.split([' ', '}']).next().unwrap()) {
        assert!(["path", "method", "tenant"].contains(&key), "{key}");
    }
}

#[test]
fn the_policy_of_the_documentation_is_sound() {
    let told = policy(&block(&read("src/policy.rs"))).explain(&Query::new().tenant("bigcorp")).to_string();
    assert!(told.contains("2000000/1d fixed-window"), "{told}");
    let told = policy(&block(&read("docs/policies.md"))).explain(&Query::new().tenant("acme")).to_string();
    assert!(told.contains("100000/1d fixed-window"), "{told}");
}
