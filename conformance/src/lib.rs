//! The conformance suite of limiter.

pub mod vectors;
