//! The store behind a site, and what can be done to it.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use crate::proxy::Proxy;
use crate::subject::{BoxError, Stored};

pub(crate) mod etcd;
pub(crate) mod memory;
pub(crate) mod postgres;
pub(crate) mod redis;
#[cfg(feature = "mutants")]
pub(crate) mod stand_in;

/// A running store that a row may disturb. It ends when it is dropped.
pub trait Ground: Send + Sync + fmt::Debug {
    /// Where clients reach it, and where the proxies before it carry their connections; None if it is in this process, or has several
    /// members that clients know by themselves.
    fn addr(&self) -> Option<SocketAddr>;

    /// The URL of a client that reaches it at this address: its own, or that of a proxy before it.
    fn url(&self, at: Option<SocketAddr>) -> String;

    /// Does something to it.
    ///
    /// # Errors
    /// If that can't be done, or failed.
    fn act(&self, act: Act) -> Result<(), BoxError>;

    /// The stored keys that contain this text, with what is left of their lifetimes.
    ///
    /// # Errors
    /// If the store does not tell.
    fn stored(&self, part: &str) -> Result<Vec<Stored>, BoxError> {
        let _ = part;
        Err(Means::StoredKeys.usual_reason().into())
    }

    /// The server that follows it, and takes its place when it is [promoted](Act::Promote).
    fn follower(&self) -> Option<SocketAddr> {
        None
    }

    /// The proxy by which the follower follows.
    fn link(&self) -> Option<&Proxy> {
        None
    }
}

/// What is done to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// It stops where it stands, until it is resumed.
    Pause,
    /// It goes on.
    Resume,
    /// It is killed.
    Kill,
    /// It is started again, on the data that it left.
    Restart,
    /// It forgets all scripts.
    ForgetScripts,
    /// It closes the connections of all its clients.
    DropClients,
    /// It answers nobody for this long, as an operator can make it. Returns at once.
    Hang(Duration),
    /// The follower becomes a primary of its own.
    Promote,
    /// Its clock is off from real time by so many µs from now on.
    Clock(i64),
    /// Somebody begins a transaction, locks every row that there is, and stands still.
    HoldRows,
    /// That one goes on: its transaction ends.
    LetRowsGo,
    /// It writes nothing from now on, as when it is full or read-only.
    RefuseWrites,
    /// It writes again.
    TakeWrites,
    /// The member that leads is killed; a restart brings it back.
    KillLeader,
    /// A member that follows is killed; a restart brings it back.
    KillFollower,
    /// Most of the members, among them the one that leads, stop where they stand until they are resumed.
    PauseMost,
    /// The member that leads hands over to another.
    MoveLeader,
}

/// What a row needs of a site beyond clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Means {
    /// A TCP road to the store, with a proxy on it.
    Road,
    /// Further processes as clients of the same store.
    Processes,
    /// The store can be stopped, and go on.
    Pause,
    /// The store can be killed, and started again.
    Crash,
    /// The store has a cache of scripts.
    Scripts,
    /// The store can close its clients' connections.
    DropClients,
    /// The store can be made to answer nobody for a while.
    Hang,
    /// A follower that can be promoted.
    Follower,
    /// A primary that refuses writes while nobody follows it.
    Quorum,
    /// The store's clock can be set off.
    Clock,
    /// The store drops keys when it is full.
    Eviction,
    /// The store lists its keys.
    StoredKeys,
    /// A fallback that counts in each process by itself while the store is away.
    Fallback,
    /// The store locks rows for as long as a client's transaction is open.
    RowLocks,
    /// The store can be made to refuse writes, and to take them again.
    ReadOnly,
    /// A standby that can be promoted, and for which commits wait or don't.
    Standby,
    /// Several members, of which one leads.
    Members,
    /// Decisions are made on the clocks of the clients' machines.
    NodeClocks,
}

impl Means {
    /// Why it may be missing, unless the site says so itself.
    pub(crate) const fn usual_reason(self) -> &'static str {
        match self {
            Self::Road => "the store is in this process",
            Self::Processes => "the engine counts for this process only",
            Self::Pause => "the store can't be stopped",
            Self::Crash => "the store can't be killed",
            Self::Scripts => "the store keeps no scripts",
            Self::DropClients => "the store can't be told to close connections",
            Self::Hang => "the store can't be told to wait",
            Self::Follower => "the store has no follower",
            Self::Quorum => "the store has no setting that refuses writes without a follower",
            Self::Clock => "the engine's clock can't be set here",
            Self::Eviction => "the store drops no live keys",
            Self::StoredKeys => "the store does not list its keys",
            Self::Fallback => "the engine has no fallback: while its store is away it lets nothing pass",
            Self::RowLocks => "no client can hold a lock in the store",
            Self::ReadOnly => "the store can't be made to refuse writes",
            Self::Standby => "the store has no standby for which commits can wait",
            Self::Members => "the store has no members that elect a leader",
            Self::NodeClocks => "no clock of a client's machine decides",
        }
    }
}

/// How a row wants the store to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub struct Setting {
    /// The server's options, by its own names.
    pub options: Vec<(String, String)>,
    /// With a follower, on a link through a proxy.
    pub follower: bool,
    /// So that its clock can be set.
    pub clock: bool,
    /// With a follower for which each commit waits.
    pub synchronous: bool,
    /// With several members.
    pub members: bool,
    /// With so little room that it can be filled.
    pub small: bool,
}

impl Setting {
    pub(crate) fn with<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let options = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { options: options.collect(), ..Self::default() }
    }

    pub(crate) const fn and_follower(mut self) -> Self {
        self.follower = true;
        self
    }

    pub(crate) const fn and_clock(mut self) -> Self {
        self.clock = true;
        self
    }

    pub(crate) const fn and_synchronous_follower(mut self) -> Self {
        self.synchronous = true;
        self.and_follower()
    }

    pub(crate) const fn and_members(mut self) -> Self {
        self.members = true;
        self
    }

    pub(crate) const fn and_small(mut self) -> Self {
        self.small = true;
        self
    }
}

/// Where Debian and others keep the library that fakes a clock.
const FAKERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
];

/// The library that fakes a clock.
pub(crate) fn faker() -> Result<&'static str, BoxError> {
    let found = FAKERS.into_iter().find(|path| fs::exists(path).unwrap_or_default());
    Ok(found.ok_or("no libfaketime, which sets a clock: install Debian's package `faketime`")?)
}

/// The refusal of an act that a store does not know.
pub(crate) fn cannot(what: &str, act: Act) -> BoxError {
    format!("{what} can't be told to {act:?}").into()
}
