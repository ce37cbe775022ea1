//! The services inside: readiness, clones, errors, refunds, and hyper without axum.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Bytes;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get as route;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use limiter::http::{PeerAddress, RateLimitLayer};
use limiter::policy::Query;
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};

use super::client::get;
use super::{by_ip, layer, limiter, serve};

/// A service that may be called only as the very instance that was polled ready, once.
#[derive(Debug, Default)]
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been polled ready");
        std::future::ready(if request.uri().path() == "/fails" { Err("broken") } else { Ok(Response::default()) })
    }
}

fn request(path: &str) -> Request<()> {
    Request::get(path).extension(PeerAddress([192, 0, 2, 1].into())).body(()).unwrap()
}

#[tokio::test]
async fn the_instance_that_is_ready_is_the_one_that_is_called() {
    let mut service = layer(&by_ip("3/1h sliding-log")).layer(Strict::default());
    for expected in [200, 200, 200, 429, 429] {
        let response = service.ready().await.unwrap().call(request("/")).await.unwrap();
        assert_eq!(response.status(), expected);
    }
    // Clones count together.
    assert_eq!(service.clone().oneshot(request("/")).await.unwrap().status(), 429);
}

#[tokio::test]
async fn readiness_takes_nothing_and_an_error_stays_what_it_is() {
    let limiter = limiter(&by_ip("3/1h sliding-log"));
    let mut service = RateLimitLayer::new(limiter.clone()).layer(Strict::default());
    for _ in 0..10 {
        service.ready().await.unwrap();
    }
    let left = async || limiter.peek(&Query::new().address([192, 0, 2, 1])).await.rules[0].decision.remaining;
    assert_eq!(left().await, 3);
    let error = service.ready().await.unwrap().call(request("/fails")).await.map(|_| ()).unwrap_err();
    assert_eq!((error, left().await), ("broken", 2));
    // Dropped before it was polled: nothing was asked.
    drop(service.ready().await.unwrap().call(request("/")));
    assert_eq!(left().await, 2);
    let refused = layer("[deny]\nip = \"192.0.2.1\"").layer(Strict::default()).oneshot(request("/")).await.unwrap();
    assert_eq!(refused.status(), 403);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], br#"{"error":"denied"}"#);
}

#[tokio::test]
async fn a_chosen_response_does_not_count() {
    let status = Arc::new(AtomicU16::new(500));
    let answers = Arc::clone(&status);
    let limiter = limiter(&by_ip("2/1h sliding-log"));
    let layer = RateLimitLayer::new(limiter.clone()).refund_if(|response| response.status.is_server_error());
    let handler = move || async move { StatusCode::from_u16(answers.load(Ordering::Relaxed)).unwrap() };
    let addr = serve(Router::new().route("/", route(handler)).layer(layer)).await;
    let left = async || limiter.peek(&Query::new().address([127, 0, 0, 1])).await.rules[0].decision.remaining;
    for _ in 0..5 {
        assert_eq!((get(addr, "/", &[]).await.status, left().await), (500, 2), "given back before it is told");
    }
    status.store(404, Ordering::Relaxed);
    assert_eq!((get(addr, "/", &[]).await.status, left().await), (404, 1));
    status.store(503, Ordering::Relaxed);
    assert_eq!((get(addr, "/", &[]).await.status, left().await), (503, 1));
    status.store(200, Ordering::Relaxed);
    assert_eq!((get(addr, "/", &[]).await.status, left().await), (200, 0));
    assert_eq!((get(addr, "/", &[]).await.status, left().await), (429, 0), "a refusal gives nothing back");
}

#[tokio::test]
async fn hyper_serves_it_without_axum() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let layer = layer(&by_ip("2/1h sliding-log"));
    tokio::spawn(async move {
        loop {
            let (stream, peer): (_, SocketAddr) = listener.accept().await.unwrap();
            let page = tower::service_fn(async |_: Request<hyper::body::Incoming>| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hyper"))))
            });
            let limited = layer.layer(page);
            // The server tells the peer.
            let told = tower::service_fn(move |mut request: Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(PeerAddress(peer.ip()));
                limited.clone().oneshot(request)
            });
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(told));
            tokio::spawn(served);
        }
    });
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(get(addr, "/", &[]).await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}
