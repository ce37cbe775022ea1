//! The engine goes through every fault that a store can have, on servers of its own.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use limiter_conformance::fault::Site;
use limiter_conformance::{BoxError, fault_rows};
use limiter_fred::{Config, Fred};

async fn connect(url: String) -> Result<Fred, BoxError> {
    Ok(Fred::connect(Config::from_url(&url)?).await?)
}

fault_rows!(Site::redis("fred", connect), connect);
