//! Limits kept in etcd: an engine of [limiter](https://docs.rs/limiter) on `etcd-client`.
//!
//! etcd runs no scripts and has no locks that are safe. So the decision is made here, by the core, and committed by
//! **compare-and-put**: one transaction that writes the new states if no key was written since, and else shows the present ones.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use limiter_core::{BackendExt, Check, Key, Op};
//! use limiter_etcd::{Config, Etcd};
//!
//! let etcd = Etcd::connect(Config::from_url("etcd://10.0.0.1,10.0.0.2,10.0.0.3")?).await?;
//! let check = Check::new(Key::new("tenant-7", "api", ["user-42"]), "100/1m token-bucket".parse()?, 1);
//! let decision = etcd.ask_one(Op::Take, check).await?;
//! println!("allowed: {}, {} left", decision.allowed, decision.remaining);
//! # Ok(())
//! # }
//! ```
//!
//! # How a check is decided
//!
//! ```text
//!  requests ──► queue ──► a group: what can be decided together        (a key is in one group of this process at a time)
//!                            │
//!              known states ─┴─► decide, in the order of coming ──► transaction:  if   no key was written since
//!                   ▲                                                             then put what changed
//!                   │                                                             else show the keys
//!                   └──────────────── shown: decide again ◄── else ────────────────┘ then ──► outcomes
//! ```
//!
//! - The state and the revision of a key are remembered, so a check that nobody disturbs is **one round trip**. A key that is not
//!   known is taken for a new one: if it is not, the same round trip shows it.
//! - All that wait for one key in this process are decided together: it never competes with itself, and a hot key costs one
//!   transaction for all of them. Up to [64 keys](Config::max_keys_per_txn) share a transaction, which is what makes many keys cheap.
//! - A request of several layers is one transaction over all its keys, whatever their scopes.
//! - A **denial** writes nothing, and is asked of the store all the same, by a transaction that only compares: a refund or a reset
//!   by another node is seen at once. It goes through no log and no disk.
//! - Nodes that meet at a key try again, each after a random while of as many round trips as there are others, and leave gaps for
//!   each other; after [so many attempts](Config::max_attempts) the outcome is an error of kind
//!   [`Contended`](limiter_core::ErrorKind::Contended). There are no locks.
//!
//! # What it promises
//!
//! - **Exact in the order of the store's revisions**: the history of a key is what the state machine gives for its instants and costs,
//!   whatever the nodes, tasks and failures. Versions are dense: a missing number is a missing write.
//! - Nothing is charged twice. A transaction of which no answer came is sent again *as it was*: it is conditional on revisions that
//!   never come back, so it is applied once at most, and the answer to any of them tells what became of it (by the mark that each
//!   write leaves, or by the key's history). Only what can't be found out within the call's timeout is *unknown*. One thing is
//!   left open: if a key was created by a transaction without an answer and then reset by another node within the same call, it is
//!   charged after the reset too.
//! - A call ends within [`Config::call_timeout`]. What was not begun by then is *not sent*, for certain.
//! - A member that does not answer is left for the next; without a quorum, calls fail within their timeout. Nothing has to be restarted.
//! - No error and no `Debug` output holds a password, an address or a key.
//!
//! # Time
//!
//! etcd has no clock to read, so the deciding node's is used. States never go back: a node whose clock is slow admits nothing
//! extra (it is told longer waits). One whose clock is ahead by e admits what e is worth at the limit's rate, **once**, and for windows
//! enters the next window e early. So with nodes whose clocks are within ± e of the true time, a bucket admits at most
//! rate × 2e more than one clock would have, once and not again and again; a sliding log admits its amount within each period as
//! the nodes tell it. Keep the clocks together (chrony or NTP: some ms). If a state is further ahead of this node's clock
//! than [`Config::max_skew`] there is a warning by `tracing`, and [`Figures::ahead`] counts it.
//!
//! Measured with two nodes at ± 500 ms, 200/s with a burst of 50, over 5 s:
//! `cargo test -p limiter-etcd --test faults f23 -- --nocapture`.
//!
//! # For the operator
//!
//! - **Garbage.** Each key is on a lease that outlives its state by [`Config::margin`] at least, and ends within twice the time that both
//!   take together. Leases are shared: a process needs a few at a time, however many keys there are. Nothing is to be swept.
//! - **Compaction** is yours: each write keeps its predecessor until then, some 200 bytes. Set
//!   `--auto-compaction-mode=periodic --auto-compaction-retention=5m` (or `revision` and `10000`). Without it the database fills up at
//!   17 GB for 10^8 checks. The engine needs the history of one call timeout only.
//! - **Quota**: `--quota-backend-bytes` is 2 GB unless told otherwise. When it is reached the NOSPACE alarm goes on; checks that
//!   would charge are then *refused*, questions and denials are still answered. (etcd applies the transaction that finds it out, and
//!   answers it like those that it refuses: the engine looks, so it is told right.) Compact, defragment and disarm (`etcdctl compact`,
//!   `defrag`, `alarm disarm`), and they are charged again.
//! - `--max-txn-ops` (128) has to be at least the number of layers in a request. More makes larger groups possible: tell
//!   [`Config::max_keys_per_txn`]. `--max-request-bytes` (1.5 MB) bounds the states of a group: a sliding log of n units is some 4 n bytes,
//!   and **is written as a whole for each admission**. Prefer buckets and counters here; a log of 1000 is 4 kB of raft log a check.
//! - **Users**: read and write on the prefix, `etcdctl role grant-permission limiter readwrite limiter/ --prefix`.
//! - A fast disk: each write waits for the fsync of a quorum. Three members lose nothing that was answered.
//! - To build it takes `protoc` and its includes (Debian: `protobuf-compiler`, `libprotobuf-dev`).
//!
//! # Measured
//!
//! `cargo bench -p limiter-benches --bench etcd`, etcd 3.4 on this machine's disk, two processors; all in one run of five rounds. The
//! ratios count, the medians of the rounds with the least and the most:
//!
//! | | plain use of the driver | this engine | ratio |
//! | --- | --- | --- | --- |
//! | one warm check | 1072 µs (a transaction of one put) | 1101 µs | 1.03 (1.02–1.06) |
//! | one hot key | 261/s (get, compare, put; 32 clients), 15 attempts a success | 23 397/s (2 processes of 32 tasks), 1.9 attempts | 91 (84–112) |
//! | 10 000 keys, 128 tasks | 5 073/s (a compare-and-put each, from a remembered revision) | 31 644/s | 6.3 (5.6–7.7) |
//!
//! On the hot key a transaction decides what one process has waiting, 32 checks here, and takes as long as a put does: that bounds the
//! decisions a second, and more callers in a process raise it.
//!
//! The fault rows (members killed and stalled, leaders that change, clocks apart, a full database) print their figures:
//! `cargo test -p limiter-etcd --test faults -- --nocapture`; the run of a million keys that are used once:
//! `LIMITER_ETCD_ONE_SHOT_KEYS=1000000 cargo test -p limiter-etcd --test garbage -- --nocapture`.

mod cache;
mod call;
mod commit;
mod config;
mod engine;
mod error;
mod figures;
mod group;
mod known;
mod lease;
mod link;
mod node;
mod queue;
mod send;
mod value;

pub use config::Config;
pub use engine::Etcd;
pub use figures::Figures;

/// The engine's name in errors and metrics.
const ENGINE: &str = "etcd";
