//! Limits kept in Redis: an engine of [limiter](https://docs.rs/limiter) on the `fred` crate.
//!
//! For those who have fred in their service already. The script, its wire form and the conversation are those of
//! `limiter_core::script`, so a server may be shared with nodes that use `limiter-redis`: they count together.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use limiter_core::{BackendExt, Check, Key, Op};
//! use limiter_fred::{Config, Fred};
//!
//! let fred = Fred::connect(Config::from_url("redis://127.0.0.1:6379/")?).await?;
//! let check = Check::new(Key::new("tenant-7", "api", ["user-42"]), "100/1m sliding-log".parse()?, 1);
//! println!("allowed: {}", fred.ask_one(Op::Take, check).await?.allowed);
//! # Ok(())
//! # }
//! ```
//!
//! # How it differs from `limiter-redis`
//! - fred keeps the connection, and connects anew by itself. The server is looked at (version, eviction policy) once, at
//!   the start. A primary that becomes a replica, or stops answering, is left at the next call; calls that are in flight on its
//!   connection then are *unknown*.
//! - fred's own cluster client is not used: what may be sent once at most, it can't send again to the node that a slot moved to. Each
//!   node has a client of its own here, and the slots are kept as `limiter-redis` keeps them.
//! - While there is no connection, the first call may wait for its timeout and be *unknown*; the others fail at once.
//! - fred's last release is of February 2025.

mod backend;
mod cluster;
mod config;
mod connect;
mod error;

pub use backend::Fred;
pub use config::Config;

/// The engine's name in errors and metrics.
const ENGINE: &str = "fred";
