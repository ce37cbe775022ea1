//! Distributed rate limiting, exact for the whole cluster, on the store you already run.

mod store;

pub use limiter_core as core;
pub use limiter_core::*;
pub use store::{ConnectError, connect};
