//! A policy file is taken as a whole, and what is wrong with it is told by line and column.

use limiter::policy::{Condition, MAX_RULES, Policy, Recipe, Rule};
use proptest::prelude::*;

use super::policy;

const SOUND: &str = r#"
default_plan = "starter"
ipv6_prefix = 56
on_failure = "open"
deadline = "250ms"

[[rule]]
name = "global"
key = "global"
limit = "10000/1s token-bucket"

[[rule]]
name = "daily"
key = "tenant"

[[rule]]
name = "login"
key = ["ip", "header:X-Device"]
limit = "5/1m sliding-log"
when = { method = ["POST", "PUT"], endpoint = "/login", header.x-client = "*" }
unless = { ip = "10.0.0.0/8" }
missing = "share"
count = "requests"
shadow = true
on_failure = "local nodes=4"
deadline = "50ms"

[plans.starter]
daily = "10000/1d fixed-window"
[plans.pro]
daily = "100000/1d fixed-window"
global = "unlimited"

[tenants]
acme = "pro"
bigcorp = { plan = "pro", limits = { daily = "2000000/1d fixed-window" } }

[endpoints]
"POST /search" = 5
"/export/*" = { cost = 20 }

[allow]
ip = ["10.0.0.0/8"]
[deny]
user = "mallory"
"#;

/// What is told of a text, each fault on a line.
fn told(text: &str) -> String {
    Policy::parse(text).map(|_| ()).unwrap_err().in_file("p.toml").to_string()
}

#[test]
fn a_sound_file_is_read_whole() {
    for text in [SOUND.to_owned(), format!("\u{feff}{SOUND}"), SOUND.replace('\n', "\r\n")] {
        let policy = policy(&text);
        let names: Vec<&str> = policy.rules().iter().map(Rule::name).collect();
        assert_eq!(names, ["global", "daily", "login"]);
        assert_eq!(policy.rules()[2].key().to_string(), "ip,header:x-device");
        assert!(policy.rules()[2].is_shadow() && !policy.rules()[0].is_shadow());
        let headers: Vec<&str> = policy.headers().iter().map(|name| &**name).collect();
        assert_eq!(headers, ["x-client", "x-device"]);
    }
}

/// Where `from` is written in [`SOUND`], `to` takes its place.
#[track_caller]
fn changed(from: &str, to: &str, expected: &str) {
    assert!(SOUND.contains(from), "{from}");
    assert_eq!(told(&SOUND.replacen(from, to, 1)), format!("p.toml:{expected}"), "{to}");
}

#[test]
fn a_fault_has_its_line_and_column() {
    changed("5/1m sliding-log", "0/1m sliding-log", "19:9: rule `login`: limit: amount 0 is under its bound of 1");
    changed(
        "limit = \"5/1m",
        "limit = 5 #",
        "19:9: rule `login`: limit: a whole number where a limit such as \"100/1m fixed-window\" is wanted",
    );
    changed(
        "missing = ",
        "mising = ",
        "22:1: rule `login`: unknown field `mising`: name, key, limit, when, unless, missing, count, shadow, on_failure and deadline are known",
    );
    changed("\"share\"", "\"never\"", "22:11: rule `login`: missing: `never` is none of ip, share, skip, refuse");
    changed("\"requests\"", "\"bytes\"", "23:9: rule `login`: count: `bytes` is none of cost, requests");
    changed(
        "\"50ms\"",
        "\"50us\"",
        "26:12: rule `login`: deadline: `50us` is no duration: it is a whole number and ms, s or m",
    );
    changed("\"50ms\"", "\"61s\"", "26:12: rule `login`: deadline: 61s is out of its bounds, 1ms to 60s");
    changed("shadow = true", "shadow = \"yes\"", "24:10: rule `login`: shadow: a text where true or false is wanted");
    changed(
        "\"local nodes=4\"",
        "\"ajar\"",
        "25:14: rule `login`: on_failure: `ajar`: a failure policy is `open`, `closed`, `local` or `local nodes=N`",
    );
    changed(
        "\"header:X-Device\"",
        "\"haeder\"",
        "18:7: rule `login`: key: unknown field `haeder`: tenant, user, ip, method, endpoint, header:NAME and global are known",
    );
    changed(
        "\"header:X-Device\"",
        "\"global\"",
        "18:7: rule `login`: key: `global` is the whole key: it can't be combined",
    );
    changed("\"header:X-Device\"", "\"header:X Device\"", "18:7: rule `login`: key: `X Device` is no name of a header");
    changed(
        "\"10.0.0.0/8\" }",
        "\"10.0.0.0/33\" }",
        "21:17: rule `login`: unless: `10.0.0.0/33` is no address and no network",
    );
    changed(
        "method = [\"POST\", \"PUT\"]",
        "method = []",
        "20:19: rule `login`: when: `method` has no value: a list without one is met by nothing",
    );
    changed(
        "name = \"daily\"",
        "name = \"global\"",
        "13:8: rule `global`: name: there is a rule of this name already\np.toml:29:1: plan `starter`: daily: there is no rule `daily`\np.toml:31:1: plan `pro`: daily: there is no rule `daily`\np.toml:36:38: tenant `bigcorp`: daily: there is no rule `daily`",
    );
    changed("key = \"tenant\"", "", "12:1: rule `daily`: key: it is missing; `global` is one key for all");
    changed("name = \"login\"", "", "16:1: rule 3: name: it is missing");
    changed(
        "name = \"login\"",
        "name = \"lög\\nin\"",
        "17:8: rule `lög\\nin`: name: a name is 1 to 64 of the characters a-z A-Z 0-9 . _ -",
    );
    changed("acme = \"pro\"", "acme = \"prö\"", "35:8: tenant `acme`: plan: there is no plan `prö`");
    changed("default_plan = \"starter\"", "default_plan = \"free\"", "2:16: default_plan: there is no plan `free`");
    changed("ipv6_prefix = 56", "ipv6_prefix = 129", "3:15: ipv6_prefix: 129 is over its bound of 128");
    changed(
        "\"POST /search\" = 5",
        "\"POST /search\" = -1",
        "39:18: endpoint `POST /search`: -1 is under its bound of 0",
    );
    changed(
        "\"POST /search\" = 5",
        "\"POST /search\" = 10001",
        "39:1: endpoint `POST /search`: cost 10001 can never pass rule `global`: it is over its bound of 10000",
    );
    changed(
        "\"POST /search\" = 5",
        "\"search\" = 5",
        "39:1: endpoint `search`: a pattern is `/path` or `METHOD /path`, with `*` for any characters",
    );
    changed("cost = 20", "price = 20", "40:15: endpoint `/export/*`: unknown field: cost is known");
    changed(
        "[deny]",
        "[denied]",
        "44:2: denied: unknown field: rule, plans, tenants, endpoints, allow, deny, default_plan, ipv6_prefix, shadow, on_failure and deadline are known",
    );
    changed(
        "user = \"mallory\"",
        "uesr = \"mallory\"",
        "45:8: deny list: unknown field `uesr`: tenant, user, plan, method, endpoint, ip and header.NAME are known",
    );
}

#[test]
fn columns_are_characters() {
    let text =
        "[[rule]]\nname = \"a\"\nkey = \"ip\"\nwhen = { user = \"ünï\", method = 7 }\nlimit = \"1/1s fixed-window\"\n";
    assert_eq!(told(text), "p.toml:4:33: rule `a`: when: a whole number where a text or a list of them is wanted");
}

#[test]
fn every_fault_is_told_at_once() {
    let text = "[[rule]]\nname = \"a\"\nkey = \"nobody\"\nlimit = \"x\"\n[[rule]]\nname = \"b\"\nlimit = 3\n";
    let error = Policy::parse(text).unwrap_err();
    let places: Vec<_> = error.faults().iter().map(|fault| fault.position().unwrap()).collect();
    assert_eq!(places, [(3, 7), (4, 9), (5, 1), (7, 9)], "{error}");
}

#[test]
fn what_is_no_toml_is_told_by_place() {
    for (text, at) in [("[[rule]\n", "p.toml:1:"), ("\n\nrule = [", "p.toml:3:"), ("a = 1\na = 2\n", "p.toml:2:1: ")] {
        assert!(told(text).starts_with(at), "{}", told(text));
    }
    assert_eq!(told(""), "p.toml:1:1: rule: there is no rule and no list");
    assert_eq!(told("rule = 1"), "p.toml:1:8: rule: a whole number where `[[rule]]` is wanted");
}

#[test]
fn there_are_no_more_rules_than_a_store_decides_at_once() {
    let rule = |index| format!("[[rule]]\nname = \"r{index}\"\nkey = \"ip\"\nlimit = \"1/1s fixed-window\"\n");
    let rules = |count: usize| (0..count).map(rule).collect::<Vec<_>>().concat();
    assert_eq!(policy(&rules(MAX_RULES)).rules().len(), MAX_RULES);
    assert!(told(&rules(MAX_RULES + 1)).ends_with(": rule: there are 65 rules; the bound is 64"));
}

#[test]
fn a_builder_makes_what_a_file_makes_and_says_the_same() {
    let rule = |limit: &str| {
        Rule::new("login", "ip".parse::<Recipe>().unwrap())
            .limit(limit.parse().unwrap())
            .when(Condition::new().any_of("plan", ["gold"]).unwrap())
    };
    let error = Policy::builder().rule(rule("5/1m sliding-log")).build().unwrap_err();
    assert_eq!(error.to_string(), "rule `login`: when: there is no plan `gold`");
    let text = "[[rule]]\nname = \"login\"\nkey = \"ip\"\nlimit = \"5/1m sliding-log\"\nwhen = { plan = \"gold\" }";
    assert_eq!(told(text), "p.toml:5:8: rule `login`: when: there is no plan `gold`");
    let policy =
        Policy::builder().rule(rule("5/1m sliding-log")).plan("gold", "login", limiter::policy::Allowance::Unlimited);
    assert!(policy.build().is_ok());
}

proptest! {
    /// A file that somebody broke is an error with a place in it, and never a panic.
    #[test]
    fn a_broken_file_is_an_error(cut in 0..SOUND.len(), end in 0..SOUND.len(), put in "[\\PC\n]{0,8}") {
        let (from, to) = (cut.min(end), cut.max(end));
        prop_assume!(SOUND.is_char_boundary(from) && SOUND.is_char_boundary(to));
        let text = format!("{}{put}{}", &SOUND[..from], &SOUND[to..]);
        if let Err(error) = Policy::parse(&text) {
            let lines = text.split('\n').count();
            for fault in error.faults() {
                let (line, column) = fault.position().unwrap();
                prop_assert!((1..=lines).contains(&line) && column >= 1, "{}", error);
                prop_assert!(!fault.message().contains(char::is_control), "{:?}", fault);
            }
            prop_assert!(!error.faults().is_empty());
        }
    }
}
