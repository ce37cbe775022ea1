//! The layer in front of real servers, spoken to through real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod client;
mod delays;
mod failures;
mod fields;
mod hostile;
mod keys;
mod refusals;
mod services;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use limiter::http::RateLimitLayer;
use limiter::policy::{Policy, PolicyLimiter};
use limiter::{Backend, Memory};
use tokio::net::TcpListener;

fn limiter(policy: &str) -> PolicyLimiter {
    limiter_on(Arc::new(Memory::new()), policy)
}

fn limiter_on(backend: Arc<dyn Backend>, policy: &str) -> PolicyLimiter {
    PolicyLimiter::new(backend, Policy::parse(policy).unwrap_or_else(|error| panic!("{error}")))
}

fn layer(policy: &str) -> RateLimitLayer {
    RateLimitLayer::new(limiter(policy))
}

/// One rule for all, by address.
fn by_ip(limit: &str) -> String {
    format!("[[rule]]\nname = \"all\"\nkey = \"ip\"\nlimit = \"{limit}\"\n")
}

/// A server of one page behind the layer.
async fn page(layer: RateLimitLayer) -> SocketAddr {
    serve(Router::new().route("/", get(async || "page")).route("/items/{id}", get(async || "item")).layer(layer)).await
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    addr
}
