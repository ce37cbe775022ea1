//! Leaky buckets: requests that are held back, and those that don't have the time.

use std::net::SocketAddr;
use std::time::Duration;

use limiter::http::RateLimitLayer;
use limiter::policy::{PolicyLimiter, Query};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::client::get;
use super::{limiter, page};

const LEAKY: &str = "[[rule]]\nname = \"all\"\nkey = \"global\"\nlimit = \"2/1s leaky-bucket queue=4\"\n";

async fn gated(policy: &str, with: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> (PolicyLimiter, SocketAddr) {
    let limiter = limiter(policy);
    let addr = page(with(RateLimitLayer::new(limiter.clone()))).await;
    (limiter, addr)
}

/// How many places the queue has left.
async fn left(limiter: &PolicyLimiter) -> u64 {
    limiter.peek(&Query::new()).await.rules[0].decision.remaining
}

#[tokio::test]
async fn a_queue_lets_its_requests_go_at_its_rate() {
    let (_, addr) = gated(LEAKY, |layer| layer).await;
    let begun = Instant::now();
    let ask = || async move {
        let reply = get(addr, "/", &[]).await;
        (reply.status, begun.elapsed())
    };
    let mut replies: [_; 5] = tokio::join!(ask(), ask(), ask(), ask(), ask()).into();
    replies.sort_by_key(|(status, took)| (*status, *took));
    let statuses: Vec<u16> = replies.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    for (place, (_, took)) in (0..4).zip(&replies) {
        // Half a second between two; the first went in at some moment of a busy machine.
        assert!(
            *took >= Duration::from_millis(500 * place).saturating_sub(Duration::from_millis(250)),
            "{place} {took:?}"
        );
    }
    assert!(replies[3].1 >= Duration::from_millis(1_250));
}

#[tokio::test]
async fn who_has_not_the_time_is_refused_at_once_and_takes_no_place() {
    let (limiter, addr) = gated(LEAKY, |layer| layer.max_delay(Duration::from_millis(900))).await;
    let waits = tokio::spawn(async move { tokio::join!(get(addr, "/", &[]), get(addr, "/", &[])) });
    while left(&limiter).await > 2 {
        sleep(Duration::from_millis(5)).await;
    }
    // The third would wait a second.
    let begun = Instant::now();
    let refused = get(addr, "/", &[]).await;
    assert_eq!((refused.status, refused.one("retry-after")), (429, Some("1")));
    assert!(begun.elapsed() < Duration::from_millis(450), "{:?}", begun.elapsed());
    assert!(left(&limiter).await >= 2, "its place is free again");
    // gRPC's deadline bounds it too.
    let refused = get(addr, "/", &[b"Content-Type: application/grpc", b"grpc-timeout: 10m"]).await;
    assert_eq!(refused.one("grpc-status"), Some("8"));
    let (one, other) = waits.await.unwrap();
    assert_eq!((one.status, other.status), (200, 200));
}

#[tokio::test]
async fn a_callers_deadline_is_a_bound() {
    let (_, addr) = gated(LEAKY, |layer| {
        layer.deadline(|parts| {
            let millis = parts.headers.get("x-deadline-ms")?.to_str().ok()?.parse().ok()?;
            Some(Duration::from_millis(millis))
        })
    })
    .await;
    assert_eq!(get(addr, "/", &[]).await.status, 200);
    assert_eq!(get(addr, "/", &[b"X-Deadline-Ms: 1"]).await.status, 429);
    assert_eq!(get(addr, "/", &[b"X-Deadline-Ms: 4000"]).await.status, 200);
}

#[tokio::test]
async fn who_hangs_up_while_waiting_gives_the_place_back() {
    let slow = LEAKY.replace("2/1s", "1/1m");
    let (limiter, addr) = gated(&slow, |layer| layer.max_delay(Duration::from_mins(10))).await;
    assert_eq!(get(addr, "/", &[]).await.status, 200);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").await.unwrap();
        streams.push(stream);
    }
    let until = async |wanted: u64| {
        while left(&limiter).await != wanted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), until(0)).await.expect("all have a place");
    drop(streams);
    timeout(Duration::from_secs(20), until(3)).await.expect("the places come back");
}

/// FAULTS, wait queue abuse: those who wait are bounded, whatever their number.
#[tokio::test]
async fn only_so_many_wait() {
    let slow = LEAKY.replace("2/1s leaky-bucket queue=4", "1/1m leaky-bucket queue=1000");
    let (limiter, addr) = gated(&slow, |layer| layer.max_delay(Duration::from_mins(1_000)).max_waiting(3)).await;
    assert_eq!(get(addr, "/", &[]).await.status, 200);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(tokio::spawn(async move { get(addr, "/", &[]).await }));
    }
    while left(&limiter).await > 996 {
        sleep(Duration::from_millis(5)).await;
    }
    // All three hold their place of waiting a moment after they were charged.
    sleep(Duration::from_millis(100)).await;
    for _ in 0..20 {
        assert_eq!(get(addr, "/", &[]).await.status, 429);
    }
    assert_eq!(left(&limiter).await, 996, "who was refused takes no place");
    for wait in waiting {
        assert!(!wait.is_finished());
        wait.abort();
    }
}
