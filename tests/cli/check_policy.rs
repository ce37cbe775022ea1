//! `limiter check-policy`: faults with their place, and what a request would meet.

use std::fs;

use super::{limiter, scratch};

const POLICY: &str = "[[rule]]\nname = \"login\"\nkey = \"ip\"\nlimit = \"5/1m sliding-log\"\n\
                      when = { endpoint = \"/login\" }\n[deny]\nuser = \"mallory\"\n";

fn file(name: &str, text: impl AsRef<[u8]>) -> String {
    let path = scratch(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_sound_file_is_said_to_be_so() {
    let path = file("sound.toml", POLICY);
    let ended = limiter(&["check-policy", &path], "");
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert_eq!(ended.out, "sound; rules: 1, in shadow mode: 0\n");
}

#[test]
fn a_request_is_explained() {
    let path = file("explained.toml", POLICY);
    let ended = limiter(&["check-policy", &path, "--ip", "2001:db8::1", "--endpoint", "/login?x"], "");
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let last = "rule      login  5/1m sliding-log, cost 1, key rl:{i=2001%3Adb8%3A%3A/64}:login\n";
    assert!(ended.out.ends_with(last), "{}", ended.out);
    let ended = limiter(&["check-policy", &path, "--endpoint", "/"], "");
    assert!(ended.out.ends_with("rule      login  - only when endpoint is /login\n"), "{}", ended.out);
    let ended = limiter(&["check-policy", &path, "--user", "mallory"], "");
    assert!(ended.out.ends_with("REFUSED   on the deny list by its user\n"), "{}", ended.out);
}

#[test]
fn a_fault_is_told_by_its_place() {
    let path = file("faulty.toml", POLICY.replace("5/1m", "0/1m").replace("when", "wenn"));
    let ended = limiter(&["check-policy", &path], "");
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines[0], format!("limiter: {path}:4:9: rule `login`: limit: amount 0 is under its bound of 1"));
    assert!(lines[1].starts_with(&format!("{path}:5:1: rule `login`: unknown field `wenn`: ")), "{}", ended.err);
    let path = file("latin.toml", b"# caf\xe9\n");
    assert!(limiter(&["check-policy", &path], "").err.ends_with("latin.toml:1: it is not UTF-8\n"));
    let ended = limiter(&["check-policy", "/no/such/policy"], "");
    assert_eq!(
        (ended.status, ended.err.as_str()),
        (2, "limiter: /no/such/policy: No such file or directory (os error 2)\n")
    );
}
