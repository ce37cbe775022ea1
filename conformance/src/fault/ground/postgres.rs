//! A Postgres server, alone or with a standby.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as Time};

use crate::fault::ground::{Act, Ground, Means, Setting, cannot};
use crate::proxy::Proxy;
use crate::store::topology::{PostgresPair, Replication};
use crate::store::wire::Sql;
use crate::store::{Kind, Launch, Store};
use crate::subject::BoxError;

/// What can be done to a Postgres server. Its keys lie in tables that only an engine knows.
pub(crate) const MEANS: [Means; 8] = [
    Means::Road,
    Means::Processes,
    Means::Pause,
    Means::Crash,
    Means::DropClients,
    Means::RowLocks,
    Means::ReadOnly,
    Means::Standby,
];

/// How long a standby may take to follow, and rows to be had.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Postgres {
    store: Store,
    /// With the proxy by which it follows, if commits don't wait for it.
    standby: Option<(Store, Option<Proxy>)>,
    /// The session that holds the rows.
    holder: Mutex<Option<Sql>>,
}

/// Starts a server, and a standby if one is asked for.
pub(crate) fn prepare(setting: &Setting) -> Result<Box<dyn Ground>, BoxError> {
    let holder = Mutex::new(None);
    if setting.synchronous {
        let PostgresPair { primary, standby } = PostgresPair::start(Replication::Sync)?;
        return Ok(Box::new(Postgres { store: primary, standby: Some((standby, None)), holder }));
    }
    let mut launch = Launch::new(Kind::Postgres).own();
    for (name, value) in &setting.options {
        launch = launch.option(name, value);
    }
    let store = launch.start()?;
    let standby = if setting.follower {
        let link = Proxy::start(store.addr())?;
        let standby = PostgresPair::standby_of(link.addr())?;
        streaming(&store)?;
        Some((standby, Some(link)))
    } else {
        None
    };
    Ok(Box::new(Postgres { store, standby, holder }))
}

/// Waits until somebody follows.
fn streaming(primary: &Store) -> Result<(), BoxError> {
    let began = Time::now();
    while Sql::connect(primary.addr())?.query("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")?.is_empty()
    {
        if began.elapsed() > PATIENCE {
            return Err("the standby does not follow".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A session that holds all rows of all tables in an open transaction.
fn hold(addr: SocketAddr) -> Result<Sql, BoxError> {
    let mut sql = Sql::connect(addr)?;
    let tables = sql.query(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables \
         WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1",
    )?;
    // Rows come in another order than that in which an engine locks those of one call: the one who finds a deadlock gives way, and
    // that is to be this one.
    sql.query("SET deadlock_timeout = '20ms'; BEGIN")?;
    for table in tables.iter().flatten().flatten() {
        sql.query(&format!("SELECT 1 FROM {table} FOR UPDATE"))?;
    }
    Ok(sql)
}

impl Postgres {
    fn read_only(&self, value: &str) -> Result<(), BoxError> {
        let mut sql = Sql::connect(self.store.addr())?;
        sql.query(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"))?;
        sql.query("SELECT pg_reload_conf()")?;
        Ok(())
    }

    fn keep(&self, holder: Option<Sql>) {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = holder;
    }
}

impl Ground for Postgres {
    fn addr(&self) -> Option<SocketAddr> {
        Some(self.store.addr())
    }

    fn url(&self, at: Option<SocketAddr>) -> String {
        format!("postgres://postgres@{}/postgres", at.unwrap_or_else(|| self.store.addr()))
    }

    fn act(&self, act: Act) -> Result<(), BoxError> {
        match act {
            Act::Pause => self.store.pause()?,
            Act::Resume => self.store.resume()?,
            Act::Kill => self.store.kill()?,
            Act::Restart => self.store.restart()?,
            Act::DropClients => {
                let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                              WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
                Sql::connect(self.store.addr())?.query(others)?;
            }
            Act::Promote => {
                let (standby, _) = self.standby.as_ref().ok_or("there is no standby")?;
                Sql::connect(standby.addr())?.query("SELECT pg_promote()")?;
            }
            Act::HoldRows => {
                let began = Time::now();
                self.keep(Some(loop {
                    match hold(self.store.addr()) {
                        Ok(sql) => break sql,
                        Err(error) if began.elapsed() > PATIENCE => return Err(error),
                        Err(_) => {}
                    }
                }));
            }
            Act::LetRowsGo => self.keep(None),
            Act::RefuseWrites => self.read_only("on")?,
            Act::TakeWrites => self.read_only("off")?,
            _ => return Err(cannot("a Postgres server", act)),
        }
        Ok(())
    }

    fn follower(&self) -> Option<SocketAddr> {
        self.standby.as_ref().map(|(standby, _)| standby.addr())
    }

    fn link(&self) -> Option<&Proxy> {
        self.standby.as_ref().and_then(|(_, link)| link.as_ref())
    }
}
