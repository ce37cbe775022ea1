//! The engine: a loop over the conversation that the core leads.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use limiter_core::script::{Answer, Exchange, Server};
use limiter_core::{Atomicity, Backend, Batch, Capabilities, ClockSource, Error, Outcome, Scope};
use tokio::time::Instant;

use crate::ENGINE;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::connect::Link;
use crate::error::Failure;

/// Limits in Redis, exact for all that use it: in one server, in the one that sentinels know as the primary, or in a cluster.
#[derive(Debug)]
pub struct Fred {
    store: Store,
    /// Brought back by each reply, so that one which belongs to another call is noticed.
    nonce: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Store {
    One(Box<Link>),
    Cluster(Arc<Cluster>),
}

impl Fred {
    /// Connects, and looks at the server: its role and version are right, or this fails; its eviction policy is right, or
    /// there is a warning (by `tracing`).
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotSent`](limiter_core::ErrorKind::NotSent) if the server can't be reached within the
    /// connect timeout, [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if it or its settings are not usable.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let config = Arc::new(config);
        let store = if config.seeds.is_empty() {
            Store::One(Box::new(Link::connect(config, None).await?))
        } else {
            Store::Cluster(Arc::new(Cluster::connect(config).await?))
        };
        Ok(Self { store, nonce: Arc::new(AtomicU64::new(RandomState::new().hash_one(ENGINE))) })
    }

    /// What the server said of itself at the start; of a cluster, one of its nodes.
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        match &self.store {
            Store::One(link) => Some(link.server().clone()),
            Store::Cluster(cluster) => cluster.server(),
        }
    }
}

#[async_trait]
impl Backend for Fred {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        match &self.store {
            Store::One(link) => {
                let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
                one(link, batch, nonce, Instant::now() + link.call_timeout()).await
            }
            Store::Cluster(cluster) => cluster.submit(batch, &self.nonce).await,
        }
    }

    fn capabilities(&self) -> Capabilities {
        let atomicity = match self.store {
            Store::One(_) => Atomicity::AllKeys,
            Store::Cluster(_) => Atomicity::SameScope,
        };
        Capabilities::new(ENGINE, ClockSource::Store, Scope::Cluster, atomicity).pipelined()
    }
}

async fn one(link: &Link, batch: Arc<Batch>, nonce: u64, deadline: Instant) -> Vec<Outcome> {
    let mut exchange = Exchange::new(ENGINE, batch, nonce);
    while let Some(command) = exchange.command() {
        match link.call(command, deadline).await {
            Ok(reply) => exchange.answer(Answer::Reply(&reply)),
            Err(Failure::NoScript) => exchange.answer(Answer::NoScript),
            Err(Failure::Failed { error, .. } | Failure::Elsewhere { error, .. }) => {
                exchange.answer(Answer::Failed(error));
            }
        }
    }
    exchange.outcomes()
}
