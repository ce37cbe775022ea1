//! The innermost layer: what each call costs, and how it ends.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use limiter_core::{Backend, Batch, Capabilities, Outcome};
use tracing::Instrument;

/// A layer that watches the calls to the engine; it stands right around it, inside [`GroupCommit`](super::super::GroupCommit).
///
/// Each call is a `tracing` span `store_call` at debug level, with the engine and how many requests go together. With the feature
/// `metrics`:
///
/// | name | labels | what |
/// | --- | --- | --- |
/// | `limiter_store_calls_total` | `engine`, `result`: `answered`, `silent` | calls; silent if no request was answered |
/// | `limiter_store_call_duration_seconds` | `engine` | how long a call took |
/// | `limiter_batch_size` | `engine` | requests in a call |
/// | `limiter_store_outcomes_total` | `engine`, `outcome`: `decided`, or the name of an [`ErrorKind`](crate::ErrorKind) | requests |
pub struct WatchCalls {
    backend: Arc<dyn Backend>,
    #[cfg(feature = "metrics")]
    figures: figures::Figures,
}

impl WatchCalls {
    /// `backend`, watched.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            figures: figures::Figures::new(backend.capabilities().engine),
            backend,
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for WatchCalls {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        // Never the keys: they may name people.
        let span = tracing::debug_span!(
            "store_call",
            engine = self.backend.capabilities().engine,
            requests = batch.requests.len()
        );
        #[cfg(feature = "metrics")]
        let started = std::time::Instant::now();
        let outcomes = self.backend.submit(batch).instrument(span).await;
        #[cfg(feature = "metrics")]
        self.figures.called(&outcomes, started.elapsed());
        outcomes
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

impl fmt::Debug for WatchCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchCalls({:?})", self.backend)
    }
}

#[cfg(feature = "metrics")]
mod figures {
    use std::time::Duration;

    use limiter_core::{Error, ErrorKind, Outcome};
    use metrics::{Counter, Histogram, Unit};

    const CALLS: &str = "limiter_store_calls_total";
    const DURATION: &str = "limiter_store_call_duration_seconds";
    const SIZE: &str = "limiter_batch_size";
    const OUTCOMES: &str = "limiter_store_outcomes_total";

    /// The recorder's handles, looked up once.
    pub(super) struct Figures {
        engine: &'static str,
        answered: Counter,
        silent: Counter,
        duration: Histogram,
        size: Histogram,
        decided: Counter,
    }

    impl Figures {
        pub(super) fn new(engine: &'static str) -> Self {
            metrics::describe_counter!(CALLS, "Calls to the store");
            metrics::describe_histogram!(DURATION, Unit::Seconds, "How long a call to the store took");
            metrics::describe_histogram!(SIZE, "Requests in a call to the store");
            metrics::describe_counter!(OUTCOMES, "Requests that the store was asked for");
            Self {
                engine,
                answered: metrics::counter!(CALLS, "engine" => engine, "result" => "answered"),
                silent: metrics::counter!(CALLS, "engine" => engine, "result" => "silent"),
                duration: metrics::histogram!(DURATION, "engine" => engine),
                size: metrics::histogram!(SIZE, "engine" => engine),
                decided: metrics::counter!(OUTCOMES, "engine" => engine, "outcome" => "decided"),
            }
        }

        pub(super) fn called(&self, outcomes: &[Outcome], took: Duration) {
            self.duration.record(took);
            self.size.record(u32::try_from(outcomes.len()).unwrap_or(u32::MAX));
            let (mut decided, mut answered) = (0, false);
            for outcome in outcomes {
                match outcome.record().map_err(Error::kind) {
                    Ok(_) => decided += 1,
                    Err(kind) => {
                        answered |= !matches!(kind, ErrorKind::NotSent | ErrorKind::Unknown { .. });
                        // A failure is seldom, so its handle is looked up.
                        metrics::counter!(OUTCOMES, "engine" => self.engine, "outcome" => kind.name()).increment(1);
                    }
                }
            }
            self.decided.increment(decided);
            if answered || decided > 0 { self.answered.increment(1) } else { self.silent.increment(1) }
        }
    }
}
