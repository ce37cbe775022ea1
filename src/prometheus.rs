//! A recorder that keeps what is counted, and renders it for Prometheus.

use std::fmt;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Durations from what a check costs in memory to what a deadline allows, in seconds.
const SECONDS: [f64; 15] =
    [0.000_001, 0.000_01, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
/// Requests in a call.
const REQUESTS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// What the layers count, in Prometheus' text format: all that begins with `limiter_`, and whatever else the service counts with the
/// `metrics` crate.
///
/// It opens no port; the service's own answers with [`render`](Self::render). The layers find the recorder when they are made, so it is
/// installed first.
///
/// ```
/// use std::sync::Arc;
/// use limiter::{Memory, Prometheus, RateLimiter, Stack};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let prometheus = Prometheus::install()?;
/// let stack = Stack::builder().build(Arc::new(Memory::new()));
/// let limiter = RateLimiter::new(Arc::new(stack), "login", "5/1m sliding-log".parse()?);
/// assert!(limiter.check("user-42").await?.allowed);
/// let text = prometheus.render();
/// assert!(text.contains(r#"limiter_decisions_total{rule="login",outcome="allowed",source="store"} 1"#), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Prometheus(PrometheusHandle);

/// Why there is no recorder.
#[derive(Debug, thiserror::Error)]
#[error("no recorder for metrics")]
pub struct PrometheusError(#[source] BuildError);

impl Prometheus {
    /// Makes the recorder of this process. It may be done once.
    ///
    /// # Errors
    /// [`PrometheusError`] if the process has a recorder already.
    pub fn install() -> Result<Self, PrometheusError> {
        let recorder = recorder().map_err(PrometheusError)?;
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)
            .map_err(|error| PrometheusError(BuildError::FailedToSetGlobalRecorder(error)))?;
        Ok(Self(handle))
    }

    /// All figures, in the text format, version 0.0.4.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Folds what was measured into the histograms. [`render`](Self::render) does so too: this is for a service that nobody
    /// asks, every few seconds, so that nothing piles up.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}

fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let seconds = Matcher::Suffix("_duration_seconds".to_owned());
    let requests = Matcher::Full("limiter_batch_size".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?;
    Ok(builder.set_buckets_for_metric(requests, &REQUESTS)?.build_recorder())
}
