//! The engine on servers of its own: round trips, many clients at one key, isolation levels, and what is stored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use limiter_conformance::proxy::Proxy;
use limiter_conformance::race;
use limiter_conformance::store::{Kind, Launch};
use limiter_core::{Backend, BackendExt, Batch, ErrorKind, Op, Request};
use limiter_postgres::{Config, Postgres};

use self::support::{check, config, engine, number, server, sql, submit, take};

#[tokio::test]
async fn a_call_is_one_round_trip_whatever_is_in_it() {
    let store = server();
    let proxy = Proxy::start(store.addr()).unwrap();
    let url = store.url().replace(&store.addr().to_string(), &proxy.addr().to_string());
    let many = |count: usize| (0..count).map(|part| take(&part.to_string(), "9/1s token-bucket")).collect::<Vec<_>>();
    let layers = [check("a", "9/1h sliding-log", 1), check("b", "9/1h fixed-window", 2)];
    let batches: [(&str, Vec<Request>); 5] = [
        ("one check", many(1)),
        ("128 keys", many(128)),
        ("128 equal checks", vec![take("hot", "90/1s leaky-bucket"); 128]),
        ("layers", vec![Request::new(Op::Take, layers.clone()).unwrap(); 3]),
        ("a question", vec![Request::new(Op::Peek, layers).unwrap()]),
    ];
    for pooler in [false, true] {
        let engine = Postgres::connect(config(&url).pooler(pooler)).await.unwrap();
        for (name, requests) in &batches {
            for turn in 0..4 {
                let before = proxy.traffic();
                let outcomes = engine.submit(Arc::new(Batch { requests: requests.clone(), at: None })).await;
                assert!(outcomes.iter().all(|outcome| outcome.record().is_ok()), "{name}: {outcomes:?}");
                // The first time a session prepares its statement.
                let round_trips = proxy.traffic().since(&before).round_trips;
                assert!(round_trips == 1 || turn == 0 && !pooler, "{name}, pooler {pooler}: {round_trips} round trips");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_at_a_fresh_key_take_exactly_what_there_is() {
    let store = server();
    let wide = Postgres::connect(config(store.url()).connections(16)).await.unwrap();
    race([Arc::new(engine(&store).await), Arc::new(wide)]).await.unwrap();
}

/// How long `OPPOSITE_SECONDS` says, or 3 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_never_deadlock() {
    let store = Launch::new(Kind::Postgres).option("log_lock_waits", "on").start().unwrap();
    let seconds = std::env::var("OPPOSITE_SECONDS").map_or(3, |text| text.parse().unwrap());
    let end = Clock::now() + Duration::from_secs(seconds);
    let engine = Arc::new(Postgres::connect(config(store.url()).connections(32)).await.unwrap());
    let tasks: Vec<_> = (0..32_u64)
        .map(|task| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let (mut calls, mut turn) = (0_u64, task);
                while Clock::now() < end {
                    turn += 1;
                    // Fresh keys, and keys that are made and forgotten all the time: those are where the order could be lost.
                    let [a, b] = [(turn / 8).to_string(), format!("b{}", turn % 3)];
                    let mut checks =
                        vec![check(&a, "1000000/1h sliding-counter", 1), check(&b, "9/1h fixed-window", 1)];
                    if task % 2 == 0 {
                        checks.reverse();
                    }
                    let op = if turn % 7 == 0 { Op::Reset } else { Op::Take };
                    let mut requests = vec![Request::new(op, checks).unwrap()];
                    if task % 4 == 1 {
                        // By the other function too.
                        requests = vec![take(&b, "9/1h fixed-window"), take(&a, "1000000/1h sliding-counter")];
                    }
                    for outcome in engine.submit(Arc::new(Batch { requests, at: None })).await {
                        outcome.record().unwrap();
                        calls += 1;
                    }
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.unwrap();
    }
    // The engine would repeat a deadlock's victim, so the server is asked.
    let deadlocks = number(&store, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
    println!("{calls} requests in {seconds} s, {deadlocks} deadlocks");
    assert_eq!(deadlocks, 0);
    assert!(calls > 100, "{calls} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_default_isolation_level_will_do() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let store = Launch::new(Kind::Postgres).option("default_transaction_isolation", level).start().unwrap();
        let pool = sqlx::PgPool::connect(store.url()).await.unwrap();
        let nodes = [config(store.url()), config(store.url()).pooler(true), with_patience(Config::from_pool(pool))];
        let mut tasks = Vec::new();
        for node in nodes {
            let node = Arc::new(Postgres::connect(node.connections(4)).await.unwrap());
            for _ in 0..6 {
                let node = Arc::clone(&node);
                tasks.push(tokio::spawn(async move {
                    let mut allowed = 0;
                    for _ in 0..20 {
                        allowed +=
                            u32::from(submit(&node, take("k", "100/1h sliding-log")).await.record().unwrap().allowed);
                    }
                    allowed
                }));
            }
        }
        let mut allowed = 0;
        for task in tasks {
            allowed += task.await.unwrap();
        }
        assert_eq!(allowed, 100, "{level}");
    }
}

fn with_patience(config: Config) -> Config {
    let patience = Duration::from_secs(20);
    config.connect_timeout(patience).call_timeout(patience).lock_timeout(patience / 2).sweep_every(None)
}

/// A question holds no row. So it looks at the clock when it has seen the state, else what others wrote meanwhile would be told at an
/// instant before it was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_told_at_an_instant_after_what_it_sees() {
    let store = server();
    let engine = Arc::new(Postgres::connect(with_patience(config(store.url())).connections(1)).await.unwrap());
    submit(&engine, take("k", "9/1h fixed-window")).await.record().unwrap();
    let question = Request::new(Op::Peek, [check("k", "9/1h fixed-window", 1)]).unwrap();
    // The session's first looks the table up, before all else.
    submit(&engine, question.clone()).await.record().unwrap();
    let mut other = sql(&store);
    other.query("BEGIN; LOCK TABLE limiter.limits IN ACCESS EXCLUSIVE MODE").unwrap();
    let asked = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { submit(&engine, question).await }
    });
    let begun = Clock::now();
    while number(&store, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "it waits for nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let instant = number(&store, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    other.query("COMMIT").unwrap();
    let told = asked.await.unwrap().record().unwrap().at.micros();
    assert!(told >= u64::try_from(instant).unwrap(), "{told}, and what it saw was let go after {instant}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_nodes_start_at_once_and_again() {
    let store = server();
    for round in 0..3 {
        let nodes: Vec<_> = (0..10)
            .map(|_| tokio::spawn(Postgres::connect(config(store.url()).schema(format!("start_{}", round / 2)))))
            .collect();
        for node in nodes {
            let node = node.await.unwrap().unwrap();
            node.migrate().await.unwrap();
            assert!(submit(&node, take("s", "99/1h fixed-window")).await.record().unwrap().allowed);
        }
    }
}

#[tokio::test]
async fn the_printed_sql_is_enough_for_a_user_who_may_only_use_it() {
    let store = server();
    let admin = config(store.url()).schema("own").table("states");
    let url = store.url().replace("postgres@", "app@");
    let app = config(&url).schema("own").table("states");
    sql(&store).query("CREATE ROLE app LOGIN").unwrap();
    for node in [app.clone(), app.clone().migrate(false)] {
        let error = Postgres::connect(node).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    sql(&store).query(&admin.migration().unwrap()).unwrap();
    let error = Postgres::connect(app.clone()).await.unwrap_err();
    assert!(error.to_string().contains("may not use"), "{error}");
    sql(&store)
        .query("GRANT USAGE ON SCHEMA own TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON own.states, own.states_log TO app")
        .unwrap();
    let node = Postgres::connect(app).await.unwrap();
    assert!(node.ask(take("k", "5/1s fixed-window")).await.unwrap().allowed);
    assert!(submit(&node, take("l", "5/1s sliding-log")).await.record().unwrap().allowed);
}

#[tokio::test]
async fn what_waits_for_nothing_does_not_wait_for_the_disk() {
    // A commit that has to be flushed takes at least this long.
    let store = Launch::new(Kind::Postgres).option("fsync", "on").option("commit_delay", "100000");
    let store = store.option("commit_siblings", "0").start().unwrap();
    let engine = engine(&store).await;
    assert!(submit(&engine, take("k", "1/1h fixed-window")).await.record().unwrap().allowed);
    let begun = Clock::now();
    assert!(submit(&engine, take("k", "1/1h fixed-window")).await.record().is_ok_and(|record| !record.allowed));
    let denied = begun.elapsed();
    let begun = Clock::now();
    assert!(submit(&engine, take("l", "1/1h fixed-window")).await.record().unwrap().allowed);
    println!("denied after {denied:?}, allowed after {:?}", begun.elapsed());
    assert!(begun.elapsed() > Duration::from_millis(100), "the delay is of no effect: {:?}", begun.elapsed());
    assert!(denied < Duration::from_millis(100), "{denied:?}");
}
