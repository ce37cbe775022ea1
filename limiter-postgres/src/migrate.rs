//! The tables and functions: looked for, and made if they are not there.

use limiter_core::Error;
use sqlx::Row;

use crate::backend::{Inner, Postgres};
use crate::error::{of_call, refused};
use crate::lanes::Lane;

impl Postgres {
    /// Makes the tables and functions, whether or not they are there: what [`Config::migration`](crate::Config::migration) prints.
    /// Any number of nodes may do so at once.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if the server will not, else as a call's.
    pub async fn migrate(&self) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + self.inner.lanes.config.connect_timeout;
        let mut lane = self.inner.lanes.take(deadline).await?;
        self.inner.install(&mut lane).await?;
        self.inner.lanes.keep(lane);
        Ok(())
    }
}

impl Inner {
    /// Makes sure that the tables and functions are there.
    pub(crate) async fn prepare(&self, lane: &mut Lane) -> Result<(), Error> {
        let rows = lane.session.all(&self.sql.installed).await.map_err(|error| of_call(&error).error)?;
        if rows.first().and_then(|row| row.try_get(0).ok()) == Some(true) {
            return Ok(());
        }
        if !self.lanes.config.migrate {
            return Err(refused("the tables or functions are not there, and the config says not to make them"));
        }
        self.install(lane).await
    }

    async fn install(&self, lane: &mut Lane) -> Result<(), Error> {
        lane.session.all(&self.sql.schema).await.map(drop).map_err(|error| of_call(&error).error)
    }
}
