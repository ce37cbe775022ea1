//! The engine passes the whole suite, on a server that is reached through a proxy.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use std::sync::Arc;
use std::time::Duration;

use limiter_conformance::proxy::{Fault, Proxy, Then, Traffic};
use limiter_conformance::store::{Kind, shared};
use limiter_conformance::{BoxError, Subject, conformance_suite};
use limiter_fred::{Config, Fred};

async fn connect(url: String) -> Result<Fred, BoxError> {
    Ok(Fred::connect(Config::from_url(&url)?).await?)
}

/// Loses one reply, and lets the next pass again.
async fn lose_one(proxy: Arc<Proxy>) -> Result<(), BoxError> {
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

fn through_a_proxy() -> Subject {
    let store = shared(Kind::Redis).unwrap();
    let proxy = Arc::new(Proxy::start(store.addr()).unwrap());
    let url = store.url().replace(&store.addr().to_string(), &proxy.addr().to_string());
    let (replies, outages) = (Arc::clone(&proxy), proxy);
    Subject::new("fred", move || connect(url.clone()))
        .with_lost_replies(move || lose_one(Arc::clone(&replies)))
        .with_outages(move |up| {
            let set = outages.set(if up { Fault::Pass } else { Fault::Refuse });
            async move { Ok(set?) }
        })
        .with_processes(store.url())
}

conformance_suite!(through_a_proxy(), connect);
