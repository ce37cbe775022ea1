//! What an engine's tests hand to the suite besides a client: a fault proxy before the store, and the list of its keys.
//!
//! A whole test file of an engine that talks to Redis at a URL:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use limiter_core::{Backend, Memory};
//! # async fn connect(_url: String) -> Result<Arc<dyn Backend>, limiter_conformance::BoxError> { Ok(Arc::new(Memory::new())) }
//! use limiter_conformance::rig::{Rig, redis_keys};
//! use limiter_conformance::store::{Kind, shared};
//! use limiter_conformance::{Subject, conformance_suite};
//!
//! fn through_a_proxy() -> Subject {
//!     let store = shared(Kind::Redis).unwrap();
//!     let rig = Rig::before([store.addr()]).unwrap();
//!     let url = rig.url(store.url());
//!     rig.equip(Subject::new("redis", move || connect(url.clone())))
//!         .with_stored(move |part| async move { Ok(redis_keys([store.addr()], &part)?) })
//!         .with_processes(store.url())
//! }
//!
//! conformance_suite!(through_a_proxy(), connect);
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::proxy::{Fault, Proxy, Then};
use crate::store::Store;
use crate::store::topology::RedisCluster;
use crate::store::wire::{Reply, Resp};
use crate::subject::{BoxError, Stored, Subject};

/// How often it is looked whether a reply was lost.
const POLL: Duration = Duration::from_millis(1);

/// A fault proxy before each server of a store.
#[derive(Clone, Debug)]
pub struct Rig {
    proxies: Vec<(SocketAddr, Arc<Proxy>)>,
}

impl Rig {
    /// A proxy before each of these servers.
    ///
    /// # Errors
    /// The operating system's, if there is no port to be had.
    pub fn before(servers: impl IntoIterator<Item = SocketAddr>) -> io::Result<Self> {
        let proxies = servers.into_iter().map(|addr| Ok((addr, Arc::new(Proxy::start(addr)?))));
        Ok(Self { proxies: proxies.collect::<io::Result<_>>()? })
    }

    /// A proxy before each primary of a cluster, whose clients are sent there. The replicas are killed: what a primary sends them would
    /// be taken for its replies.
    ///
    /// # Errors
    /// The operating system's, or the cluster's.
    pub fn before_cluster(cluster: &RedisCluster) -> Result<Self, BoxError> {
        let (primaries, replicas) = cluster.nodes.split_at_checked(RedisCluster::PRIMARIES).unwrap_or_default();
        for replica in replicas {
            replica.kill()?;
        }
        let rig = Self::before(primaries.iter().map(Store::addr))?;
        let ports: Vec<_> = rig.proxies.iter().map(|(server, proxy)| (*server, proxy.addr().port())).collect();
        RedisCluster::announce(&ports)?;
        Ok(rig)
    }

    /// The proxies, in the order of their servers.
    pub fn proxies(&self) -> impl Iterator<Item = &Arc<Proxy>> {
        self.proxies.iter().map(|(_, proxy)| proxy)
    }

    /// A store's URL with each server's address replaced by its proxy's.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        self.proxies
            .iter()
            .fold(url.to_owned(), |url, (server, proxy)| url.replace(&server.to_string(), &proxy.addr().to_string()))
    }

    /// Loses the next reply of each server, and lets those after it pass: see [`lose_one`]. The first that is lost anywhere
    /// ends it everywhere.
    ///
    /// # Errors
    /// As [`lose_one`].
    pub fn lose_one(&self) -> Result<(), BoxError> {
        lose_one_of(self.proxies().map(Arc::clone).collect())
    }

    /// Cuts all servers off (false: connections are reset, and new ones refused), or brings them back (true).
    ///
    /// # Errors
    /// The operating system's, if somebody took a proxy's port meanwhile.
    pub fn set_reachable(&self, reachable: bool) -> io::Result<()> {
        let fault = if reachable { Fault::Pass } else { Fault::Refuse };
        self.proxies().try_for_each(|proxy| proxy.set(fault))
    }

    /// The subject, whose clients go through this rig, with [lost replies](Subject::with_lost_replies) and
    /// [outages](Subject::with_outages).
    pub fn equip(&self, subject: Subject) -> Subject {
        let (replies, outages) = (self.clone(), self.clone());
        subject
            .with_lost_replies(move || {
                let set = replies.lose_one();
                async move { set }
            })
            .with_outages(move |up| {
                let set = outages.set_reachable(up);
                async move { Ok(set?) }
            })
    }
}

/// Loses the next bytes that the server behind `proxy` sends, and resets their connection; what comes after them passes again. For
/// a protocol in which a server speaks only when it is asked: then it is the next reply, and its request was applied.
///
/// It returns at once, and has to be called within a runtime of tokio.
///
/// # Errors
/// The operating system's, from the proxy.
pub fn lose_one(proxy: &Arc<Proxy>) -> Result<(), BoxError> {
    lose_one_of(vec![Arc::clone(proxy)])
}

fn lose_one_of(proxies: Vec<Arc<Proxy>>) -> Result<(), BoxError> {
    let lost = |proxy: &Arc<Proxy>| {
        let traffic = proxy.traffic();
        traffic.from_store.saturating_sub(traffic.to_clients)
    };
    let before: Vec<u64> = proxies.iter().map(lost).collect();
    for proxy in &proxies {
        proxy.set(Fault::DropReply(Then::Reset))?;
    }
    tokio::spawn(async move {
        while proxies.iter().map(lost).eq(before.iter().copied()) {
            tokio::time::sleep(POLL).await;
        }
        for proxy in &proxies {
            // The listener was never closed, so there is no port that could be gone.
            proxy.set(Fault::Pass).ok();
        }
    });
    Ok(())
}

/// The keys of Redis servers that contain `part`, with what is left of their lifetimes; of a cluster, name the primaries.
///
/// # Errors
/// The operating system's, if a server does not answer.
pub fn redis_keys(servers: impl IntoIterator<Item = SocketAddr>, part: &str) -> io::Result<Vec<Stored>> {
    let mut stored = Vec::new();
    for addr in servers {
        let mut server = Resp::connect(addr)?;
        let keys = server.call(&["KEYS", "*"])?;
        for key in keys.list().iter().map(Reply::text).filter(|key| key.contains(part)) {
            // -1 for one that stays for ever, -2 for one that has gone meanwhile.
            if let Reply::Int(left @ -1..) = server.call(&["PTTL", key])? {
                let lifetime = u64::try_from(left).ok().map(Duration::from_millis);
                stored.push(Stored { key: key.to_owned(), lifetime });
            }
        }
    }
    Ok(stored)
}
