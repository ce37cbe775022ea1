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
use crate::config::{Config, Road};
use crate::connect::{Link, Place};
use crate::error::Failure;
use crate::sentinel::Sentinels;

/// Limits in Redis, exact for all that use it: in one server, in the one that sentinels know as the primary, or in a cluster.
#[derive(Debug)]
pub struct Redis {
    store: Store,
    /// Brought back by each reply, so that one which belongs to another call is noticed.
    nonce: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Store {
    One(Box<Link>),
    Cluster(Arc<Cluster>),
}

impl Redis {
    /// Connects, and looks at the server: its role and version are right, or this fails; its eviction policy is right, or
    /// there is a warning (by `tracing`).
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotSent`](limiter_core::ErrorKind::NotSent) if the server can't be reached within the
    /// connect timeout, [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if it or its settings are not usable.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let config = Arc::new(config);
        let one = |place| Store::One(Box::new(Link::new(Arc::clone(&config), place)));
        let store = match &config.road {
            Road::Single => one(Place::Configured),
            Road::Sentinels { all, service } => one(Place::Sentinels(Sentinels::new(all.clone(), service.clone()))),
            Road::Cluster(seeds) => Store::Cluster(Arc::new(Cluster::new(Arc::clone(&config), seeds.clone()))),
        };
        match &store {
            Store::One(link) => link.connect().await?,
            Store::Cluster(cluster) => cluster.connect().await?,
        }
        Ok(Self { store, nonce: Arc::new(AtomicU64::new(RandomState::new().hash_one(ENGINE))) })
    }

    /// What the server said of itself when it was last connected to; of a cluster, one of its nodes.
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        match &self.store {
            Store::One(link) => link.server(),
            Store::Cluster(cluster) => cluster.server(),
        }
    }
}

#[async_trait]
impl Backend for Redis {
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
    let mut looked = false;
    while let Some(command) = exchange.command() {
        match link.call(command, deadline).await {
            Ok(reply) => exchange.answer(Answer::Reply(&reply)),
            Err(Failure::NoScript) => exchange.answer(Answer::NoScript),
            // A primary that became a replica. Nothing was applied, so once, where the road now leads, it may be asked again.
            Err(Failure::Failed { error, lost: true }) if error.kind().is_certain() && !looked => looked = true,
            Err(Failure::Failed { error, .. } | Failure::Elsewhere { error, .. }) => {
                exchange.answer(Answer::Failed(error));
            }
        }
    }
    exchange.outcomes()
}
