//! Limits kept in Redis: an engine of [limiter](https://docs.rs/limiter) on the `redis` crate.
//!
//! Each batch is one call of one script, decided on the server's own clock, exact for all nodes that use the server. The
//! script, its wire form and the conversation are those of `limiter_core::script`; this crate holds the connection and tells
//! what came of each call.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use limiter_core::{BackendExt, Check, Key, Op};
//! use limiter_redis::{Config, Redis};
//!
//! let redis = Redis::connect(Config::from_url("redis://127.0.0.1:6379/")?).await?;
//! let check = Check::new(Key::new("tenant-7", "api", ["user-42"]), "100/1m sliding-log".parse()?, 1);
//! let decision = redis.ask_one(Op::Take, check).await?;
//! println!("allowed: {}, {} left", decision.allowed, decision.remaining);
//! # Ok(())
//! # }
//! ```
//!
//! # One server, sentinels, a cluster
//! The URL says which ([`Config::from_url`]), and the rest is the same:
//!
//! - **Sentinels** are asked for the primary whenever a connection is made. One that is lost, that gives no answer in time, or whose server
//!   has become a replica, is made anew; so a failover is followed without a restart. What was in flight is *unknown*, and is
//!   not sent again.
//! - **Cluster**: each key lies at the node of its slot, and all keys of one scope share a slot. A batch goes to all its nodes at once, to each
//!   in one write, with one call of the script for each slot. A request whose keys share a scope is decided in one step. One
//!   over several scopes takes what is narrow first while it asks the others, then takes those one by one, and refunds if one refuses:
//!   that may refuse too much for an instant, and never admits too much. It takes a round trip for each scope where one would do on a
//!   single server, and its decision has the earliest of the nodes' instants. Refusals that name another node (`MOVED`, `ASK`)
//!   or another time (`TRYAGAIN`, `CLUSTERDOWN`) are followed up to six times within the deadline, since nothing was applied. After a failover of
//!   a node its slots are asked for anew.
//!
//! In both, a primary that dies takes with it what its replica had not received yet: at most that much more is admitted. While an
//! old primary and a new one both answer, each admits up to the limit; `min-replicas-to-write` with a short `min-replicas-max-lag` bounds that.
//!
//! # What it promises
//! - A call ends within [`Config::call_timeout`], whatever the server does.
//! - Nothing is sent twice that may have run: only a script that the server did not have, and what a server refused. A call that left and was not answered is *unknown*.
//! - While there is no connection, calls fail at once or within the connect timeout, as *not sent*; the first call after the
//!   server is back connects anew.
//! - No error and no `Debug` output holds a password, a URL or a key.
//!
//! A server that loses its data loses limits with it: at most one capacity more is admitted for each key and loss.

mod backend;
mod cluster;
mod config;
mod connect;
mod error;
mod sentinel;

pub use backend::Redis;
pub use config::Config;

/// The engine's name in errors and metrics.
const ENGINE: &str = "redis";
