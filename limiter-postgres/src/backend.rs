//! The engine: a batch is one call of a function, in a task that no caller can cut short.

use std::sync::Arc;

use async_trait::async_trait;
use limiter_core::{Atomicity, Backend, Batch, Capabilities, ClockSource, Error, Outcome, Scope};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::ENGINE;
use crate::config::Config;
use crate::error::{Failure, not_sent, of_call, unknown};
use crate::lanes::{Lane, Lanes};
use crate::sql::Sql;
use crate::sweep;
use crate::wire::{Call, Function};

/// How often a call is made that the server has certainly undone since others came in between.
const ATTEMPTS: u32 = 3;

/// Limits in one Postgres database, exact for all that use it.
#[derive(Debug)]
pub struct Postgres {
    pub(crate) inner: Arc<Inner>,
    sweeper: Option<AbortHandle>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) lanes: Lanes,
    pub(crate) sql: Sql,
}

impl Postgres {
    /// Connects, makes sure that the server is a primary, and that the tables and functions are there: it makes them, or fails if
    /// it [may not](Config::migrate).
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotSent`](limiter_core::ErrorKind::NotSent) if the server can't be reached within the connect timeout,
    /// [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if it or the config is not usable.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let sql = config.sql()?;
        Self::with_sql(config, sql).await
    }

    pub(crate) async fn with_sql(config: Config, sql: Sql) -> Result<Self, Error> {
        let (deadline, every) = (Instant::now() + config.connect_timeout, config.sweep_every);
        let inner = Arc::new(Inner { lanes: Lanes::new(config), sql });
        let mut lane = inner.lanes.take(deadline).await?;
        inner.prepare(&mut lane).await?;
        inner.lanes.keep(lane);
        let sweeper = every.map(|every| tokio::spawn(sweep::forever(Arc::downgrade(&inner), every)).abort_handle());
        Ok(Self { inner, sweeper })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(sweeper) = &self.sweeper {
            sweeper.abort();
        }
    }
}

impl Inner {
    /// Decides the batch, and keeps the connection if it is still good.
    async fn decide(&self, batch: &Batch, call: &Call, deadline: Instant) -> Result<Vec<Outcome>, Error> {
        let mut lane = self.lanes.take(deadline).await?;
        let mut attempts = 1;
        let failure = loop {
            match self.ask(&mut lane, call, deadline).await {
                Ok(result) => match call.outcomes(batch, &result) {
                    Some(outcomes) => {
                        self.lanes.keep(lane);
                        return Ok(outcomes);
                    }
                    None => break of_call(&sqlx::Error::RowNotFound),
                },
                Err(failure) if failure.again && attempts < ATTEMPTS => attempts += 1,
                Err(failure) => break failure,
            }
        };
        if failure.lost {
            drop(lane);
            self.lanes.forget();
        } else {
            self.lanes.keep(lane);
        }
        Err(failure.error)
    }

    async fn ask(&self, lane: &mut Lane, call: &Call, deadline: Instant) -> Result<Vec<i64>, Failure> {
        let sql = match call.function {
            Function::One => &self.sql.one,
            Function::Take => &self.sql.take,
            Function::Step => &self.sql.step,
        };
        let answer = lane.session.call(&self.lanes.config, sql, &call.keys, &call.argument);
        timeout_at(deadline, answer).await.unwrap_or_else(|_| {
            Err(Failure { error: unknown(true, "the server did not answer in time"), lost: true, again: false })
        })
    }
}

/// The same failure for each request.
fn all(batch: &Batch, error: &Error) -> Vec<Outcome> {
    let outcome = || {
        if error.kind().is_certain() { Outcome::NotSent(error.clone()) } else { Outcome::Unknown(error.clone()) }
    };
    batch.requests.iter().map(|_| outcome()).collect()
}

#[async_trait]
impl Backend for Postgres {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        if batch.requests.is_empty() {
            return Vec::new();
        }
        let deadline = Instant::now() + self.inner.lanes.config.call_timeout;
        let Ok(runtime) = Handle::try_current() else {
            return all(&batch, &not_sent("there is no running Tokio runtime to ask the server from"));
        };
        // A caller that is dropped must leave no call half-read on a connection, and no transaction open.
        let (inner, asked) = (Arc::clone(&self.inner), Arc::clone(&batch));
        let task = runtime.spawn(async move {
            let call = Call::of(&asked);
            inner.decide(&asked, &call, deadline).await.unwrap_or_else(|error| all(&asked, &error))
        });
        task.await.unwrap_or_else(|_| all(&batch, &unknown(true, "the call broke off")))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(ENGINE, ClockSource::Store, Scope::Cluster, Atomicity::AllKeys)
    }
}
