//! The conformance suite of limiter.

pub mod proxy;
pub mod store;
pub mod timelines;
pub mod vectors;
