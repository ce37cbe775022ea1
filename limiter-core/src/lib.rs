//! The pure core of limiter.
