//! The engine on servers that change, fail and refuse.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

use limiter_redis::{Config, Redis as Engine};

#[path = "both/cluster.rs"]
mod cluster;
#[path = "both/errors.rs"]
mod errors;
#[path = "both/sentinel.rs"]
mod sentinel;
#[cfg(feature = "tls")]
#[path = "both/tls.rs"]
mod tls;
