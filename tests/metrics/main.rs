//! What a recorder is told. A process has one recorder, so this test is a program of its own.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

#[allow(dead_code, reason = "not all of it is used here")]
#[path = "../layers/engine.rs"]
mod engine;

use std::num::NonZeroU32;
use std::sync::Arc;

use limiter::layer::FailurePolicy;
use limiter::{ErrorKind, Key, Op, Prometheus, Request, Stack};
use tokio::time;

use crate::engine::{Engine, Manner, check, limit, paused, request, submit, take};

#[test]
fn the_figures_are_there_and_no_key_is_among_them() {
    let prometheus = Prometheus::install().unwrap();
    assert!(Prometheus::install().is_err(), "one recorder for a process");
    paused().block_on(async {
        let engine = Engine::new();
        let builder = Stack::builder().rule("open", FailurePolicy::Open);
        let local = FailurePolicy::Local { nodes: NonZeroU32::MIN };
        let stack = builder.rule("local", local).build(Arc::<Engine>::clone(&engine));
        let ask = |rule: &str, secret: &str| {
            Request::take(Key::new("tenant", rule, [secret]), limit("1/1h fixed-window"), 1).unwrap()
        };
        // Allowed, denied by the store, and denied by the cache.
        for _ in 0..3 {
            let _ = submit(&stack, &ask("login", "s3cr3t")).await;
        }
        // A refusal counts for the rule that refuses.
        let both = request(Op::Take, [check("fresh", "9/1h fixed-window", 1), check("full", "1/1h fixed-window", 1)]);
        for _ in 0..2 {
            let _ = submit(&stack, &both).await;
        }
        let _ = submit(&stack, &request(Op::Peek, [check("peeked", "9/1h fixed-window", 1)])).await;
        engine.behave(Manner::Fail(ErrorKind::Unknown { in_flight: true }));
        for rule in ["open", "local", "local", "closed", "closed", "closed", "closed"] {
            let _ = submit(&stack, &ask(rule, "s3cr3t")).await;
            time::advance(std::time::Duration::from_millis(10)).await;
        }
        // Many keys and rules: the labels stay bounded.
        engine.behave(Manner::Decide);
        time::advance(std::time::Duration::from_secs(1)).await;
        for n in 0..3_000 {
            let _ = submit(&stack, &ask(&format!("rule-{n}"), "s3cr3t")).await;
        }
        let _ = submit(&stack, &take("after", "1/1h fixed-window")).await;
    });
    prometheus.upkeep();
    let text = prometheus.render();
    for line in [
        r#"limiter_decisions_total{rule="login",outcome="allowed",source="store"} 1"#,
        r#"limiter_decisions_total{rule="login",outcome="denied",source="store"} 1"#,
        r#"limiter_decisions_total{rule="login",outcome="denied",source="cache"} 1"#,
        r#"limiter_decisions_total{rule="fresh",outcome="allowed",source="store"} 1"#,
        r#"limiter_decisions_total{rule="full",outcome="denied",source="store"} 1"#,
        r#"limiter_decisions_total{rule="open",outcome="allowed",source="open"} 1"#,
        r#"limiter_decisions_total{rule="local",outcome="allowed",source="local"} 1"#,
        r#"limiter_decisions_total{rule="local",outcome="denied",source="local"} 1"#,
        r#"limiter_decisions_total{rule="closed",outcome="unknown",source="none"} 2"#,
        r#"limiter_decisions_total{rule="closed",outcome="not-sent",source="none"} 2"#,
        r#"limiter_deny_cache_hits_total{engine="memory"} 1"#,
        r#"limiter_store_outcomes_total{engine="memory",outcome="unknown-in-flight"} 5"#,
        r#"limiter_fallback_open_total{engine="memory"} 1"#,
        r#"limiter_breaker_state{engine="memory"} 0"#,
        r#"limiter_divergences_total{engine="memory"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    for histogram in ["limiter_store_call_duration_seconds", "limiter_decision_duration_seconds", "limiter_batch_size"]
    {
        assert!(text.contains(&format!("{histogram}_bucket{{engine=\"memory\"")), "{histogram}\n{text}");
    }
    assert!(!text.contains("peeked"), "only takes are decisions");
    assert!(!text.contains("s3cr3t") && !text.contains("tenant"), "a key in the figures");
    let rules = text.lines().filter(|line| line.starts_with("limiter_decisions_total{rule=\"rule-")).count();
    assert!((900..1_024).contains(&rules), "{rules} rules told apart");
    assert!(text.contains(r#"rule="other""#));
    // What the dashboard asks for is what is exported.
    let dashboard = include_str!("../../examples/grafana/limiter.json");
    let names =
        dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("limiter_"));
    let mut asked = 0;
    for name in names {
        asked += 1;
        assert!(
            text.contains(&format!("\n{name}{{")) || text.contains(&format!("# TYPE {name} ")),
            "{name} is not exported"
        );
    }
    assert!(asked >= 10, "{asked} series in the dashboard");
}
