//! The handle as a user holds it, on the embedded store.

#![allow(clippy::unwrap_used, reason = "a test stops on the first thing that is not as it should be")]

use std::sync::Arc;
use std::time::Duration;

use limiter::{CheckError, ErrorKind, Instant, ManualClock, Memory, RateLimiter, RequestError};

/// A limiter on a clock that the test holds.
fn limiter(limit: &str) -> (RateLimiter, ManualClock) {
    let clock = ManualClock::at(at(1_000));
    let memory = Memory::builder().clock(clock.clone()).build();
    (RateLimiter::new(Arc::new(memory), "api", limit.parse().unwrap()), clock)
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000).unwrap()
}

#[tokio::test]
async fn a_check_takes_and_a_peek_does_not() {
    let (limiter, _) = limiter("3/1m fixed-window");
    assert_eq!(limiter.check("a").await.unwrap().remaining, 2);
    assert_eq!(limiter.peek("a", 2).await.unwrap().remaining, 2);
    assert!(!limiter.peek("a", 3).await.unwrap().allowed);
    assert_eq!(limiter.check_n("a", 2).await.unwrap().remaining, 0);
    let refused = limiter.check("a").await.unwrap();
    assert!(!refused.allowed);
    assert_eq!(refused.retry_after, Some(Duration::from_secs(20)), "t = 1000 s is 40 s into its minute");
}

#[tokio::test]
async fn a_refund_gives_back_what_was_taken_in_this_window_only() {
    let (limiter, clock) = limiter("3/1m fixed-window");
    let taken = limiter.check_n("a", 2).await.unwrap();
    assert_eq!(limiter.refund("a", 2, &taken).await.unwrap().remaining, 3);
    let taken = limiter.check_n("a", 2).await.unwrap();
    clock.set(at(1_020));
    assert_eq!(limiter.check_n("a", 3).await.unwrap().remaining, 0);
    let left = limiter.refund("a", 2, &taken).await.unwrap();
    assert_eq!(left.remaining, 0, "the units of the window before do not open this one");
}

#[tokio::test]
async fn a_refund_of_a_refusal_gives_nothing_back() {
    for limit in
        ["2/1m fixed-window", "2/1m sliding-log", "2/1m sliding-counter", "2/1m token-bucket", "2/1m leaky-bucket"]
    {
        let (limiter, _) = limiter(limit);
        assert!(limiter.check_n("a", 2).await.unwrap().allowed);
        let refused = limiter.check("a").await.unwrap();
        assert!(!refused.allowed);
        assert_eq!(limiter.refund("a", 1, &refused).await.unwrap().remaining, 0, "{limit}");
    }
}

#[tokio::test]
async fn a_reset_forgets() {
    let (limiter, _) = limiter("1/1h sliding-log");
    assert!(limiter.check("a").await.unwrap().allowed);
    assert!(!limiter.check("a").await.unwrap().allowed);
    limiter.reset("a").await.unwrap();
    assert!(limiter.check("a").await.unwrap().allowed);
}

#[tokio::test]
async fn a_cost_that_can_never_pass_is_an_error_and_changes_nothing() {
    let (limiter, _) = limiter("3/1m token-bucket burst=5");
    let error = limiter.check_n("a", 6).await.unwrap_err();
    let CheckError::Request(error) = error else { panic!("{error:?}") };
    assert_eq!(error, RequestError::CostExceedsLimit { index: 0, cost: 6, limit: 5 });
    assert_eq!(error.to_string(), "cost-exceeds-limit: cost 6 of check 0 is over its bound of 5");
    assert_eq!(limiter.peek("a", 0).await.unwrap().remaining, 5);
}

#[tokio::test]
async fn keys_scopes_and_rules_are_apart_and_clones_are_not() {
    let (one, _) = limiter("1/1h sliding-log");
    assert!(one.check(("a", "bc")).await.unwrap().allowed);
    assert!(one.check(("ab", "c")).await.unwrap().allowed);
    assert!(one.check("abc").await.unwrap().allowed);
    assert!(one.check(["a", "b", "c"]).await.unwrap().allowed);
    assert!(one.clone().scope("tenant").check("abc").await.unwrap().allowed);
    assert!(RateLimiter::new(Arc::clone(one.backend()), "other", one.limit()).check("abc").await.unwrap().allowed);
    assert!(!one.clone().check(String::from("abc")).await.unwrap().allowed);
    assert!(!one.check(b"abc".to_vec()).await.unwrap().allowed);
}

#[tokio::test]
async fn a_full_table_refuses_a_new_key_and_says_so() {
    let memory = Memory::builder().max_keys(1).build();
    let limiter = RateLimiter::new(Arc::new(memory), "api", "5/1h sliding-log".parse().unwrap());
    assert!(limiter.check("first").await.unwrap().allowed);
    let CheckError::NotSent(error) = limiter.check("second").await.unwrap_err() else { panic!("it was not sent") };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(limiter.check("first").await.unwrap().allowed);
}
