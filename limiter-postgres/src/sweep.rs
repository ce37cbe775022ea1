//! Expired rows are removed a few pages at a time, in the background, by any number of nodes.

use std::hash::{BuildHasher, RandomState};
use std::sync::Weak;
use std::time::Duration;

use limiter_core::Error;
use tokio::time::{Instant, sleep};

use crate::ENGINE;
use crate::backend::{Inner, Postgres};
use crate::error::unknown;

/// Pages of one statement: some 2 MB, which take a few ms.
const PAGES: i64 = 256;

impl Postgres {
    /// Removes all expired rows that nobody holds just now, and tells how many. The space that they leave is used again once
    /// `autovacuum` has come by.
    ///
    /// # Errors
    /// As a call's. What was removed until then stays removed.
    pub async fn sweep(&self) -> Result<u64, Error> {
        self.inner.sweep().await
    }
}

impl Inner {
    /// All pages once, from a random one on, so that nodes which sweep at the same time seldom meet.
    async fn sweep(&self) -> Result<u64, Error> {
        let (_, pages) = self.sweep_from(0, 0).await?;
        let parts = pages / PAGES + 1;
        let first = random().rem_euclid(parts);
        let mut removed = 0;
        for part in 0..parts {
            removed += self.sweep_from((first + part) % parts * PAGES, PAGES).await?.0;
        }
        Ok(removed)
    }

    /// How many rows went, and how many pages there are.
    async fn sweep_from(&self, start: i64, pages: i64) -> Result<(u64, i64), Error> {
        let deadline = Instant::now() + self.lanes.config.call_timeout;
        let mut lane = self.lanes.take(deadline).await?;
        let answer = lane.session.call_with(&self.lanes.config, &self.sql.sweep, [start, pages]);
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(numbers)) => {
                self.lanes.keep(lane);
                match numbers.as_slice() {
                    [removed, pages] => Ok((u64::try_from(*removed).unwrap_or_default(), *pages)),
                    _ => Err(unknown(false, "the sweep's answer has not the form")),
                }
            }
            Ok(Err(failure)) => {
                if !failure.lost {
                    self.lanes.keep(lane);
                }
                Err(failure.error)
            }
            Err(_) => Err(unknown(true, "the server did not answer in time")),
        }
    }
}

/// Sweeps at this interval until the engine is gone. The first time comes within it, at random.
pub(crate) async fn forever(inner: Weak<Inner>, every: Duration) {
    let part = u32::try_from(random().rem_euclid(1000)).unwrap_or_default();
    sleep(every * part / 1000).await;
    loop {
        let Some(engine) = inner.upgrade() else { return };
        match engine.sweep().await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(engine = ENGINE, removed, "expired states were removed"),
            Err(error) => tracing::debug!(engine = ENGINE, %error, "expired states were not removed"),
        }
        drop(engine);
        sleep(every).await;
    }
}

fn random() -> i64 {
    i64::from_ne_bytes(RandomState::new().hash_one(ENGINE).to_ne_bytes())
}
