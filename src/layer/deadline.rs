//! No decision takes longer than its caller can wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use limiter_core::{Backend, Batch, Capabilities, Error, ErrorKind, Outcome};
use tokio::time;

use super::figures::Count;

/// The layer's name in its own errors.
const LAYER: &str = "deadline";

/// A layer that ends each call after a while: a store that is slow is then the same as one that is dead.
///
/// What became of the requests is [unknown](Outcome::Unknown) then, and may still be applied; it is never repeated.
///
/// An engine has a timeout of its own, and group commit another. Those see to it that nothing hangs for ever and may be generous; this
/// one is what a decision may cost the request that waits for it.
///
/// A batch with a given instant is passed on as it is.
///
/// # Panics
/// `submit` panics outside a Tokio runtime with its timer enabled.
pub struct Deadline {
    backend: Arc<dyn Backend>,
    within: Duration,
    missed: Count,
}

impl Deadline {
    /// `backend`, each of whose calls ends within so long.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, within: Duration) -> Self {
        let engine = backend.capabilities().engine;
        let missed =
            Count::new("limiter_deadline_missed_total", "Requests without an answer within the deadline", engine);
        Self { backend, within, missed }
    }

    /// How many requests had no answer in time.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Deadline {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        if batch.at.is_some() {
            return self.backend.submit(batch).await;
        }
        let requests = batch.requests.len();
        if let Ok(outcomes) = time::timeout(self.within, self.backend.submit(batch)).await {
            return outcomes;
        }
        self.missed.add(requests);
        let error = Error::new(LAYER, ErrorKind::Unknown { in_flight: true }, "no answer within the deadline");
        vec![Outcome::Unknown(error); requests]
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deadline({:?}, {:?})", self.within, self.backend)
    }
}
