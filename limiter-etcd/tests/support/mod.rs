//! What the engine's tests share: the store's own view of its keys.

#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use limiter_conformance::store::Store;
use limiter_conformance::{BoxError, Stored};
use limiter_etcd::{Config, Etcd};

/// What the engine's keys begin with, unless it is told otherwise.
pub(crate) const PREFIX: &str = "limiter/";

pub(crate) async fn connect(url: String) -> Result<Etcd, BoxError> {
    // The disk of a busy machine may take seconds for one write, and the outcomes of all calls are counted.
    Ok(Etcd::connect(Config::from_url(&url)?.call_timeout(Duration::from_secs(20))).await?)
}

pub(crate) async fn client(url: &str) -> Client {
    let addrs: Vec<&str> = url.trim_start_matches("etcd://").split(',').collect();
    Client::connect(addrs, None).await.unwrap()
}

/// The stored keys that contain `part`, as the engine names them, with what is left of their leases.
pub(crate) async fn stored(url: &str, part: &str) -> Result<Vec<Stored>, BoxError> {
    let mut client = client(url).await;
    let all = client.get(PREFIX, Some(GetOptions::new().with_prefix())).await?;
    let mut stored = Vec::new();
    for kv in all.kvs() {
        let key = kv.key_str()?.trim_start_matches(PREFIX).to_owned();
        if !key.contains(part) {
            continue;
        }
        let lifetime = match kv.lease() {
            0 => None,
            lease => Some(u64::try_from(client.lease_time_to_live(lease, None).await?.ttl()).unwrap_or_default()),
        };
        stored.push(Stored { key, lifetime: lifetime.map(Duration::from_secs) });
    }
    Ok(stored)
}

/// How long a key may be kept whose state counts for `counts`: twice as long, and twice the margin.
pub(crate) fn kept(counts: Duration) -> Duration {
    2 * (counts + Duration::from_secs(60)) + Duration::from_secs(2)
}

/// Users are wanted from now on: `root`, and `limiter` for the keys below the usual prefix.
pub(crate) async fn with_auth(store: &Store) {
    let mut etcd = client(store.url()).await;
    for user in ["root", "limiter"] {
        etcd.user_add(user, "s3cr3t", None).await.unwrap();
        etcd.role_add(user).await.unwrap();
        etcd.user_grant_role(user, user).await.unwrap();
    }
    let all = etcd_client::PermissionType::Readwrite;
    let own = etcd_client::Permission::new(all, "limiter/").with_prefix();
    etcd.role_grant_permission("limiter", own).await.unwrap();
    etcd.auth_enable().await.unwrap();
}
