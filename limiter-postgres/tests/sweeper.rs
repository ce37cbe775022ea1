//! What is stored stays small: updates touch no index, and expired rows go, however many nodes sweep.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod support;

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use limiter_conformance::store::{Kind, Launch};
use limiter_core::{Backend, Batch, Op, Request};
use limiter_postgres::Postgres;

use self::support::{config, engine, number, server, sql, submit, take};

async fn admit(engine: &Postgres, requests: Vec<Request>) {
    for outcome in engine.submit(Arc::new(Batch { requests, at: None })).await {
        assert!(outcome.record().unwrap().allowed);
    }
}

#[tokio::test]
async fn updates_touch_no_index() {
    let store = server();
    let engine = engine(&store).await;
    for (limit, before) in
        [("1000000/1h token-bucket", 0), ("1000000/1h sliding-counter", 0), ("100000/1h sliding-log", 120)]
    {
        sql(&store).query("TRUNCATE limiter.limits").unwrap();
        let round = |round: u32| {
            // A few of the keys of a spread, and a hot one each time.
            let keys = (0..60).map(|key| (key * 7 + round * 11) % 120);
            keys.map(|key| take(&format!("k{key}"), limit)).chain([take("hot", limit)]).collect()
        };
        // A log's row grows until it has its first chunk, and has to move for that.
        for number in 0..before {
            admit(&engine, round(number)).await;
        }
        // Vacuumed, as it is from time to time anyway.
        sql(&store).query("VACUUM limiter.limits").unwrap();
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let _ = submit(&engine, take("hot", limit)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        sql(&store).query("SELECT pg_stat_reset()").unwrap();
        for number in 0..30 {
            admit(&engine, round(before + number)).await;
        }
        // A session tells its figures at most once a second.
        let begun = Clock::now();
        let query = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'limits'";
        while number(&store, query) < 1_500 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{} updates", number(&store, query));
            tokio::time::sleep(Duration::from_millis(300)).await;
            let _ = submit(&engine, take("hot", limit)).await;
        }
        let hot =
            number(&store, "SELECT 1000 * n_tup_hot_upd / n_tup_upd FROM pg_stat_user_tables WHERE relname = 'limits'");
        println!("{limit}: {hot} of 1000 updates touch no index");
        assert!(hot > 950, "{limit}: {hot} of 1000");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_rows_go_and_live_ones_stay_though_many_sweep() {
    let store = server();
    let nodes: Vec<_> =
        [engine(&store).await, engine(&store).await, engine(&store).await].into_iter().map(Arc::new).collect();
    let many = |name: &str, limit: &str| (0..3_000).map(|key| take(&format!("{name}{key}"), limit)).collect::<Vec<_>>();
    admit(&nodes[0], many("dead", "5/1ms sliding-log")).await;
    admit(&nodes[0], many("live", "5/1h sliding-log")).await;
    // A long log, whose chunks go with it.
    for _ in 0..150 {
        admit(&nodes[0], vec![take("long", "100000/3s sliding-log")]).await;
    }
    assert_eq!(number(&store, "SELECT chunks FROM limiter.limits WHERE key LIKE '%long'"), 2);
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    let sweeps: Vec<_> = nodes
        .iter()
        .map(|node| {
            let node = Arc::clone(node);
            tokio::spawn(async move { node.sweep().await.unwrap() })
        })
        .collect();
    let mut removed = 0;
    for sweep in sweeps {
        removed += sweep.await.unwrap();
    }
    // One that another held just then is left for the next time.
    removed += nodes[0].sweep().await.unwrap();
    assert_eq!(removed, 3_001);
    assert_eq!(number(&store, "SELECT count(*) FROM limiter.limits"), 3_000);
    assert_eq!(number(&store, "SELECT count(*) FROM limiter.limits_log"), 0);
    let outcomes = nodes[1].submit(Arc::new(Batch { requests: many("live", "5/1h sliding-log"), at: None })).await;
    assert!(outcomes.iter().all(|outcome| outcome.record().unwrap().allowed));
}

/// `ONE_SHOT_KEYS` keys, by default 60 000, each used once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_one_shot_keys_stays_flat() {
    let store = Launch::new(Kind::Postgres).option("autovacuum_naptime", "1s").start().unwrap();
    let keys: u64 = env::var("ONE_SHOT_KEYS").map_or(60_000, |text| text.parse().unwrap());
    let own = config(store.url()).sweep_every(Some(Duration::from_millis(300)));
    let engine = Postgres::connect(own).await.unwrap();
    let size = |store| number(store, "SELECT pg_total_relation_size('limiter.limits')");
    let mut sizes = Vec::new();
    // Its rate is held down, so that what is live at a time does not depend on the machine.
    let batch = 200;
    for part in 0..keys / batch {
        let begun = Clock::now();
        let requests = (0..batch).map(|key| take(&format!("{part}-{key}"), "5/1ms token-bucket")).collect();
        admit(&engine, requests).await;
        if part % (keys / batch / 10) == 0 {
            sizes.push(size(&store));
        }
        tokio::time::sleep(Duration::from_millis(40).saturating_sub(begun.elapsed())).await;
    }
    sizes.push(size(&store));
    let (quarter, last) = (sizes[sizes.len() / 4], sizes[sizes.len() - 1]);
    println!("{keys} keys, sizes {sizes:?}");
    // One that is never swept is four times as large then. A vacuum that is late, on a busy machine, is half as large again.
    assert!(last < quarter * 2, "the table grows: {sizes:?}");
    let whole = i64::try_from(keys).unwrap() * 130;
    assert!(last < whole, "{last} bytes for {keys} keys that are gone");
}

/// The planner goes by what it was told when the table was all but empty. A pass over the whole table looks cheap to it then, and is not
/// when a burst has filled it since: a call of a hundred keys took half a second.
#[tokio::test]
async fn statistics_of_an_empty_table_mislead_no_call() {
    const KEYS: i64 = 4_000;
    let store = Launch::new(Kind::Postgres).option("autovacuum", "off").start().unwrap();
    let limit = "1000000/1h token-bucket";
    let keys = |from: i64, number: i64| (from..from + number).map(|key| take(&format!("k{key}"), limit)).collect();
    let fill = async |engine: &Postgres| {
        for from in (0..KEYS).step_by(100) {
            admit(engine, keys(from, 100)).await;
        }
    };
    let count = |column: &str| {
        number(&store, &format!("SELECT coalesce({column}, 0) FROM pg_stat_user_tables WHERE relname = 'limits'"))
    };
    let config = config(store.url()).sweep_every(None);
    let engine = Postgres::connect(config.clone()).await.unwrap();
    fill(&engine).await;
    let last = "DELETE FROM limiter.limits WHERE ctid <> (SELECT max(ctid) FROM limiter.limits)";
    sql(&store).query(last).unwrap();
    sql(&store).query("VACUUM ANALYZE limiter.limits").unwrap();
    fill(&engine).await;
    // Sessions that plan anew.
    drop(engine);
    let engine = Postgres::connect(config).await.unwrap();
    // A session tells its figures at most once a second, and when it ends.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    sql(&store).query("SELECT pg_stat_reset()").unwrap();
    let mut asked = 0;
    for from in (0..KEYS).step_by(400) {
        admit(&engine, keys(from, 100)).await;
        // With a question beside them they go the way of `step.sql`.
        let mut some: Vec<Request> = keys(from + 200, 99);
        some.push(Request::new(Op::Peek, take("k1", limit).checks().to_vec()).unwrap());
        admit(&engine, some).await;
        asked += 200;
    }
    drop(engine);
    let begun = Clock::now();
    while count("n_tup_upd") < asked - asked / 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} updates", count("n_tup_upd"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (by_index, passed) = (count("idx_tup_fetch"), count("seq_tup_read"));
    println!("{asked} keys asked, {by_index} rows read by the index, {passed} by passing over all");
    assert!(by_index >= asked && by_index + passed <= 6 * asked, "{by_index} and {passed} rows for {asked} keys");
}
