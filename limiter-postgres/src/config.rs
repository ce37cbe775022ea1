//! Where the states are, what a commit waits for, and how long to wait for anything.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use limiter_core::Error;
use sqlx::postgres::{PgConnectOptions, PgPool};

use crate::error::refused;
use crate::sql::Sql;

/// What the commit of a decision waits for. It bounds what a crash forgets, and thus what is admitted once too often: at most
/// what was admitted in the stretch that was lost, and at most a limit's capacity for each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// What the server, the database or the user is set to: mostly as [`On`](Self::On).
    #[default]
    AsServer,
    /// The disk, and the synchronous standby if there is one. A crash forgets nothing, and neither does a failover to that standby.
    On,
    /// The primary's disk only. A failover may forget what the standby had not got yet.
    Local,
    /// Nothing. A crash forgets the last 3 × `wal_writer_delay` (0.6 s as Postgres comes) at most.
    Off,
}

impl Durability {
    pub(crate) const fn setting(self) -> Option<&'static str> {
        match self {
            Self::AsServer => None,
            Self::On => Some("on"),
            Self::Local => Some("local"),
            Self::Off => Some("off"),
        }
    }
}

/// How to reach the server, and how to use it. Its `Debug` output shows no user, no password, no address.
#[derive(Clone)]
#[must_use = "a config does nothing until `Postgres::connect`"]
pub struct Config {
    pub(crate) source: Source,
    pub(crate) schema: String,
    pub(crate) table: String,
    pub(crate) unlogged: bool,
    pub(crate) durability: Durability,
    pub(crate) connections: u32,
    pub(crate) pooler: bool,
    pub(crate) migrate: bool,
    pub(crate) sweep_every: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) lock_timeout: Duration,
}

/// Where connections come from.
#[derive(Clone)]
pub(crate) enum Source {
    Server(Box<PgConnectOptions>),
    Pool(PgPool),
}

impl Config {
    /// Of a URL, as `sqlx` reads it: `postgres://[user][:password@]host[:port][/database][?sslmode=…]`; `sslmode` other than
    /// `disable`, `allow` and `prefer` needs the feature `tls`.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if it can't be read. The URL is not repeated.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let form = "the URL is not of the form postgres://[user][:password@]host[:port][/database][?sslmode=…]";
        let options = PgConnectOptions::from_str(url).map_err(|_| refused(form))?;
        if !(url.starts_with("postgres:") || url.starts_with("postgresql:")) {
            return Err(refused(form));
        }
        Ok(Self::from_options(options))
    }

    /// Of the driver's own options.
    pub fn from_options(options: PgConnectOptions) -> Self {
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("limiter"),
        };
        Self::of(Source::Server(Box::new(options)))
    }

    /// Of a pool that the application has already. The engine takes up to [`connections`](Self::connections) of it as it needs them,
    /// and keeps each: to check one out for every call costs two round trips more. So the pool has to be larger than that. The
    /// settings of those connections are changed, hence they are closed and not given back in the end.
    pub fn from_pool(pool: PgPool) -> Self {
        Self::of(Source::Pool(pool))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            schema: "limiter".to_owned(),
            table: "limits".to_owned(),
            unlogged: false,
            durability: Durability::AsServer,
            connections: 4,
            pooler: false,
            migrate: true,
            sweep_every: Some(Duration::from_secs(10)),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(2),
            lock_timeout: Duration::from_secs(1),
        }
    }

    /// The schema, by default `limiter`: 1 to 40 of a-z, 0-9 and _.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// The table, by default `limits`: 1 to 40 of a-z, 0-9 and _. Beside it lies one whose name has `_log` in addition.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Makes the tables UNLOGGED: nothing is written to the log, a standby has nothing of them, and **a crash empties them**. Only of
    /// effect when they are made.
    pub fn unlogged(mut self, unlogged: bool) -> Self {
        self.unlogged = unlogged;
        self
    }

    /// What a commit waits for.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The most connections, 1 at least, by default 4: so many calls run at the same time. More help little: calls that meet at a
    /// key wait for each other, and it is batches that make a store fast.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Whether there is a pooler in transaction mode before the server, as `PgBouncer`. Then no session has settings or prepared
    /// statements: each call is one message of the simple protocol that brings its settings along.
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = pooler;
        self
    }

    /// Whether [`connect`](crate::Postgres::connect) makes the tables and functions if they are not there, by default true. If not,
    /// run what [`migration`](Self::migration) prints.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// How often expired rows are removed in the background, by default every 10 s, starting at a random moment. None: never; then call
    /// [`sweep`](crate::Postgres::sweep). No decision depends on it.
    pub fn sweep_every(mut self, every: Option<Duration>) -> Self {
        self.sweep_every = every;
        self
    }

    /// The longest that connecting may take, by default 2 s. A call that has to connect waits no longer than its own timeout.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The longest that a call may take, by default 2 s. The server gives up a tenth earlier, so that its outcome is then certain.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// The longest that a call waits for keys that others hold, by default 1 s: then nothing was applied.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// The SQL that makes the tables and functions, to be run by hand or by another tool. It may be run again, also while they are
    /// in use. A newer version of this crate may bring functions of other names beside these; the older ones may be dropped once no
    /// node uses them.
    ///
    /// ```
    /// let config = limiter_postgres::Config::from_url("postgres://localhost/app")?.schema("app").table("limits");
    /// assert!(config.migration()?.contains(r#"CREATE TABLE IF NOT EXISTS "app"."limits""#));
    /// # Ok::<(), limiter_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Refused`](limiter_core::ErrorKind::Refused) if the schema's or the table's name is not plain.
    pub fn migration(&self) -> Result<String, Error> {
        Ok(self.sql()?.schema.to_string())
    }

    pub(crate) fn sql(&self) -> Result<Sql, Error> {
        Sql::new(&self.schema, &self.table, self.unlogged)
    }

    /// The settings of a session, or of a transaction behind a pooler. In milliseconds, 1 at least: 0 would mean none.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let millis = |time: Duration| time.as_millis().clamp(1, 2_147_483_647).to_string();
        let mut settings = vec![
            ("lock_timeout", millis(self.lock_timeout)),
            ("statement_timeout", millis(self.call_timeout * 9 / 10)),
        ];
        if let Some(durability) = self.durability.setting() {
            settings.push(("synchronous_commit", durability.to_owned()));
        }
        settings
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Server(_) => "server",
            Source::Pool(_) => "pool",
        };
        f.debug_struct("Config")
            .field("source", &source)
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("durability", &self.durability)
            .field("connections", &self.connections)
            .field("pooler", &self.pooler)
            .field("call_timeout", &self.call_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .finish_non_exhaustive()
    }
}
