//! The engine goes through every fault that one member can have. What several of them go through is in `faults.rs`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use limiter_conformance::fault::Site;
use limiter_conformance::{BoxError, fault_rows};
use limiter_etcd::{Config, Etcd};

async fn connect(url: String) -> Result<Etcd, BoxError> {
    Ok(Etcd::connect(Config::from_url(&url)?).await?)
}

fault_rows!(Site::etcd("etcd", connect), connect);
