//! Around Redis, behind a proxy that fails.

use std::sync::Arc;
use std::time::Duration;

use limiter::Stack;
use limiter_conformance::proxy::{Fault, Proxy, Then, Traffic};
use limiter_conformance::store::{Kind, shared};
use limiter_conformance::{BoxError, Subject, conformance_suite};

use limiter_redis::{Config, Redis};

use crate::stack;

async fn connect(url: String) -> Result<Stack, BoxError> {
    // Here too a call that takes long is no fault.
    let config = Config::from_url(&url)?.call_timeout(Duration::from_secs(10));
    Ok(stack(Arc::new(Redis::connect(config).await?)))
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

fn subject() -> Subject {
    let store = shared(Kind::Redis).unwrap();
    let proxy = Arc::new(Proxy::start(store.addr()).unwrap());
    let url = store.url().replace(&store.addr().to_string(), &proxy.addr().to_string());
    let (replies, outages) = (Arc::clone(&proxy), proxy);
    Subject::new("stack-redis", move || connect(url.clone()))
        .with_lost_replies(move || {
            let set = lose_one(Arc::clone(&replies));
            async move { set }
        })
        .with_outages(move |up| {
            let set = outages.set(if up { Fault::Pass } else { Fault::Refuse });
            async move { Ok(set?) }
        })
        .with_processes(store.url())
}

conformance_suite!(super::subject(), connect);
