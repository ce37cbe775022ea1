//! The connections, each of which has one call at a time; made when they are needed, and kept.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limiter_core::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::config::Config;
use crate::error::not_sent;
use crate::session::Session;

/// After an attempt in vain there is no other for this long: those who come meanwhile are told the same at once.
const PAUSE: Duration = Duration::from_millis(100);
/// A connection that was idle for longer is asked whether it still lives, so that one which was lost meanwhile costs a round trip and
/// not an outcome.
const IDLE: Duration = Duration::from_secs(5);

pub(crate) struct Lanes {
    pub(crate) config: Config,
    free: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The one that was used last lies on top.
    idle: Vec<(Session, Instant)>,
    failed: Option<(Instant, Error)>,
}

/// A connection for one call. It goes back by [`Lanes::keep`]; dropped, it is closed.
pub(crate) struct Lane {
    pub(crate) session: Session,
    _permit: OwnedSemaphorePermit,
}

impl Lanes {
    pub(crate) fn new(config: Config) -> Self {
        let connections = usize::try_from(config.connections).unwrap_or(1).min(Semaphore::MAX_PERMITS);
        Self { config, free: Arc::new(Semaphore::new(connections)), state: Mutex::default() }
    }

    /// A connection that is free, or a new one. Whatever fails here, nothing was sent.
    pub(crate) async fn take(&self, deadline: Instant) -> Result<Lane, Error> {
        let permit = timeout_at(deadline, Arc::clone(&self.free).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(not_sent("no connection was free in time")) };
        // In a statement of its own, so that the lock is gone before anything else is done.
        let mut idle = self.state().idle.pop();
        while let Some((mut session, since)) = idle {
            if since.elapsed() < IDLE {
                return Ok(Lane { session, _permit: permit });
            }
            match timeout_at(deadline, session.ping()).await {
                Ok(Ok(())) => return Ok(Lane { session, _permit: permit }),
                Ok(Err(_)) => idle = self.state().idle.pop(),
                Err(_) => return Err(not_sent("the server did not answer while its connection was tried")),
            }
        }
        let session = self.open(deadline).await?;
        Ok(Lane { session, _permit: permit })
    }

    pub(crate) fn keep(&self, lane: Lane) {
        let Lane { session, _permit } = lane;
        self.state().idle.push((session, Instant::now()));
    }

    /// Closes those that are not in use: after a loss they are most likely lost too.
    pub(crate) fn forget(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
    }

    async fn open(&self, deadline: Instant) -> Result<Session, Error> {
        let failed = self.state().failed.clone();
        if let Some((at, error)) = failed
            && at.elapsed() < PAUSE
        {
            return Err(error);
        }
        let until = deadline.min(Instant::now() + self.config.connect_timeout);
        let opened = timeout_at(until, Session::open(&self.config)).await;
        let opened = opened.unwrap_or_else(|_| Err(not_sent("no connection in time")));
        self.state().failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.state().idle.len();
        f.debug_struct("Lanes").field("config", &self.config).field("idle", &idle).finish_non_exhaustive()
    }
}
