//! Stores for tests, benches and the command: one launcher, three roads.
//!
//! [`start`] gives a running store of a [`Kind`], by the first road that is open:
//! 1. **env**: a URL in `LIMITER_REDIS_URL`, `LIMITER_POSTGRES_URL` or `LIMITER_ETCD_URL`;
//! 2. **local**: a server binary of this machine, on a free loopback port, in a directory of its own; the one at
//!    `LIMITER_REDIS_BIN`, `LIMITER_POSTGRES_BIN` or `LIMITER_ETCD_BIN` if that is set, and no other then;
//! 3. **docker**: a container, with the cargo feature `containers`.
//!
//! `LIMITER_STORES=env|local|docker` forces one. Where no road is open there is an error that
//! names all three ways to open one: nothing is skipped in silence.
//!
//! A store that was started here ends with its guard, also when a test panics, and also when the
//! whole process is killed. [`Store::pause`], [`Store::kill`] and [`Store::restart`] are for fault
//! tests; several servers that work together are in [`topology`].
//!
//! ```no_run
//! use limiter_conformance::store::{Kind, Launch, start};
//!
//! let redis = start(Kind::Redis)?;
//! println!("tests may write to {}", redis.url());
//!
//! // A server of its own, with options, that the test may kill:
//! let durable = Launch::new(Kind::Redis).option("appendonly", "yes").start()?;
//! durable.kill()?;
//! durable.restart()?;
//! # Ok::<(), limiter_conformance::store::StoreError>(())
//! ```
//!
//! All calls block for as long as a start takes (idle machine: Redis 10 ms, etcd and Postgres 0.1 s,
//! but half a second for the first Postgres of a build); in an async test that is no harm.

#[cfg(feature = "containers")]
mod container;
mod error;
mod etcd;
mod keeper;
mod local;
mod port;
mod postgres;
mod process;
mod redis;
mod road;
pub mod topology;
pub mod wire;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

pub use error::StoreError;
use local::Local;
pub(crate) use port::free as free_port;
pub use road::Road;

/// A kind of store that the launcher can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A Redis server.
    Redis,
    /// A Postgres server.
    Postgres,
    /// An etcd member.
    Etcd,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Postgres, Self::Etcd];

    /// The variable that holds the URL of a running store.
    #[must_use]
    pub const fn url_variable(self) -> &'static str {
        match self {
            Self::Redis => "LIMITER_REDIS_URL",
            Self::Postgres => "LIMITER_POSTGRES_URL",
            Self::Etcd => "LIMITER_ETCD_URL",
        }
    }

    /// The variable that holds the path of the server's binary, in place of the first one on `PATH`.
    #[must_use]
    pub const fn binary_variable(self) -> &'static str {
        match self {
            Self::Redis => "LIMITER_REDIS_BIN",
            Self::Postgres => "LIMITER_POSTGRES_BIN",
            Self::Etcd => "LIMITER_ETCD_BIN",
        }
    }

    /// The variable that names the container image.
    #[must_use]
    pub const fn image_variable(self) -> &'static str {
        match self {
            Self::Redis => "LIMITER_TEST_REDIS_IMAGE",
            Self::Postgres => "LIMITER_TEST_POSTGRES_IMAGE",
            Self::Etcd => "LIMITER_TEST_ETCD_IMAGE",
        }
    }

    /// The Debian package that brings the server.
    #[must_use]
    pub const fn package(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Postgres => "postgresql",
            Self::Etcd => "etcd-server",
        }
    }

    /// The server's file name.
    #[must_use]
    pub const fn binary(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
        }
    }

    /// The port that a URL without one means.
    const fn usual_port(self) -> u16 {
        match self {
            Self::Redis => 6379,
            Self::Postgres => 5432,
            Self::Etcd => 2379,
        }
    }

    /// The URL of a store that was started here.
    fn url(self, addr: SocketAddr) -> String {
        match self {
            Self::Redis => format!("redis://{addr}"),
            Self::Postgres => format!("postgres://postgres@{addr}/postgres"),
            Self::Etcd => format!("etcd://{addr}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Postgres => "Postgres",
            Self::Etcd => "etcd",
        })
    }
}

/// Gives a running store: see the [module](self) for where it comes from.
///
/// # Errors
///
/// [`StoreError::Unavailable`] where no road is open, [`StoreError::NotStarted`] where a server
/// was started in vain.
pub fn start(kind: Kind) -> Result<Store, StoreError> {
    Launch::new(kind).start()
}

/// The store that all tests of this process share; the first call starts it.
///
/// Give every test a key prefix or schema of its own. It ends when the process does.
///
/// # Errors
///
/// As [`start`]; the same error for every caller.
pub fn shared(kind: Kind) -> Result<&'static Store, &'static StoreError> {
    static STORES: [OnceLock<Result<Store, StoreError>>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
    let [redis, postgres, etcd] = &STORES;
    let store = match kind {
        Kind::Redis => redis,
        Kind::Postgres => postgres,
        Kind::Etcd => etcd,
    };
    store.get_or_init(|| start(kind)).as_ref()
}

/// What to start, and how.
#[derive(Debug, Clone)]
#[must_use = "nothing is started before `start`"]
pub struct Launch {
    kind: Kind,
    options: Vec<(String, String)>,
    env: Vec<(OsString, OsString)>,
    road: Option<Road>,
    own: bool,
    role: Role,
}

/// What a server is for in a topology.
#[derive(Debug, Clone)]
enum Role {
    /// It stands alone, or is told its part by options and commands.
    Alone,
    /// A Redis Cluster node: it needs a port for the bus too.
    ClusterNode,
    /// A Sentinel with these lines in its file.
    Sentinel(String),
    /// A Postgres standby of the server at this address, known there by this name.
    Standby { of: SocketAddr, name: String },
    /// An etcd member with a name, its own two ports, and the list of all members.
    Member { name: String, ports: [u16; 2], all: String },
}

impl Launch {
    /// A store of this kind with the launcher's defaults: Redis without persistence, Postgres with
    /// `fsync=off` (a killed server loses nothing by that, a machine without power would; a bench
    /// that means real disks says `.option("fsync", "on")`), etcd with a short election timeout.
    pub fn new(kind: Kind) -> Self {
        Self { kind, options: Vec::new(), env: Vec::new(), road: None, own: false, role: Role::Alone }
    }

    /// Gives the server an option by its own name: a directive of `redis.conf` (`appendonly`, `yes`;
    /// a value is split at blanks, an empty one stays empty), a setting of `postgresql.conf`
    /// (`lock_timeout`, `2s`), a flag of etcd (`quota-backend-bytes`, `16777216`). It wins over the
    /// launcher's defaults, and makes the server one of its [own](Self::own).
    ///
    /// One name is the launcher's: with `tls-port` an etcd listens there too, and speaks TLS (it takes `cert-file` and
    /// `key-file`), as a Redis does by its directive of that name.
    pub fn option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((name.into(), value.into()));
        self.own()
    }

    /// Gives the server an environment variable (`LD_PRELOAD`, say), and makes it one of its
    /// [own](Self::own).
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let pair = (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.env.push(pair);
        self.own()
    }

    /// Asks for a server that nobody else uses, so that a test may stop or kill it: a URL in the
    /// environment is passed over. Where `LIMITER_STORES=env` forces that, the start fails.
    pub fn own(mut self) -> Self {
        self.own = true;
        self
    }

    /// Forces a road, as `LIMITER_STORES` does, and over it.
    pub fn road(mut self, road: Road) -> Self {
        self.road = Some(road);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// As [`start`]; [`StoreError::Closed`] if the forced road cannot be taken.
    pub fn start(self) -> Result<Store, StoreError> {
        road::take(&self)
    }

    fn role(mut self, role: Role) -> Self {
        self.role = role;
        self.own()
    }
}

/// A running store. Dropping it ends the server if it was started here.
#[derive(Debug)]
pub struct Store {
    kind: Kind,
    road: Road,
    url: String,
    addr: SocketAddr,
    server: Server,
}

/// Who runs the server.
#[derive(Debug)]
enum Server {
    Foreign,
    Local(Box<Mutex<Local>>),
    #[cfg(feature = "containers")]
    Container(Mutex<container::Container>),
}

impl Store {
    fn local(kind: Kind, local: Local) -> Self {
        let addr = local.addr();
        Self { kind, road: Road::Local, url: kind.url(addr), addr, server: Server::Local(Box::new(Mutex::new(local))) }
    }

    /// The store's URL: `redis://`, `postgres://` or `etcd://`; the environment's, word by word, if
    /// it came from there. It may hold a password then: do not print it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the server listens: what a [fault proxy](crate::proxy) forwards to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What the store is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// By which road it came.
    #[must_use]
    pub fn road(&self) -> Road {
        self.road
    }

    /// The pid of a server started from a local binary, unless it was killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.with_local(|local| local.process().pid()).flatten()
    }

    /// The directory of a server started from a local binary.
    #[must_use]
    pub fn dir(&self) -> Option<PathBuf> {
        self.with_local(|local| local.process().plan().dir.clone())
    }

    /// The first and last lines that a server started from a local binary wrote; empty by other roads.
    #[must_use]
    pub fn log(&self) -> String {
        self.with_local(|local| process::excerpt(&local.process().plan().log())).unwrap_or_default()
    }

    /// Stops the server where it stands (SIGSTOP, or the container's pause): connections stay
    /// open, what is sent waits, nothing is answered until [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// [`StoreError::NotOurs`] if it came from the environment, [`StoreError::Down`] if it was
    /// killed.
    pub fn pause(&self) -> Result<(), StoreError> {
        self.running("pause")?;
        match &self.server {
            Server::Foreign => Err(self.not_ours("pause")),
            Server::Local(local) => lock(local).process().pause(),
            #[cfg(feature = "containers")]
            Server::Container(container) => lock(container).pause(),
        }
    }

    /// Lets a stopped server go on; it then answers what was sent meanwhile.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), StoreError> {
        self.running("resume")?;
        match &self.server {
            Server::Foreign => Err(self.not_ours("resume")),
            Server::Local(local) => lock(local).process().resume(),
            #[cfg(feature = "containers")]
            Server::Container(container) => lock(container).resume(),
        }
    }

    /// Kills the server (SIGKILL, its children too). Its data stay for a
    /// [`restart`](Self::restart). Killing a killed one is nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotOurs`] if it came from the environment.
    pub fn kill(&self) -> Result<(), StoreError> {
        match &self.server {
            Server::Foreign => Err(self.not_ours("kill")),
            Server::Local(local) => lock(local).kill(),
            #[cfg(feature = "containers")]
            Server::Container(container) => lock(container).kill(),
        }
    }

    /// Kills the server if it runs, starts it again on the same port with the same data and
    /// options, and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotOurs`] if it came from the environment, [`StoreError::NotStarted`] if it
    /// does not come up.
    pub fn restart(&self) -> Result<(), StoreError> {
        match &self.server {
            Server::Foreign => Err(self.not_ours("restart")),
            Server::Local(local) => lock(local).restart(),
            #[cfg(feature = "containers")]
            Server::Container(container) => lock(container).restart(),
        }
    }

    fn with_local<T>(&self, ask: impl FnOnce(&Local) -> T) -> Option<T> {
        match &self.server {
            Server::Local(local) => Some(ask(&lock(local))),
            Server::Foreign => None,
            #[cfg(feature = "containers")]
            Server::Container(_) => None,
        }
    }

    fn running(&self, what: &'static str) -> Result<(), StoreError> {
        match self.with_local(|local| local.process().pid()) {
            Some(None) => Err(StoreError::Down { kind: self.kind, what }),
            _ => Ok(()),
        }
    }

    fn not_ours(&self, what: &'static str) -> StoreError {
        StoreError::NotOurs { kind: self.kind, what }
    }
}

/// A test that panicked while it held the lock leaves a server that still can be ended.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
