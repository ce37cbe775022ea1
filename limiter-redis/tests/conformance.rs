//! The engine passes the whole suite, on each kind of store that it can talk to.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use limiter_redis::{Config, Redis as Engine};

const NAME: &str = "redis";

#[path = "both/suites.rs"]
mod suites;
