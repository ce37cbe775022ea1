//! Decisions by a policy: all or nothing, named, and kept through a reload.

use std::time::Duration;

use limiter::policy::{Answer, PolicyLimiter, Query, Verdict};

use super::limiter;

const LAYERS: &str = r#"
[[rule]]
name = "user"
key = "tenant,user"
limit = "2/1h fixed-window"
[[rule]]
name = "tenant"
key = "tenant"
limit = "3/1h sliding-log"
"#;

fn left(answer: &Answer) -> Vec<(String, u64)> {
    answer.rules.iter().map(|rule| (rule.rule.to_string(), rule.decision.remaining)).collect()
}

#[tokio::test]
async fn all_rules_are_charged_or_none() {
    let limiter = limiter(LAYERS);
    let query = |user| Query::new().tenant("t").user(user);
    for _ in 0..2 {
        assert_eq!(limiter.check(&query("a")).await.verdict, Verdict::Allowed);
    }
    let refused = limiter.check(&query("a")).await;
    assert_eq!((refused.verdict, refused.refused_by.as_deref()), (Verdict::Limited, Some("user")));
    assert_eq!(left(&refused), [("tenant".to_owned(), 1), ("user".to_owned(), 0)], "the tenant was not charged");
    assert!(refused.receipt().is_none());
    assert!(limiter.check(&query("b")).await.is_allowed());
    let refused = limiter.check(&query("b")).await;
    assert_eq!(refused.refused_by.as_deref(), Some("tenant"));
    assert!(refused.retry_after.unwrap() > Duration::from_secs(3_590));
    // Both refuse: the one with the longest wait is named.
    let refused = limiter.check(&query("a")).await;
    assert_eq!(refused.refused_by.as_deref(), Some("tenant"));
}

#[tokio::test]
async fn a_peek_takes_nothing_and_a_refund_gives_back_once() {
    let limiter = limiter(LAYERS);
    let query = Query::new().tenant("t").user("a");
    assert_eq!(left(&limiter.peek(&query).await), [("tenant".to_owned(), 3), ("user".to_owned(), 2)]);
    let taken = limiter.check(&query).await;
    let receipt = taken.receipt().unwrap();
    assert_eq!(receipt.charged().map(|(rule, _, cost)| (rule, cost)).collect::<Vec<_>>(), [("tenant", 1), ("user", 1)]);
    assert_eq!(left(&taken), [("tenant".to_owned(), 2), ("user".to_owned(), 1)]);
    limiter.refund(receipt.clone()).await.unwrap();
    assert_eq!(left(&limiter.peek(&query).await), [("tenant".to_owned(), 3), ("user".to_owned(), 2)]);
    let counts: Vec<_> = limiter.counts().iter().map(|count| (count.allowed, count.limited)).collect();
    assert_eq!(counts, [(1, 0), (1, 0)], "peeks are not counted");
    // By another process, which has no receipt but its text.
    let taken = limiter.check(&query).await;
    let (_, at, _) = taken.receipt().unwrap().charged().next().unwrap();
    assert_eq!(limiter.refund_query(&query, &[("user", at, 1), ("gone", at, 1)]).await.unwrap(), 1);
    assert_eq!(left(&limiter.peek(&query).await), [("tenant".to_owned(), 2), ("user".to_owned(), 2)]);
}

#[tokio::test]
async fn a_shadow_rule_counts_and_refuses_nothing() {
    let text = LAYERS.replace("key = \"tenant,user\"", "key = \"tenant,user\"\nshadow = true");
    let limiter = limiter(&text);
    let query = Query::new().tenant("t").user("a");
    let mut would = Vec::new();
    for _ in 0..4 {
        let answer = limiter.check(&query).await;
        would.push((
            answer.is_allowed(),
            answer.shadow_refusals().map(|rule| rule.rule.to_string()).collect::<Vec<_>>(),
        ));
    }
    let user = vec!["user".to_owned()];
    assert_eq!(would, [(true, vec![]), (true, vec![]), (true, user.clone()), (false, user)]);
    let counts: Vec<_> = limiter.counts().iter().map(|c| (c.rule.to_string(), c.allowed, c.limited)).collect();
    assert_eq!(counts, [("tenant".to_owned(), 3, 1), ("user".to_owned(), 2, 2)]);
    // In shadow as a whole, nothing refuses at all, not even a cost that can never pass.
    let limiter = super::limiter(&format!("shadow = true\n{LAYERS}"));
    for cost in [1, 2, 3, 4, 1_000] {
        let answer = limiter.check(&query.clone().cost(cost)).await;
        assert_eq!(answer.verdict, Verdict::Allowed, "{cost}");
    }
}

#[tokio::test]
async fn a_shadow_rule_is_refunded_with_the_others() {
    let limiter = limiter(&LAYERS.replace("limit = \"2/1h", "shadow = true\nlimit = \"2/1h"));
    let query = Query::new().tenant("t").user("a");
    let taken = limiter.check(&query).await;
    limiter.refund(taken.receipt().unwrap().clone()).await.unwrap();
    let peek = limiter.peek(&query).await;
    assert_eq!((peek.rules[0].decision.remaining, peek.shadow[0].decision.remaining), (3, 2));
}

#[tokio::test]
async fn a_reload_is_all_or_nothing_and_keeps_the_states() {
    let limiter = limiter(LAYERS);
    let query = Query::new().tenant("t").user("a");
    assert!(limiter.check(&query).await.is_allowed());
    for broken in ["", "[[rule]]\nname = \"user\"", &LAYERS.replace("3/1h", "0/1h")] {
        limiter.reload(broken).unwrap_err();
        assert_eq!(left(&limiter.peek(&query).await), [("tenant".to_owned(), 2), ("user".to_owned(), 1)]);
    }
    limiter.reload(&LAYERS.replace("2/1h", "9/1h")).unwrap();
    assert_eq!(left(&limiter.peek(&query).await), [("tenant".to_owned(), 2), ("user".to_owned(), 8)]);
    assert_eq!(limiter.counts().iter().map(|count| count.allowed).sum::<u64>(), 2);
    // A rule that counts by something else begins afresh: its old keys say nothing.
    limiter.reload(&LAYERS.replace("key = \"tenant,user\"", "key = \"user,ip\"")).unwrap();
    assert_eq!(left(&limiter.peek(&query.address([1, 1, 1, 1])).await)[1], ("user".to_owned(), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_under_load_loses_no_unit() {
    let text = |limit: u32| {
        format!("[[rule]]\nname = \"all\"\nkey = \"global\"\nlimit = \"{limit}/30d token-bucket burst=500\"\n")
    };
    let limiter = limiter(&text(1));
    let ask = |limiter: PolicyLimiter| async move {
        let mut allowed = 0;
        for _ in 0..300 {
            allowed += u64::from(limiter.check(&Query::new()).await.is_allowed());
            tokio::task::yield_now().await;
        }
        allowed
    };
    let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(ask(limiter.clone()))).collect();
    for _ in 0..50 {
        limiter.reload(&text(1)).unwrap();
        tokio::task::yield_now().await;
    }
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    assert_eq!(allowed, 500);
}

#[tokio::test]
async fn lists_and_missing_fields_ask_nobody() {
    let limiter =
        limiter(&format!("{LAYERS}missing = \"refuse\"\n[allow]\nuser = \"root\"\n[deny]\nip = \"192.0.2.0/24\"\n"));
    for _ in 0..9 {
        assert_eq!(limiter.check(&Query::new().user("root")).await.verdict, Verdict::Exempt);
    }
    let listed = limiter.check(&Query::new().user("root").address([192, 0, 2, 9])).await;
    assert_eq!((listed.verdict, listed.field.as_deref(), listed.retry_after), (Verdict::Listed, Some("ip"), None));
    let missing = limiter.check(&Query::new().user("u")).await;
    assert_eq!(missing.verdict, Verdict::Missing);
    assert_eq!((missing.refused_by.as_deref(), missing.field.as_deref()), (Some("tenant"), Some("tenant")));
    assert_eq!(limiter.check(&Query::new().tenant("t").cost(4)).await.verdict, Verdict::TooCostly);
    assert_eq!(limiter.check(&Query::new().tenant("t").cost(u64::MAX)).await.verdict, Verdict::TooCostly);
    assert!(limiter.counts().iter().all(|count| count.allowed + count.limited == 0));
}
