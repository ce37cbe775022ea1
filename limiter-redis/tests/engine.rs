//! The engine on servers of its own: many tasks at one key, and servers that fail.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::sync::Arc;
use std::time::Duration;

use limiter_conformance::race;
use limiter_conformance::store::{Kind, Launch, Store};
use limiter_core::{
    Backend, BackendExt, Batch, Check, CheckError, Error, ErrorKind, Instant, Key, Op, Outcome, Request,
};
use limiter_redis::{Config, Redis};
use tokio::time::Instant as Clock;

fn server() -> Store {
    Launch::new(Kind::Redis).own().start().unwrap()
}

async fn engine(store: &Store) -> Redis {
    Redis::connect(Config::from_url(store.url()).unwrap()).await.unwrap()
}

fn check(part: &str, limit: &str, cost: u64) -> Check {
    Check::new(Key::new("t", "engine", [part]), limit.parse().unwrap(), cost)
}

fn take(part: &str, limit: &str) -> Request {
    Request::new(Op::Take, [check(part, limit, 1)]).unwrap()
}

async fn admin(store: &Store, words: &[&str]) -> redis::Value {
    let client = redis::Client::open(store.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(&mut connection).await.unwrap()
}

fn failure(outcome: &Outcome) -> &Error {
    outcome.record().unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_two_nodes_take_exactly_what_there_is() {
    let store = server();
    race([Arc::new(engine(&store).await), Arc::new(engine(&store).await)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_script_cache_is_noticed_by_nobody() {
    let store = server();
    let engine = Arc::new(engine(&store).await);
    let flushing = async {
        for _ in 0..150 {
            admin(&store, &["SCRIPT", "FLUSH"]).await;
        }
    };
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..200 {
                    let outcome =
                        engine.submit(Arc::new(Batch::of(take("flushed", "900/1h sliding-log")))).await.remove(0);
                    allowed += u64::from(outcome.record().unwrap().allowed);
                }
                allowed
            })
        })
        .collect();
    flushing.await;
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    assert_eq!(allowed, 900);
}

#[tokio::test]
async fn a_layered_request_is_all_or_nothing_and_every_key_expires() {
    let store = server();
    let engine = engine(&store).await;
    let layers =
        [check("a", "3/1h fixed-window", 1), check("b", "2/1h sliding-log", 1), check("c", "5/1h token-bucket", 1)];
    let request = Request::new(Op::Take, layers).unwrap();
    for allowed in [true, true, false, false] {
        assert_eq!(engine.ask(request.clone()).await.unwrap().allowed, allowed);
    }
    let left = engine.ask_one(Op::Peek, check("a", "3/1h fixed-window", 1)).await.unwrap();
    assert_eq!(left.remaining, 1, "a refused request charged nothing");
    let refund = Op::Refund { taken: left.at };
    let refunded = engine.ask_one(refund, check("a", "3/1h fixed-window", 1)).await.unwrap();
    assert_eq!(refunded.remaining, 2);
    assert!(engine.ask_one(Op::Reset, check("b", "2/1h sliding-log", 1)).await.unwrap().allowed);
    let redis::Value::Array(keys) = admin(&store, &["KEYS", "*"]).await else { panic!() };
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in keys {
        let redis::Value::BulkString(key) = key else { panic!() };
        let ttl = admin(&store, &["PTTL", std::str::from_utf8(&key).unwrap()]).await;
        assert!(matches!(ttl, redis::Value::Int(ttl) if (1..=3_602_000).contains(&ttl)), "{ttl:?}");
    }
}

#[tokio::test]
async fn a_long_log_is_exact_on_the_server_too() {
    let store = server();
    let engine = engine(&store).await;
    let limit = "2000/1s sliding-log";
    let mut model = limiter_core::Cell::default();
    for step in 0..6_000_u64 {
        let at = Instant::from_micros(1_764_559_423_000_000 + step * 450 + step % 7).unwrap();
        let request = if step % 500 == 499 {
            let taken = Instant::from_micros(at.micros() - 400_000).unwrap();
            Request::new(Op::Refund { taken }, [check("log", limit, 900)]).unwrap()
        } else {
            take("log", limit)
        };
        let expected = limiter_core::decide(&request, at, &mut model);
        let outcome = engine.submit(Arc::new(Batch { requests: vec![request], at: Some(at) })).await.remove(0);
        assert_eq!(outcome.record().unwrap(), &expected, "step {step}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_at_once() {
    let store = server();
    let url = store.url().to_owned();
    let engine = engine(&store).await;
    store.kill().unwrap();
    let begun = Clock::now();
    let error = Redis::connect(Config::from_url(&url).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSent);
    // The first call may still go to the connection that is gone; then it is known.
    let _ = engine.submit(Arc::new(Batch::of(take("x", "5/1h fixed-window")))).await;
    let outcome = engine.submit(Arc::new(Batch::of(take("x", "5/1h fixed-window")))).await.remove(0);
    assert!(matches!(&outcome, Outcome::NotSent(error) if error.kind() == ErrorKind::NotSent), "{outcome:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    store.restart().unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(engine.ask(take("x", "5/1h fixed-window")).await.unwrap().allowed, "the first call after it is back");
}

#[tokio::test]
async fn a_server_that_stops_answering_is_unknown_in_time_and_never_asked_twice() {
    let store = server();
    let config = Config::from_url(store.url()).unwrap().call_timeout(Duration::from_millis(200));
    let engine = Redis::connect(config.connect_timeout(Duration::from_millis(200))).await.unwrap();
    assert!(engine.ask(take("p", "10/1h fixed-window")).await.unwrap().allowed);
    store.pause().unwrap();
    let begun = Clock::now();
    let outcome = engine.submit(Arc::new(Batch::of(take("p", "10/1h fixed-window")))).await.remove(0);
    assert_eq!(failure(&outcome).kind(), ErrorKind::Unknown { in_flight: true });
    let outcome = engine.submit(Arc::new(Batch::of(take("p", "10/1h fixed-window")))).await.remove(0);
    assert_eq!(failure(&outcome).kind(), ErrorKind::NotSent, "a new connection gets no answer either");
    assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
    store.resume().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let left = engine.ask_one(Op::Peek, check("p", "10/1h fixed-window", 1)).await.unwrap();
    assert!(matches!(left.remaining, 8 | 9), "2 were sent, the third was not: {} left", left.remaining);
}

#[tokio::test]
async fn a_server_that_refuses_says_why_and_nothing_was_applied() {
    let primary = server();
    let (host, port) = (primary.addr().ip().to_string(), primary.addr().port().to_string());
    let replica = Launch::new(Kind::Redis).option("replicaof", format!("{host} {port}")).start().unwrap();
    let error = Redis::connect(Config::from_url(replica.url()).unwrap()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("replica"), "{error}");

    let engine = engine(&primary).await;
    assert!(engine.ask(take("r", "10/1h fixed-window")).await.unwrap().allowed);
    admin(&primary, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let Err(CheckError::NotSent(error)) = engine.ask(take("r", "10/1h fixed-window")).await else { panic!() };
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("out of memory"), "{error}");
    // A question and a denial write nothing, so they are answered all the same.
    let peek = engine.ask_one(Op::Peek, check("r", "10/1h fixed-window", 1)).await.unwrap();
    assert_eq!(peek.remaining, 9);
    admin(&primary, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(engine.ask(take("r", "10/1h fixed-window")).await.unwrap().allowed);
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_is_left_for_the_one_behind_the_address() {
    let store = server();
    let engine = engine(&store).await;
    assert!(engine.ask(take("f", "10/1h fixed-window")).await.unwrap().allowed);
    admin(&store, &["REPLICAOF", "127.0.0.1", "1"]).await;
    for _ in 0..2 {
        let Err(CheckError::NotSent(error)) = engine.ask(take("f", "10/1h fixed-window")).await else { panic!() };
        assert!(error.to_string().contains("replica"), "{error}");
    }
    admin(&store, &["REPLICAOF", "NO", "ONE"]).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(engine.ask(take("f", "10/1h fixed-window")).await.unwrap().allowed);
}

#[tokio::test]
async fn users_passwords_databases_and_sockets_are_understood_and_no_secret_is_told() {
    const MARKER: &str = "s3cr3t-m4rk3r";
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let store = Launch::new(Kind::Redis)
        .option("unixsocket", socket.to_str().unwrap())
        .option("user", format!("limiter on >{MARKER} ~rl:* +@scripting +@read +@write +@connection +time"))
        .start()
        .unwrap();
    let (addr, limit) = (store.addr(), "3/1h fixed-window");
    let mut told = Vec::new();
    // The user may not ask INFO, which is no hindrance.
    for url in [
        format!("redis://limiter:{MARKER}@{addr}/"),
        format!("redis://limiter:{MARKER}@{addr}/3"),
        format!("redis+unix://{}?user=limiter&pass={MARKER}&db=5", socket.display()),
        format!("redis://limiter:{MARKER}@{addr}/7?protocol=resp3"),
    ] {
        let config = Config::from_url(&url).unwrap();
        told.push(format!("{config:?}"));
        let engine = Redis::connect(config).await.unwrap();
        let decision = engine.ask_one(Op::Take, check("db", limit, 1)).await.unwrap();
        assert_eq!(decision.remaining, 2, "each database has its own");
        told.push(format!("{engine:?}"));
    }
    for url in [
        format!("redis://limiter:{MARKER}-wrong@{addr}/"),
        format!("redis://nobody:{MARKER}@{addr}/"),
        format!("redis://limiter:{MARKER}@{addr}/999"),
        format!("redis://limiter:{MARKER}@127.0.0.1:1/"),
    ] {
        let error = Redis::connect(Config::from_url(&url).unwrap()).await.unwrap_err();
        told.push(format!("{error} {error:?}"));
    }
    for url in [
        format!("redis://limiter:{MARKER}@{addr}/x{MARKER}"),
        format!("redis://:{MARKER}@:/"),
        format!("http://{MARKER}"),
    ] {
        let error = Config::from_url(&url).unwrap_err();
        told.push(format!("{error} {error:?}"));
    }
    let told = told.concat();
    assert!(!told.contains(MARKER) && !told.contains("limiter:"), "{told}");
    assert!(told.contains("the user or the password"), "{told}");
}
