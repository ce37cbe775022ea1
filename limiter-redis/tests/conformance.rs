//! The engine passes the whole suite, on a server that is reached through a proxy.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use limiter_conformance::proxy::{Fault, Proxy, Then, Traffic};
use limiter_conformance::store::wire::{Reply, Resp};
use limiter_conformance::store::{Kind, shared};
use limiter_conformance::{BoxError, Stored, Subject, conformance_suite};
use limiter_redis::{Config, Redis};

async fn connect(url: String) -> Result<Redis, BoxError> {
    Ok(Redis::connect(Config::from_url(&url)?).await?)
}

/// Loses one reply, and lets the next pass again.
fn lose_one(proxy: Arc<Proxy>) -> Result<(), BoxError> {
    let lost = move |traffic: Traffic| traffic.from_store - traffic.to_clients;
    let before = lost(proxy.traffic());
    proxy.set(Fault::DropReply(Then::Reset))?;
    tokio::spawn(async move {
        while lost(proxy.traffic()) == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.set(Fault::Pass)
    });
    Ok(())
}

/// The keys that contain `part`, with what is left of their lifetimes.
fn stored(part: &str) -> io::Result<Vec<Stored>> {
    let mut server = Resp::connect(shared(Kind::Redis).unwrap().addr())?;
    let keys = server.call(&["KEYS", "*"])?;
    let mut stored = Vec::new();
    // Not those of a case whose name begins with this one's, and which runs beside it.
    let own = |key: &&str| {
        key.split_once(part).is_some_and(|(_, rest)| !rest.starts_with(|c: char| c == '_' || c.is_ascii_lowercase()))
    };
    for key in keys.list().iter().map(Reply::text).filter(own) {
        // -1 for one that stays for ever, -2 for one that has gone meanwhile.
        if let Reply::Int(left @ -1..) = server.call(&["PTTL", key])? {
            stored.push(Stored { key: key.to_owned(), lifetime: u64::try_from(left).ok().map(Duration::from_millis) });
        }
    }
    Ok(stored)
}

fn through_a_proxy() -> Subject {
    let store = shared(Kind::Redis).unwrap();
    let proxy = Arc::new(Proxy::start(store.addr()).unwrap());
    let url = store.url().replace(&store.addr().to_string(), &proxy.addr().to_string());
    let (replies, outages) = (Arc::clone(&proxy), proxy);
    Subject::new("redis", move || connect(url.clone()))
        .with_lost_replies(move || {
            let set = lose_one(Arc::clone(&replies));
            async move { set }
        })
        .with_outages(move |up| {
            let set = outages.set(if up { Fault::Pass } else { Fault::Refuse });
            async move { Ok(set?) }
        })
        .with_stored(|part| async move { Ok(stored(&part)?) })
        .with_processes(store.url())
}

conformance_suite!(through_a_proxy(), connect);
