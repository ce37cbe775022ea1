//! What goes wrong with a server, and how that is told: each fault in its own words, in time, and without a secret.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use limiter_conformance::proxy::{Fault, Proxy, Then};
use limiter_conformance::store::topology::{RedisCluster, RedisPair};
use limiter_conformance::store::wire::{Reply, Resp};
use limiter_conformance::store::{Kind, Launch, Store};
use limiter_core::{Backend, Batch, Check, Error, ErrorKind, Key, Op, Outcome, Request};
use tokio::time::Instant;

use crate::{Config, Engine};

/// What every URL here has in it, and nobody may be told.
const MARKER: &str = "m4rk3r-s3cr3t";
/// The timeouts that are set, and the longest that a call may take with them: a busy machine is no fault.
const TIMEOUT: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(1);

const UNKNOWN: ErrorKind = ErrorKind::Unknown { in_flight: true };

fn own() -> Launch {
    Launch::new(Kind::Redis).own()
}

/// A server that asks for a password.
fn locked(password: &str) -> Store {
    let store = own().start().unwrap();
    assert_eq!(admin(&store, &["CONFIG", "SET", "requirepass", password]).text(), "OK");
    store
}

fn admin(store: &Store, words: &[&str]) -> Reply {
    Resp::connect(store.addr()).unwrap().call(words).unwrap()
}

async fn connect(url: &str) -> Result<Engine, Error> {
    Engine::connect(Config::from_url(url)?.connect_timeout(TIMEOUT).call_timeout(TIMEOUT)).await
}

async fn submit(engine: &Engine, op: Op, limit: &str) -> Outcome {
    let check = Check::new(Key::new("t", "errors", [limit]), limit.parse().unwrap(), 1);
    engine.submit(Arc::new(Batch::of(Request::new(op, [check]).unwrap()))).await.remove(0)
}

async fn left(engine: &Engine, limit: &str) -> u64 {
    let check = Check::new(Key::new("t", "errors", [limit]), limit.parse().unwrap(), 0);
    let batch = Arc::new(Batch::of(Request::new(Op::Peek, [check]).unwrap()));
    let outcome = engine.submit(Arc::clone(&batch)).await.remove(0);
    outcome.decisions(&batch.requests[0]).unwrap().layers()[0].remaining
}

/// All that an error says, its causes included.
fn told(error: &Error) -> String {
    let mut told = format!("{error}\n{error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let _ = write!(told, "\n{error}\n{error:?}");
        cause = error.source();
    }
    told
}

#[tokio::test]
async fn each_fault_at_the_start_has_its_own_words() {
    let _from_now_on = logged();
    let open = own().start().unwrap();
    let locked = locked("other");
    let pair = RedisPair::start().unwrap();
    let stopped = own().start().unwrap();
    stopped.pause().unwrap();
    let gone = own().start().unwrap();
    gone.kill().unwrap();
    let cluster = RedisCluster::start().unwrap();
    let [open, locked, replica, stopped, gone, node] =
        [&open, &locked, &pair.replica, &stopped, &gone, &cluster.nodes[0]].map(|store| store.addr().to_string());
    let mut seen = Vec::new();
    for (url, kind, words) in [
        (format!("http://u:{MARKER}@{open}/"), ErrorKind::Refused, "not of the form"),
        (format!("redis://u:{MARKER}@:x/"), ErrorKind::Refused, "not of the form"),
        (format!("redis-sentinel://u:{MARKER}@{open}/"), ErrorKind::Refused, "service"),
        (format!("redis-cluster://u:{MARKER}@{open}/7"), ErrorKind::Refused, "database"),
        (format!("redis://:{MARKER}@{locked}/"), ErrorKind::Refused, "the user or the password"),
        (format!("redis-cluster://:{MARKER}@{locked}/"), ErrorKind::Refused, "the user or the password"),
        (format!("redis://{gone}/?{MARKER}"), ErrorKind::NotSent, "listens"),
        (format!("redis-cluster://{gone}/"), ErrorKind::NotSent, "listens"),
        (format!("redis-sentinel://:{MARKER}@{gone}/?service={MARKER}"), ErrorKind::NotSent, "sentinel"),
        (format!("redis://{stopped}/"), ErrorKind::NotSent, "did not answer"),
        (format!("redis-cluster://{stopped}/"), ErrorKind::NotSent, "did not answer"),
        (format!("redis-sentinel://{stopped}/?service={MARKER}"), ErrorKind::NotSent, "answer"),
        (format!("redis://{replica}/"), ErrorKind::Refused, "replica"),
        (format!("redis://{node}/"), ErrorKind::Refused, "redis-cluster://"),
        (format!("redis-cluster://{open}/"), ErrorKind::Refused, "cluster"),
    ] {
        let begun = Instant::now();
        let result = connect(&url).await;
        let took = begun.elapsed();
        let Err(error) = result else { panic!("{url} is no fault") };
        let told = told(&error);
        assert_eq!(error.kind(), kind, "{url}: {told}");
        assert!(told.contains(words), "{url}: {told}");
        assert!(!told.contains(MARKER), "{url}: {told}");
        assert!(took < LONGEST, "{url}: {took:?}");
        seen.push(error.to_string());
    }
    let logged = logged();
    assert!(!logged.contains(MARKER), "{logged}");
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() >= 9, "each fault is told from the others: {seen:#?}");
}

#[tokio::test]
async fn a_server_without_memory_or_replicas_says_so_and_nothing_was_applied() {
    let store = own().start().unwrap();
    let engine = connect(store.url()).await.unwrap();
    let limit = "10/1h fixed-window";
    assert!(submit(&engine, Op::Take, limit).await.record().unwrap().allowed);
    for (setting, on, off, words) in [
        ("maxmemory", "1", "0", "out of memory"),
        ("min-replicas-to-write", "3", "0", "too few replicas"),
        ("maxmemory", "1", "0", "out of memory"),
    ] {
        admin(&store, &["CONFIG", "SET", setting, on]);
        let begun = Instant::now();
        let outcome = submit(&engine, Op::Take, limit).await;
        let Outcome::NotSent(error) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(words), "{error}");
        assert!(begun.elapsed() < LONGEST);
        admin(&store, &["CONFIG", "SET", setting, off]);
        assert_eq!(left(&engine, limit).await, 9, "{setting}");
    }
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_says_so() {
    let store = own().start().unwrap();
    let engine = connect(store.url()).await.unwrap();
    let limit = "10/1h fixed-window";
    assert!(submit(&engine, Op::Take, limit).await.record().unwrap().allowed);
    admin(&store, &["REPLICAOF", "127.0.0.1", "1"]);
    let begun = Instant::now();
    let outcome = submit(&engine, Op::Take, limit).await;
    let Outcome::NotSent(error) = &outcome else { panic!("{outcome:?}") };
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("replica"), "{error}");
    assert!(begun.elapsed() < LONGEST);
    admin(&store, &["REPLICAOF", "NO", "ONE"]);
    let begun = Instant::now();
    while submit(&engine, Op::Take, limit).await.record().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it heals by itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_stops_answering_is_unknown_in_time() {
    let store = own().start().unwrap();
    let engine = connect(store.url()).await.unwrap();
    let limit = "1000/1h fixed-window";
    assert!(submit(&engine, Op::Take, limit).await.record().unwrap().allowed);
    store.pause().unwrap();
    for call in 0..3 {
        let begun = Instant::now();
        let outcome = submit(&engine, Op::Take, limit).await;
        let error = outcome.record().unwrap_err();
        assert!(begun.elapsed() < LONGEST, "{:?}", begun.elapsed());
        assert!(error.kind() == UNKNOWN || (call > 0 && error.kind() == ErrorKind::NotSent), "{error}");
    }
    store.resume().unwrap();
    let begun = Instant::now();
    while submit(&engine, Op::Take, limit).await.record().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it heals by itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_whose_reply_is_lost_ran_once() {
    let store = own().start().unwrap();
    let proxy = Proxy::start(store.addr()).unwrap();
    let url = store.url().replace(&store.addr().to_string(), &proxy.addr().to_string());
    let engine = connect(&url).await.unwrap();
    let limit = "1000/1h sliding-log";
    for (round, then) in [(1, Then::Reset), (2, Then::Silence), (3, Then::Reset)] {
        assert!(submit(&engine, Op::Peek, limit).await.record().unwrap().allowed);
        proxy.set(Fault::DropReply(then)).unwrap();
        let outcome = submit(&engine, Op::Take, limit).await;
        assert_eq!(outcome.record().unwrap_err().kind(), UNKNOWN, "{outcome:?}");
        proxy.set(Fault::Pass).unwrap();
        // Time for a driver to send again what it should not.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(left(&engine, limit).await, 1000 - round, "{then:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_cache_that_is_flushed_all_the_time_is_noticed_by_nobody() {
    let store = own().start().unwrap();
    let cluster = RedisCluster::start().unwrap();
    for (url, servers) in [
        (store.url().to_owned(), vec![store.addr()]),
        (cluster.url(), cluster.nodes[..RedisCluster::PRIMARIES].iter().map(Store::addr).collect()),
    ] {
        let engine = Arc::new(
            Engine::connect(Config::from_url(&url).unwrap().call_timeout(Duration::from_secs(5))).await.unwrap(),
        );
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
                tokio::spawn(async move {
                    let (mut calls, limit) = (0_u64, "1000000/1h fixed-window");
                    while !stop.load(Ordering::Relaxed) {
                        let take = |part: u64| {
                            let key = Key::new(format!("{}", part % 5), "flush", [task.to_string()]);
                            Request::take(key, limit.parse().unwrap(), 1).unwrap()
                        };
                        let requests = (0..5).map(|part| take(calls + part)).collect();
                        for outcome in engine.submit(Arc::new(Batch { requests, at: None })).await {
                            assert!(outcome.record().unwrap_or_else(|error| panic!("{error}")).allowed);
                        }
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        let (begun, mut flushes) = (Instant::now(), 0_u32);
        while begun.elapsed() < Duration::from_millis(2_200) {
            for server in &servers {
                assert_eq!(Resp::connect(*server).unwrap().call(&["SCRIPT", "FLUSH"]).unwrap().text(), "OK");
            }
            flushes += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut calls = 0;
        for task in tasks {
            calls += task.await.unwrap();
        }
        assert!(flushes > 20 && calls > u64::from(flushes), "{flushes} flushes and {calls} calls");
    }
}

#[tokio::test]
async fn no_secret_is_shown_by_what_is_printed() {
    let _from_now_on = logged();
    let store = locked(MARKER);
    let addr = store.addr();
    let config = Config::from_url(&format!("redis://:{MARKER}@{addr}/")).unwrap();
    let mut shown = format!("{config:?}");
    let engine = Engine::connect(config).await.unwrap();
    assert!(submit(&engine, Op::Take, "1/1h fixed-window").await.record().unwrap().allowed);
    let _ = write!(shown, "{engine:?} {:?}", engine.server());
    for url in [
        format!("redis-cluster://{MARKER}:{MARKER}@{MARKER}:1"),
        format!("redis-sentinel://{MARKER}:{MARKER}@{addr}/?service={MARKER}&sentinelPassword={MARKER}"),
    ] {
        let _ = write!(shown, "{:?}", Config::from_url(&url).unwrap());
    }
    shown.push_str(&logged());
    assert!(!shown.contains(MARKER), "{shown}");
}

/// All that is logged in this process, by either of the two usual ways, down to the finest level.
struct Logs;

static LOGGED: Mutex<String> = Mutex::new(String::new());

/// What was logged up to now; from the first call on it is.
fn logged() -> String {
    static LOGS: Once = Once::new();
    LOGS.call_once(|| {
        log::set_logger(&Logs).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        tracing::subscriber::set_global_default(Logs).unwrap();
        log::trace!("heard by log");
        tracing::trace!("heard by tracing");
    });
    let logged = LOGGED.lock().unwrap().clone();
    assert!(logged.contains("heard by log") && logged.contains("heard by tracing"), "{logged}");
    logged
}

impl log::Log for Logs {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let _ = writeln!(LOGGED.lock().unwrap(), "{}", record.args());
    }

    fn flush(&self) {}
}

impl tracing::Subscriber for Logs {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let _ = writeln!(LOGGED.lock().unwrap(), "{span:?}");
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        let _ = writeln!(LOGGED.lock().unwrap(), "{values:?}");
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let _ = writeln!(LOGGED.lock().unwrap(), "{event:?}");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
