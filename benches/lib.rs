//! Benches of limiter: they measure, and export nothing.
