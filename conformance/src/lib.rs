//! The conformance suite of limiter.

pub mod store;
