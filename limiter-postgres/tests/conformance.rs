//! The engine passes the whole suite, on a server that is reached through a proxy.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use std::io;
use std::time::Duration;

use limiter_conformance::rig::Rig;
use limiter_conformance::store::wire::Sql;
use limiter_conformance::store::{Kind, shared};
use limiter_conformance::{BoxError, Stored, Subject, conformance_suite};
use limiter_postgres::{Config, Postgres};

/// With the patience that a busy machine asks for.
async fn connect(url: String) -> Result<Postgres, BoxError> {
    let patience = Duration::from_secs(10);
    let config = Config::from_url(&url)?.connect_timeout(patience).call_timeout(patience).lock_timeout(patience / 2);
    // Removed at once, so that what a decision does not depend on is different each time.
    Ok(Postgres::connect(config.sweep_every(Some(Duration::from_millis(50)))).await?)
}

/// The keys that contain `part`, with what is left of their lifetimes.
fn stored(part: &str) -> io::Result<Vec<Stored>> {
    let rows = Sql::connect(shared(Kind::Postgres).unwrap().addr())?
        .query("SELECT key, expires - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM limiter.limits")?;
    let stored = rows.into_iter().filter_map(|row| {
        let [key, left] = <[_; 2]>::try_from(row).ok()?;
        let (key, left) = (key?, left?.parse::<i64>().ok()?);
        // Expired, and not collected yet.
        let lifetime = Some(Duration::from_micros(u64::try_from(left).ok()?));
        key.contains(part).then_some(Stored { key, lifetime })
    });
    Ok(stored.collect())
}

fn through_a_proxy() -> Subject {
    let store = shared(Kind::Postgres).unwrap();
    let rig = Rig::before([store.addr()]).unwrap();
    let url = rig.url(store.url());
    rig.equip(Subject::new("postgres", move || connect(url.clone())))
        .with_stored(|part| async move { Ok(stored(&part)?) })
        .with_processes(store.url())
}

conformance_suite!(through_a_proxy(), connect);
