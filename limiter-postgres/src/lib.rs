//! Limits kept in Postgres: the engine of limiter for services whose only store is Postgres, on `sqlx`.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use limiter_core::{BackendExt, Check, Key, Op};
//! use limiter_postgres::{Config, Postgres};
//!
//! let engine = Postgres::connect(Config::from_url("postgres://localhost/app")?).await?;
//! let check = Check::new(Key::new("tenant-7", "api", ["user-42"]), "100/1m sliding-log".parse()?, 1);
//! let decision = engine.ask_one(Op::Take, check).await?;
//! println!("allowed: {}, {} left", decision.allowed, decision.remaining);
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! A batch is **one round trip**, one statement and one transaction: a call of a function that the crate installs. The function locks
//! the rows of the batch in the order of their keys, and makes those that are missing, in one pass; reads `clock_timestamp()` only
//! then; steps; and writes what has changed. So it is exact for all nodes by row locks, there is no deadlock between batches, a row that
//! does not exist yet is no special case, and a clock of a node never matters. The functions are mirrors of the core's machines: they
//! answer with the states that they decided on, the core derives the rest, and a verdict that is not the core's is an error and never
//! an answer.
//!
//! Batches are what makes Postgres fast: put a `GroupCommit` of the `limiter` crate around the engine, as `limiter::connect` does.
//! `cargo bench -p limiter-benches --bench postgres` measures that on your machine, beside an upsert and a
//! `BEGIN; SELECT … FOR UPDATE; UPDATE; COMMIT` by the same driver.
//!
//! A batch that has only refused or asked writes nothing and does not wait for the disk.
//!
//! # Outcomes
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no connection, none free in time, a full pool, the server is starting | not sent |
//! | the server answered with an error: read-only, disk full, lock or statement timeout | not sent: the transaction was rolled back |
//! | a deadlock or serialization failure (which ours do not cause) | asked again up to twice, then not sent |
//! | the session was ended, the connection broke, no answer in time | unknown |
//!
//! Every call runs in a task of its own that owns its connection: a caller that is dropped leaves no transaction open and no
//! connection half-read. The server's own timeouts ([`lock_timeout`](Config::lock_timeout), and nine tenths of
//! [`call_timeout`](Config::call_timeout) for the statement) end a call before the client's does, so that its outcome is certain.
//!
//! # What a crash forgets
//!
//! | setting | after a crash | after a failover |
//! | --- | --- | --- |
//! | [`Durability::On`], synchronous standby | nothing | nothing |
//! | [`Durability::On`], asynchronous standby | nothing | what had not reached it |
//! | [`Durability::Off`] | the last 3 × `wal_writer_delay`, 0.6 s as Postgres comes | the same, and what had not reached it |
//! | [`Config::unlogged`] | everything | everything: a standby has none of it |
//!
//! What is forgotten may be admitted once more, at most a limit's capacity for each key. Decisions are made on a primary only.
//!
//! # Tables
//!
//! [`Config::migration`] prints them; [`Postgres::connect`] makes them if they are missing and it [may](Config::migrate). Postgres 14
//! is the oldest that will do. The functions' names end in a digest of their text, so that two versions of this crate share a
//! database during a rolling upgrade. There is no index but the key's, so updates are HOT. Expired rows are removed in the
//! background, some pages at a time, rows that are in use left out; any number of nodes may do so.
//!
//! A user needs `USAGE` on the schema and `SELECT, INSERT, UPDATE, DELETE` on both tables.
//!
//! # Poolers
//!
//! Behind `PgBouncer` in transaction mode set [`Config::pooler`]: then a call is one message of the simple protocol that brings its
//! settings along, and needs no session.
//!
//! # Features
//!
//! `tls`: `sslmode=require` and stricter, by rustls with ring.

mod backend;
mod config;
mod error;
mod lanes;
mod migrate;
mod session;
mod sql;
mod sweep;
mod wire;

pub use backend::Postgres;
pub use config::{Config, Durability};

/// The engine's name, as in errors and metrics.
const ENGINE: &str = "postgres";
