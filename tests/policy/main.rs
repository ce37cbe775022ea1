//! Policies, through the public interface.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod answers;
mod failures;
mod file;
mod rules;
mod security;

use std::sync::Arc;

use limiter::Memory;
use limiter::policy::{Policy, PolicyLimiter};

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn limiter(text: &str) -> PolicyLimiter {
    PolicyLimiter::new(Arc::new(Memory::new()), policy(text))
}
