//! The engine passes the whole suite on a cluster of three, each member reached through a proxy.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

mod support;

use std::sync::OnceLock;
use std::time::Duration;

use limiter_conformance::rig::Rig;
use limiter_conformance::store::topology::EtcdCluster;
use limiter_conformance::{Subject, conformance_suite};
use limiter_etcd::{Config, Etcd};
use support::{connect, kept, stored};

/// One for all cases of this process.
fn cluster() -> &'static EtcdCluster {
    static CLUSTER: OnceLock<EtcdCluster> = OnceLock::new();
    CLUSTER.get_or_init(|| EtcdCluster::start().unwrap())
}

fn through_proxies() -> Subject {
    let cluster = cluster();
    let rig = Rig::before(cluster.addrs()).unwrap();
    let url = rig.url(&cluster.url());
    let clocked = url.clone();
    rig.equip(Subject::new("etcd", move || connect(url.clone())))
        .with_clock(move |clock| {
            let config =
                Config::from_url(&clocked).map(|config| config.clock(clock).call_timeout(Duration::from_secs(20)));
            async move { Ok(Etcd::connect(config?).await?) }
        })
        .with_stored(move |part| async move { stored(&cluster.url(), &part).await })
        .kept_for(kept)
        .with_processes(cluster.url())
}

conformance_suite!(through_proxies(), connect);
