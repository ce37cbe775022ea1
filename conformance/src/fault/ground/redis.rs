//! A Redis server, alone or with a replica.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fault::ground::{Act, Ground, Means, Setting, cannot, faker};
use crate::proxy::Proxy;
use crate::store::topology::RedisPair;
use crate::store::wire::{Reply, Resp};
use crate::store::{Kind, Launch, Store};
use crate::subject::{BoxError, Stored};

/// What can be done to a Redis server.
pub(crate) const MEANS: [Means; 13] = [
    Means::Road,
    Means::Processes,
    Means::Pause,
    Means::Crash,
    Means::Scripts,
    Means::DropClients,
    Means::Hang,
    Means::Follower,
    Means::Quorum,
    Means::Clock,
    Means::Eviction,
    Means::StoredKeys,
    Means::ReadOnly,
];

#[derive(Debug)]
struct Redis {
    store: Store,
    /// Whether the follower has taken over.
    promoted: AtomicBool,
    follower: Option<(Store, Proxy)>,
    /// The file from which the server's clock takes its offset, and the folder around it.
    clock: Option<(PathBuf, tempfile::TempDir)>,
}

/// Starts a server, and a replica if one is asked for.
pub(crate) fn prepare(setting: &Setting) -> Result<Box<dyn Ground>, BoxError> {
    let mut launch = Launch::new(Kind::Redis).own();
    for (name, value) in &setting.options {
        launch = launch.option(name, value);
    }
    let mut clock = None;
    if setting.clock {
        let faker = faker()?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("offset");
        fs::write(&file, "+0")?;
        launch = launch
            // The C library's own allocator too: jemalloc asks for the time before the library is ready to tell it.
            .env("LD_PRELOAD", format!("{faker}:libc.so.6"))
            .env("FAKETIME_TIMESTAMP_FILE", &file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        clock = Some((file, folder));
    }
    let store = launch.start()?;
    let follower = if setting.follower {
        let link = Proxy::start(store.addr())?;
        Some((RedisPair::replica_of(link.addr())?, link))
    } else {
        None
    };
    Ok(Box::new(Redis { store, promoted: AtomicBool::new(false), follower, clock }))
}

impl Redis {
    fn tell(&self, words: &[&str]) -> Result<Reply, BoxError> {
        tell(self.store.addr(), words)
    }
}

fn tell(addr: SocketAddr, words: &[&str]) -> Result<Reply, BoxError> {
    match Resp::connect(addr)?.call(words)? {
        Reply::Error(text) => Err(format!("{}: {text}", words.join(" ")).into()),
        reply => Ok(reply),
    }
}

impl Ground for Redis {
    fn addr(&self) -> Option<SocketAddr> {
        Some(self.store.addr())
    }

    fn url(&self, at: Option<SocketAddr>) -> String {
        format!("redis://{}", at.unwrap_or_else(|| self.store.addr()))
    }

    fn act(&self, act: Act) -> Result<(), BoxError> {
        match act {
            Act::Pause => self.store.pause()?,
            Act::Resume => self.store.resume()?,
            Act::Kill => self.store.kill()?,
            Act::Restart => self.store.restart()?,
            Act::ForgetScripts => self.tell(&["SCRIPT", "FLUSH", "SYNC"]).map(drop)?,
            Act::DropClients => self.tell(&["CLIENT", "KILL", "TYPE", "normal"]).map(drop)?,
            Act::Hang(time) => {
                let millis = time.as_millis().to_string();
                self.tell(&["CLIENT", "PAUSE", &millis, "ALL"]).map(drop)?;
            }
            Act::Promote => {
                let (follower, _) = self.follower.as_ref().ok_or("there is no replica")?;
                tell(follower.addr(), &["REPLICAOF", "NO", "ONE"]).map(drop)?;
                self.promoted.store(true, Ordering::SeqCst);
            }
            // A follower of nobody: it serves what it has, and refuses all that writes.
            Act::RefuseWrites => self.tell(&["REPLICAOF", "127.0.0.1", "1"]).map(drop)?,
            Act::TakeWrites => self.tell(&["REPLICAOF", "NO", "ONE"]).map(drop)?,
            Act::Clock(micros) => {
                let (file, folder) = self.clock.as_ref().ok_or_else(|| cannot("this server", act))?;
                // In one step: the server reads it whenever it asks for the time.
                let next = folder.path().join("next");
                let (sign, off) = (if micros < 0 { '-' } else { '+' }, Duration::from_micros(micros.unsigned_abs()));
                fs::write(&next, format!("{sign}{}.{:06}", off.as_secs(), off.subsec_micros()))?;
                fs::rename(&next, file)?;
            }
            _ => return Err(cannot("a Redis server", act)),
        }
        Ok(())
    }

    fn stored(&self, part: &str) -> Result<Vec<Stored>, BoxError> {
        let promoted = self.follower.as_ref().filter(|_| self.promoted.load(Ordering::SeqCst));
        let mut server = Resp::connect(promoted.map_or(self.store.addr(), |(follower, _)| follower.addr()))?;
        let keys = server.call(&["KEYS", "*"])?;
        let mut stored = Vec::new();
        for key in keys.list().iter().map(Reply::text).filter(|key| key.contains(part)) {
            // -1 for one that stays for ever, -2 for one that has gone meanwhile.
            if let Reply::Int(left @ -1..) = server.call(&["PTTL", key])? {
                let lifetime = u64::try_from(left).ok().map(Duration::from_millis);
                stored.push(Stored { key: key.to_owned(), lifetime });
            }
        }
        Ok(stored)
    }

    fn follower(&self) -> Option<SocketAddr> {
        self.follower.as_ref().map(|(follower, _)| follower.addr())
    }

    fn link(&self) -> Option<&Proxy> {
        self.follower.as_ref().map(|(_, link)| link)
    }
}
