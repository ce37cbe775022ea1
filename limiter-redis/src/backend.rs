//! The engine: a loop over the conversation that the core leads.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use limiter_core::script::{Answer, Exchange, Server};
use limiter_core::{Atomicity, Backend, Batch, Capabilities, ClockSource, Error, Outcome, Scope};
use tokio::time::Instant;

use crate::ENGINE;
use crate::config::Config;
use crate::connect::Link;
use crate::error::Failure;

/// Limits in one Redis server, exact for all that use it.
#[derive(Debug)]
pub struct Redis {
    link: Link,
    /// Brought back by each reply, so that one which belongs to another call is noticed.
    nonce: AtomicU64,
}

impl Redis {
    /// Connects, and looks at the server: its role and version are right, or this fails; its eviction policy is right, or
    /// there is a warning (by `tracing`).
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotSent`](limiter_core::ErrorKind::NotSent) if the server can't be reached within the
    /// connect timeout, [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if it or its settings are not usable.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let link = Link::connect(config).await?;
        Ok(Self { link, nonce: AtomicU64::new(RandomState::new().hash_one(ENGINE)) })
    }

    /// What the server said of itself when it was last connected to.
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        self.link.server()
    }
}

#[async_trait]
impl Backend for Redis {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let deadline = Instant::now() + self.link.call_timeout();
        let mut exchange = Exchange::new(ENGINE, batch, self.nonce.fetch_add(1, Ordering::Relaxed));
        while let Some(command) = exchange.command() {
            let answer = self.link.call(command, deadline).await;
            match answer {
                Ok(reply) => exchange.answer(Answer::Reply(&reply)),
                Err(Failure::NoScript) => exchange.answer(Answer::NoScript),
                Err(Failure::Failed { error, .. }) => exchange.answer(Answer::Failed(error)),
            }
        }
        exchange.outcomes()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(ENGINE, ClockSource::Store, Scope::Cluster, Atomicity::AllKeys)
    }
}
