//! The gateway itself: a router, and the layer around it.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use limiter::http::{Fields, RateLimitLayer};
use limiter::policy::{Policy, PolicyLimiter};
use tokio::net::TcpListener;

/// A gateway that is bound to its port.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    listener: TcpListener,
    router: Router,
}

/// Binds a gateway with its limits in `store`.
pub(crate) async fn bind(listen: &str, store: &str, policy: &str) -> Result<Gateway, Box<dyn Error>> {
    let limiter = PolicyLimiter::new(limiter::connect(store).await?, Policy::parse(policy)?);
    let layer = RateLimitLayer::new(limiter)
        .fields(Fields::default().latency(true))
        // A failure of ours does not count.
        .refund_if(|response| response.status.is_server_error());
    let router = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/login", post(async || "welcome\n"))
        .route("/search", get(async || "nothing found\n"))
        .route("/export", get(async || "a,b,c\n"))
        .layer(layer);
    let listener = TcpListener::bind(listen).await?;
    Ok(Gateway { addr: listener.local_addr()?, listener, router })
}

impl Gateway {
    /// Serves until the process ends. The layer has to know who connected.
    pub(crate) async fn run(self) -> io::Result<()> {
        axum::serve(self.listener, self.router.into_make_service_with_connect_info::<SocketAddr>()).await
    }
}
