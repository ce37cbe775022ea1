#![doc = include_str!("../README.md")]

mod acquire;
pub mod layer;
mod limiter;
mod store;

pub use acquire::{AcquireError, Permit};
pub use limiter::{KeyParts, RateLimiter};
pub use limiter_core::*;
pub use store::{ConnectError, connect};
