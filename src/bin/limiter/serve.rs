//! `limiter serve`: the same limits for services in any language.

mod api;
mod metrics;
mod signals;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use limiter::policy::PolicyLimiter;
use limiter::{ConnectError, Stack};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::{check_policy, terminal};

/// Serves decisions by a policy, over HTTP and JSON.
///
/// POST /check decides, /peek asks without taking, /refund gives back; GET /health, /ready and /metrics are for whoever watches it.
/// SIGHUP reads the policy again: all of it, or what was in force stays. SIGTERM and SIGINT end it once the requests that it has
/// are answered. It authenticates nobody: listen where only your services are.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "A request, of which every field may be left out, and its answer, with times in microseconds:

  {\"tenant\": \"acme\", \"user\": \"42\", \"plan\": \"pro\", \"endpoint\": \"/search\", \"method\": \"POST\",
   \"ip\": \"192.0.2.1\", \"headers\": {\"x-device\": \"7\"}, \"cost\": 1}

  {\"allowed\": true, \"verdict\": \"allowed\", \"refused_by\": null, \"field\": null, \"retry_after\": null,
   \"delay\": 0, \"degraded\": false, \"rules\": [{\"rule\", \"limit\", \"cost\", \"allowed\", \"remaining\",
   \"retry_after\", \"reset_after\", \"delay\"}, …], \"shadow\": […], \"receipt\": [{\"rule\", \"at\", \"cost\"}, …]}

POST /refund takes {\"request\": the request, \"receipt\": the answer's receipt}. A refusal is an answer too, with status 200.

Exit status: 0 ended by a signal, 1 it could not be served, 2 a flag or the policy is wrong"
)]
pub(crate) struct Args {
    /// The policy: a TOML file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,

    /// The store of all limits
    #[arg(long, value_name = "URL", default_value = "memory:", env = "LIMITER_STORE", hide_env_values = true)]
    store: String,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Where to listen for Envoy's rate limit service (gRPC, envoy.service.ratelimit.v3)
    #[cfg(feature = "envoy")]
    #[arg(long, value_name = "ADDRESS")]
    envoy: Option<SocketAddr>,

    /// How many seconds the requests at hand have to end after a signal
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u16).range(0..=600))]
    grace: u16,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let policy = check_policy::read(&args.policy)?;
    let store = limiter::engine(&args.store).await.map_err(|error| match error {
        ConnectError::Engine(_) => Failure::new(Exit::Failed, error),
        _ => Failure::usage(error),
    })?;
    // The policy says what happens when the store does not decide; the stack says when that is.
    let limiter = PolicyLimiter::new(Arc::new(Stack::new(store)), policy);
    let (end, ended) = watch::channel(false);
    signals::listen(limiter.clone(), args.policy.clone(), end)?;

    let listener = bind(args.listen).await?;
    let addr = listener.local_addr().map_err(|error| Failure::new(Exit::Failed, error))?;
    terminal::tell(&format!("decisions at http://{addr}"));
    let http = axum::serve(listener, api::router(limiter.clone())).with_graceful_shutdown(told(ended.clone()));
    #[cfg(feature = "envoy")]
    let envoy = envoy(args.envoy, limiter, ended.clone()).await?;
    let served = async {
        let http = async { http.await.map_err(failed) };
        #[cfg(feature = "envoy")]
        tokio::try_join!(http, envoy)?;
        #[cfg(not(feature = "envoy"))]
        http.await?;
        Ok(())
    };
    let grace = async {
        told(ended).await;
        tokio::time::sleep(Duration::from_secs(args.grace.into())).await;
    };
    tokio::select! {
        served = served => served.map(|()| Exit::Done),
        () = grace => {
            terminal::tell("not all requests ended in time");
            Ok(Exit::Done)
        }
    }
}

async fn bind(addr: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(addr).await.map_err(|error| Failure::new(Exit::Failed, format!("{addr}: {error}")))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, error)
}

/// Until the end is told.
async fn told(mut ended: watch::Receiver<bool>) {
    // Nobody is left who could tell it: that is the end too.
    let _gone = ended.wait_for(|ended| *ended).await;
}

/// The gRPC service, if it was asked for; else what never ends by itself.
#[cfg(feature = "envoy")]
async fn envoy(
    addr: Option<SocketAddr>,
    limiter: PolicyLimiter,
    ended: watch::Receiver<bool>,
) -> Result<impl Future<Output = Result<(), Failure>>, Failure> {
    let listener = match addr {
        Some(addr) => Some(bind(addr).await?),
        None => None,
    };
    if let Some(addr) = listener.as_ref().and_then(|listener| listener.local_addr().ok()) {
        terminal::tell(&format!("Envoy's rate limit service at {addr}"));
    }
    Ok(async move {
        match listener {
            Some(listener) => limiter::envoy::serve(listener, limiter, told(ended)).await.map_err(failed),
            None => Ok(()),
        }
    })
}
