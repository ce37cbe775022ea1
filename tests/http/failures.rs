//! A store that is away, seen from outside.

use std::sync::Arc;

use async_trait::async_trait;
use limiter::http::{RateLimitLayer, Refusal};
use limiter::layer::FailurePolicy;
use limiter::policy::Query;
use limiter::{Atomicity, Backend, Batch, Capabilities, ClockSource, Error, ErrorKind, Outcome, Scope, Stack};

use super::client::get;
use super::{by_ip, limiter_on, page};

#[derive(Debug)]
struct Away;

#[async_trait]
impl Backend for Away {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let failure = || Outcome::NotSent(Error::new("away", ErrorKind::NotSent, "connection refused"));
        batch.requests.iter().map(|_| failure()).collect()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("away", ClockSource::Node, Scope::Cluster, Atomicity::AllKeys)
    }
}

fn layer(on_failure: &str) -> RateLimitLayer {
    let policy = format!("on_failure = \"{on_failure}\"\n{}", by_ip("2/1h sliding-log"));
    RateLimitLayer::new(limiter_on(Arc::new(Away), &policy))
}

/// BUGS B61: the way around a failure must not fail itself, nor make numbers up.
#[tokio::test]
async fn open_passes_all_and_tells_no_numbers() {
    let addr = page(layer("open")).await;
    for _ in 0..100 {
        let reply = get(addr, "/", &[]).await;
        assert_eq!((reply.status, reply.limits().len()), (200, 0));
    }
}

#[tokio::test]
async fn closed_is_503_and_not_429() {
    let addr = page(layer("closed").refusal(Refusal::Problem)).await;
    let reply = get(addr, "/", &[]).await;
    assert_eq!((reply.status, reply.one("retry-after"), reply.limits().len()), (503, Some("1"), 0));
    assert!(reply.body.contains("#temporary-reduced-capacity"), "{}", reply.body);
    let reply = get(addr, "/", &[b"Content-Type: application/grpc"]).await;
    assert_eq!((reply.status, reply.one("grpc-status")), (200, Some("14")));
}

#[tokio::test]
async fn local_goes_on_counting() {
    let addr = page(layer("local")).await;
    let mut replies = Vec::new();
    for _ in 0..3 {
        let reply = get(addr, "/", &[]).await;
        replies.push((reply.status, reply.number("x-ratelimit-remaining")));
    }
    assert_eq!(replies, [(200, 1), (200, 0), (429, 0)]);
}

/// A layer around the store may stand in for it before a policy hears of it: no numbers are made up then either.
#[tokio::test]
async fn a_stack_that_opens_is_told_as_degraded() {
    let stack = Stack::builder().failure(FailurePolicy::Open).build(Arc::new(Away));
    let limiter = limiter_on(Arc::new(stack), &by_ip("2/1h sliding-log"));
    let answer = limiter.check(&Query::new().address([127, 0, 0, 1])).await;
    assert!(answer.is_allowed() && answer.degraded && answer.receipt().is_none() && answer.tightest().is_none());
    let reply = get(page(RateLimitLayer::new(limiter)).await, "/", &[]).await;
    assert_eq!((reply.status, reply.limits().len()), (200, 0));
}
