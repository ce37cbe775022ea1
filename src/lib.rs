//! Distributed rate limiting, exact for the whole cluster, on the store you already run.

mod acquire;
mod limiter;
mod store;

pub use acquire::{AcquireError, Permit};
pub use limiter::{KeyParts, RateLimiter};
pub use limiter_core::*;
pub use store::{ConnectError, connect};
