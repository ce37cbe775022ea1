//! The conformance suite of limiter.
