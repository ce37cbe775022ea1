//! Postgres with a streaming standby.

use std::net::SocketAddr;

use super::{local, until};
use crate::store::wire::Sql;
use crate::store::{Kind, Role, Store, StoreError};

/// The name by which the primary knows its standby.
const NAME: &str = "limiter_standby";

/// Whether a commit waits for the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replication {
    /// A commit returns when the primary has it; the last ones may be lost with the primary.
    Async,
    /// A commit returns when the standby has it too; without the standby it waits for ever.
    Sync,
}

/// A primary and a standby that streams from it and can be read.
#[derive(Debug)]
pub struct PostgresPair {
    /// Takes writes.
    pub primary: Store,
    /// Follows the primary; promote it with `SELECT pg_promote()`.
    pub standby: Store,
}

impl PostgresPair {
    /// Starts both and waits until the standby streams, in the manner asked for.
    ///
    /// # Errors
    ///
    /// As [`start`](crate::store::start); [`StoreError::Answer`] if the standby does not stream.
    pub fn start(replication: Replication) -> Result<Self, StoreError> {
        let primary = local(Kind::Postgres)?.start()?;
        let standby = Self::standby_of(primary.addr())?;
        if replication == Replication::Sync {
            let change = format!("ALTER SYSTEM SET synchronous_standby_names = '{NAME}'");
            let change = |sql: &mut Sql| sql.query(&change).and_then(|_| sql.query("SELECT pg_reload_conf()"));
            let connected = Sql::connect(primary.addr());
            connected
                .and_then(|mut sql| change(&mut sql))
                .map_err(StoreError::io("make a Postgres standby synchronous"))?;
        }
        let state = match replication {
            Replication::Async => "streaming async",
            Replication::Sync => "streaming sync",
        };
        let question =
            format!("SELECT state || ' ' || sync_state FROM pg_stat_replication WHERE application_name = '{NAME}'");
        until(
            "how a Postgres standby follows",
            state,
            || Sql::connect(primary.addr())?.query(&question),
            |rows| matches!(rows.as_slice(), [row] if matches!(row.as_slice(), [Some(got)] if got == state)),
        )?;
        Ok(Self { primary, standby })
    }

    /// Copies and follows the server at `addr`: a primary, or a [fault proxy](crate::proxy) in
    /// front of one, which makes the replication slow or breaks it. Does not wait for the stream.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); [`StoreError::Program`] if the copy fails.
    pub fn standby_of(addr: SocketAddr) -> Result<Store, StoreError> {
        let name = NAME.to_owned();
        local(Kind::Postgres)?.role(Role::Standby { of: addr, name }).start()
    }
}
