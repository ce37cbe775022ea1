//! What layers count: always for whoever asks the layer, and, with the feature `metrics`, for the recorder that is installed.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that grows.
#[derive(Debug)]
pub(super) struct Count {
    value: AtomicU64,
    #[cfg(feature = "metrics")]
    exported: metrics::Counter,
}

impl Count {
    /// A counter of this name, for one engine.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nobody to tell the name to"))]
    pub(super) fn new(name: &'static str, describes: &'static str, engine: &'static str) -> Self {
        #[cfg(feature = "metrics")]
        metrics::describe_counter!(name, describes);
        Self {
            value: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            exported: metrics::counter!(name, "engine" => engine),
        }
    }

    pub(super) fn add(&self, more: usize) {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        self.value.fetch_add(more, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.exported.increment(more);
    }

    pub(super) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down. Only a recorder hears of it.
#[derive(Debug)]
pub(super) struct Gauge {
    #[cfg(feature = "metrics")]
    exported: metrics::Gauge,
}

impl Gauge {
    /// A gauge of this name, for one engine, at 0.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nobody to tell the name to"))]
    pub(super) fn new(name: &'static str, describes: &'static str, engine: &'static str) -> Self {
        let gauge = Self {
            #[cfg(feature = "metrics")]
            exported: {
                metrics::describe_gauge!(name, describes);
                metrics::gauge!(name, "engine" => engine)
            },
        };
        gauge.set(0);
        gauge
    }

    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, clippy::unused_self, reason = "nobody to tell the number to")
    )]
    pub(super) fn set(&self, value: u32) {
        #[cfg(feature = "metrics")]
        self.exported.set(f64::from(value));
    }
}
