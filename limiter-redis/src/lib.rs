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
//! # What it promises
//! - A call ends within [`Config::call_timeout`], whatever the server does.
//! - Nothing is sent twice, but a script that the server did not have. A call that left and was not answered is *unknown*.
//! - While there is no connection, calls fail at once or within the connect timeout, as *not sent*; the first call after the
//!   server is back connects anew.
//! - No error and no `Debug` output holds a password, a URL or a key.
//!
//! A server that loses its data loses limits with it: at most one capacity more is admitted for each key and loss.

mod backend;
mod config;
mod connect;
mod error;

pub use backend::Redis;
pub use config::Config;

/// The engine's name in errors and metrics.
const ENGINE: &str = "redis";
