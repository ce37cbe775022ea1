#![doc = include_str!("../README.md")]

mod acquire;
#[cfg(feature = "envoy")]
pub mod envoy;
#[cfg(feature = "http")]
pub mod http;
pub mod layer;
mod limiter;
#[cfg(feature = "policy")]
pub mod policy;
#[cfg(feature = "prometheus")]
mod prometheus;
#[cfg(feature = "memory")]
mod stack;
mod store;

pub use acquire::{AcquireError, Permit};
pub use limiter::{KeyParts, RateLimiter};
pub use limiter_core::*;
#[cfg(feature = "prometheus")]
pub use prometheus::{Prometheus, PrometheusError};
#[cfg(feature = "memory")]
pub use stack::{Stack, StackBuilder};
pub use store::{ConnectError, connect, engine};
