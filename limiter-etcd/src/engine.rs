//! The engine.

use std::sync::Arc;

use async_trait::async_trait;
use limiter_core::{Atomicity, Backend, Batch, Capabilities, ClockSource, Error, Outcome, Scope};
use tokio::time::Instant;

use crate::ENGINE;
use crate::call::Call;
use crate::config::Config;
use crate::figures::Figures;
use crate::link::of_connecting;
use crate::node::Node;

/// Limits in an etcd cluster, exact for all that use it.
#[derive(Debug)]
pub struct Etcd {
    node: Arc<Node>,
}

impl Etcd {
    /// Connects, and reads below the prefix once: so a member answers, the user may read, and the cluster has a leader.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotSent`](limiter_core::ErrorKind::NotSent) if no member can be reached within the connect timeout
    /// (each), [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if they answer that they will not.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let node = Node::new(config);
        let mut failed = None;
        for _ in 0..node.link.members() {
            let until = Instant::now() + node.config.connect_timeout;
            match node.link.get(node.config.prefix.as_bytes().to_vec(), 0, until).await {
                Ok(_) => return Ok(Self { node }),
                Err(failure) => failed = Some(failure),
            }
        }
        Err(of_connecting(failed))
    }

    /// What the engine has done since it was made.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.node.figures()
    }
}

#[async_trait]
impl Backend for Etcd {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        if batch.requests.is_empty() {
            return Vec::new();
        }
        let requests = batch.requests.len();
        let call = Call::new(batch, Instant::now() + self.node.config.call_timeout);
        match self.node.enqueue(&call) {
            Ok(()) => call.outcomes().await,
            Err(overloaded) => std::iter::repeat_with(|| Outcome::NotSent(overloaded.clone())).take(requests).collect(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(ENGINE, ClockSource::Node, Scope::Cluster, Atomicity::AllKeys)
    }
}
