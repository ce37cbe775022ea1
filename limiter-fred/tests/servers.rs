//! The engine on servers that change, fail and refuse. The tests are those of `limiter-redis`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

use limiter_fred::{Config, Fred as Engine};

#[path = "../../limiter-redis/tests/both/cluster.rs"]
mod cluster;
#[path = "../../limiter-redis/tests/both/errors.rs"]
mod errors;
#[path = "../../limiter-redis/tests/both/sentinel.rs"]
mod sentinel;
#[cfg(feature = "tls")]
#[path = "../../limiter-redis/tests/both/tls.rs"]
mod tls;
