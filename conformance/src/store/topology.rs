//! Several servers that work together, for tests of replication, failover and sharding.
//!
//! Each `start` builds one from local binaries and returns when it works: replicas follow, slots
//! are served, a leader is elected. Where `LIMITER_STORES` forces another road, it fails.
//!
//! Every member is a [`Store`] that can be paused, killed and restarted by itself, and all end
//! when the value is dropped.

mod etcd;
mod postgres;
mod redis;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

pub use etcd::EtcdCluster;
pub use postgres::{PostgresPair, Replication};
pub use redis::{RedisCluster, RedisPair, RedisSentinel};

use super::{Kind, Launch, Road, Store, StoreError, road};

/// How long members may take to find each other; far beyond what they need.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(5);

/// A launch by the local road, if the environment leaves that open.
fn local(kind: Kind) -> Result<Launch, StoreError> {
    road::local_program(kind)?;
    Ok(Launch::new(kind).own().road(Road::Local))
}

/// Starts all of these at the same time; the first failure ends them all.
fn together(launches: Vec<Launch>) -> Result<Vec<Store>, StoreError> {
    thread::scope(|scope| {
        let starts: Vec<_> = launches.into_iter().map(|launch| scope.spawn(move || launch.start())).collect();
        let joined = starts.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Asks until `expected` holds; an error of the connection counts as "not yet".
fn until<T: std::fmt::Debug>(
    what: &str,
    expected: &str,
    ask: impl Fn() -> io::Result<T>,
    holds: impl Fn(&T) -> bool,
) -> Result<T, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let got = match ask() {
            Ok(answer) if holds(&answer) => return Ok(answer),
            other => other,
        };
        if Instant::now() >= deadline {
            return Err(StoreError::Answer {
                what: what.to_owned(),
                expected: expected.to_owned(),
                got: format!("{got:?} after {PATIENCE:?}"),
            });
        }
        thread::sleep(POLL);
    }
}
