//! The engine goes through every fault that one server can have. What is Postgres's own is in `faults.rs`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use limiter_conformance::fault::Site;
use limiter_conformance::{BoxError, fault_rows};
use limiter_postgres::{Config, Postgres};

async fn connect(url: String) -> Result<Postgres, BoxError> {
    Ok(Postgres::connect(Config::from_url(&url)?).await?)
}

fault_rows!(Site::postgres("postgres", connect), connect);
