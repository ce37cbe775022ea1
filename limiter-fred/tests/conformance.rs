//! The engine passes the whole suite, on each kind of store that it can talk to. The tests are those of `limiter-redis`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use limiter_fred::{Config, Fred as Engine};

const NAME: &str = "fred";

#[path = "../../limiter-redis/tests/both/suites.rs"]
mod suites;
