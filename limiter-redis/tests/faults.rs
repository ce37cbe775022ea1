//! The engine goes through every fault that a store can have, on servers of its own.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use limiter_conformance::fault::Site;
use limiter_conformance::{BoxError, fault_rows};
use limiter_redis::{Config, Redis};

async fn connect(url: String) -> Result<Redis, BoxError> {
    Ok(Redis::connect(Config::from_url(&url)?).await?)
}

fault_rows!(Site::redis("redis", connect), connect);
