//! The conformance suite of limiter.

pub mod timelines;
pub mod vectors;
