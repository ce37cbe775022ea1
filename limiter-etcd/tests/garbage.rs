//! Keys that are used once go away by themselves, and so do the leases.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions};
use limiter_conformance::store::{Kind, Launch};
use limiter_core::{Backend, Batch, Key, Limit, Outcome, Request};
use limiter_etcd::{Config, Etcd};
use support::{PREFIX, client};
use tokio::time::Instant;

/// Stored keys, and leases.
async fn counts(etcd: &mut Client) -> (i64, usize) {
    let options = GetOptions::new().with_prefix().with_count_only();
    let keys = etcd.get(PREFIX, Some(options)).await.unwrap().count();
    (keys, etcd.leases().await.unwrap().leases().len())
}

/// `LIMITER_ETCD_ONE_SHOT_KEYS=1000000 cargo test -p limiter-etcd --test garbage -- --nocapture` for the long run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_used_once_leave_no_trace() {
    let keys = std::env::var("LIMITER_ETCD_ONE_SHOT_KEYS").ok().map_or(20_000, |keys| keys.parse::<u64>().unwrap());
    let store = Launch::new(Kind::Etcd).own().start().unwrap();
    let config =
        Config::from_url(store.url()).unwrap().call_timeout(Duration::from_secs(20)).margin(Duration::from_secs(1));
    let engine = Etcd::connect(config).await.unwrap();
    let limits: Vec<Limit> = ["3/100ms fixed-window", "3/500ms sliding-log", "10/1s token-bucket burst=10"]
        .iter()
        .map(|limit| limit.parse().unwrap())
        .collect();
    let mut etcd = client(store.url()).await;
    // The longest that a key lives: twice what it counts and the margin, and what etcd takes to look for ended leases.
    let life = Duration::from_secs(2 * (1 + 1) + 3);
    let started = Instant::now();
    let (mut most_keys, mut most_leases, mut done, mut looked) = (0, 0, 0_u64, Instant::now());
    while done < keys || started.elapsed() < 2 * life {
        let requests = (0..64).map(|number| {
            let limit = limits.iter().cycle().nth(number).unwrap();
            Request::take(Key::new("t", "once", [(done * 64 + u64::try_from(number).unwrap()).to_string()]), *limit, 1)
                .unwrap()
        });
        let outcomes = engine.submit(Arc::new(Batch { requests: requests.collect(), at: None })).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Allowed(_))), "{outcomes:?}");
        done += 64;
        // In a short run a rate of which a part has gone before the end.
        let pace = Duration::from_millis(50);
        if keys < 100_000 {
            tokio::time::sleep(pace).await;
        }
        if looked.elapsed() > Duration::from_millis(500) {
            looked = Instant::now();
            let (keys, leases) = counts(&mut etcd).await;
            (most_keys, most_leases) = (most_keys.max(keys), most_leases.max(leases));
        }
    }
    let took = started.elapsed();
    println!(
        "garbage: {done} keys in {took:?}, at most {most_keys} stored and {most_leases} leases at a time; {:?} granted",
        engine.figures().leases_granted
    );
    let per_second = u128::from(done) * 1_000 / took.as_millis();
    // Half as much again, since no rate is even.
    let bound = per_second * life.as_millis() / 1_000 * 3 / 2;
    assert!(u128::try_from(most_keys).unwrap() <= bound, "{most_keys} keys at a time, and {bound} may: {per_second}/s");
    assert!(most_leases <= 12, "{most_leases} leases at a time");
    let ended = Instant::now();
    loop {
        let left = counts(&mut etcd).await;
        if left == (0, 0) {
            break;
        }
        assert!(ended.elapsed() < 3 * life, "{left:?} keys and leases are left");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
