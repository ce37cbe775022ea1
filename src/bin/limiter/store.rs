//! The store that a command works on: what `--store` names, and keys of the run's own in it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use limiter::{Backend, ConnectError, Memory};

use crate::exit::{Exit, Failure};

const MEMORY: &str = "memory:";
/// The most keys of a `memory:` table. A key takes some 300 bytes, so this is 1.2 GB at most; what a trace has not takes none.
const MAX_KEYS: usize = 1 << 22;
/// The most log entries of a `memory:` table. It is split over 64 shards, and a full log of 100,000 has to fit in one
/// with room to spare.
const MAX_LOG_ENTRIES: usize = 1 << 26;

/// What `--store` names, as a service gets it: many checks go in one call.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Backend>, Failure> {
    if url == MEMORY { Ok(memory()) } else { limiter::connect(url).await.map_err(failure) }
}

/// What `--store` names, each check in a call of its own.
pub(crate) async fn engine(url: &str) -> Result<Arc<dyn Backend>, Failure> {
    if url == MEMORY { Ok(memory()) } else { limiter::engine(url).await.map_err(failure) }
}

/// With larger bounds than a service's: what a replay refuses for want of room would be a wrong answer.
fn memory() -> Arc<dyn Backend> {
    Arc::new(Memory::builder().max_keys(MAX_KEYS).max_log_entries(MAX_LOG_ENTRIES).build())
}

fn failure(error: ConnectError) -> Failure {
    match error {
        ConnectError::Scheme | ConnectError::Memory | ConnectError::NotBuilt { .. } => Failure::usage(error),
        _ => Failure::new(Exit::Failed, error),
    }
}

/// A scope that no other run has, so that on a shared store every run starts fresh.
pub(crate) fn own_scope(command: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{command}-{}-{}", since.as_nanos(), std::process::id())
}
