//! The engine passes the whole suite, on a server that is reached through a proxy.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

mod support;

use std::time::Duration;

use limiter_conformance::rig::Rig;
use limiter_conformance::store::{Kind, shared};
use limiter_conformance::{Subject, conformance_suite};
use limiter_etcd::{Config, Etcd};
use support::{connect, kept, stored};

fn through_a_proxy() -> Subject {
    let store = shared(Kind::Etcd).unwrap();
    let rig = Rig::before([store.addr()]).unwrap();
    let url = rig.url(store.url());
    let clocked = url.clone();
    rig.equip(Subject::new("etcd", move || connect(url.clone())))
        .with_clock(move |clock| {
            let config =
                Config::from_url(&clocked).map(|config| config.clock(clock).call_timeout(Duration::from_secs(20)));
            async move { Ok(Etcd::connect(config?).await?) }
        })
        .with_stored(move |part| async move { stored(store.url(), &part).await })
        .kept_for(kept)
        .with_processes(store.url())
}

conformance_suite!(through_a_proxy(), connect);
