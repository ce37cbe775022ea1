//! The engine on servers of its own: what it sends, what it finds out, and what it says of it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{LeaseGrantOptions, PutOptions};
use limiter_conformance::proxy::{Fault, Proxy, Then};
use limiter_conformance::race;
use limiter_conformance::store::{Kind, Launch, Store};
use limiter_core::{Backend, BackendExt, Batch, Check, ErrorKind, Instant, Key, ManualClock, Op, Outcome, Request};
use limiter_etcd::{Config, Etcd};
use support::{PREFIX, client};
use tokio::time::Instant as Timer;

fn server() -> Store {
    Launch::new(Kind::Etcd).own().start().unwrap()
}

fn config(url: &str) -> Config {
    // A busy machine is slow, not wrong.
    Config::from_url(url).unwrap().call_timeout(Duration::from_secs(5))
}

async fn engine(store: &Store) -> Etcd {
    Etcd::connect(config(store.url())).await.unwrap()
}

fn key(part: &str) -> Key {
    Key::new("t", "engine", [part])
}

fn check(part: &str, limit: &str, cost: u64) -> Check {
    Check::new(key(part), limit.parse().unwrap(), cost)
}

fn take(part: &str, limit: &str) -> Request {
    Request::new(Op::Take, [check(part, limit, 1)]).unwrap()
}

async fn ask(engine: &Etcd, request: Request) -> Outcome {
    engine.submit(Arc::new(Batch::of(request))).await.remove(0)
}

/// Until a reply of the server was lost.
async fn lose(proxy: &Proxy, then: Then) {
    let lost = || proxy.traffic().from_store - proxy.traffic().to_clients;
    let before = lost();
    proxy.set(Fault::DropReply(then)).unwrap();
    while lost() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn version(outcome: &Outcome) -> u64 {
    outcome.record().unwrap().layers()[0].version
}

#[tokio::test]
async fn a_warm_check_is_one_transaction_and_so_are_many() {
    let store = server();
    let engine = engine(&store).await;
    assert!(matches!(ask(&engine, take("warm", "9/1h fixed-window")).await, Outcome::Allowed(_)));
    for checks in 1..=8 {
        assert!(matches!(ask(&engine, take("warm", "9/1h fixed-window")).await, Outcome::Allowed(_)));
        assert_eq!(engine.figures().sent, 1 + checks);
    }
    assert!(matches!(ask(&engine, take("warm", "9/1h fixed-window")).await, Outcome::Denied(_)));
    assert_eq!(engine.figures().sent, 10, "a denial is asked of the store too");
    let requests = (0..64).map(|number| take(&number.to_string(), "9/1h fixed-window")).collect();
    assert!(
        engine
            .submit(Arc::new(Batch { requests, at: None }))
            .await
            .iter()
            .all(|one| matches!(one, Outcome::Allowed(_)))
    );
    assert_eq!(engine.figures().sent, 11, "64 keys in one transaction");
    let requests = vec![take("hot", "900/1h token-bucket"); 1_000];
    let outcomes = engine.submit(Arc::new(Batch { requests, at: None })).await;
    let allowed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Allowed(_))).count();
    assert_eq!((allowed, engine.figures().sent), (900, 12), "a thousand checks of one key too");
    assert_eq!(engine.figures().conflicts, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_two_nodes_take_exactly_what_there_is() {
    let store = server();
    race([Arc::new(engine(&store).await), Arc::new(engine(&store).await)]).await.unwrap();
}

/// The reply is lost, the request was applied: the engine finds out by its mark, and tells the verdict.
#[tokio::test]
async fn a_lost_reply_is_found_out() {
    let store = server();
    let proxy = Arc::new(Proxy::start(store.addr()).unwrap());
    let url = format!("etcd://{}", proxy.addr());
    let engine = Etcd::connect(config(&url)).await.unwrap();
    for (round, fault) in [Then::Reset, Then::Silence, Then::Reset].into_iter().enumerate() {
        let limit = "10/1h sliding-log";
        let first = ask(&engine, take(&format!("lost {round}"), limit)).await;
        let heal = async {
            lose(&proxy, fault).await;
            proxy.set(Fault::Pass).unwrap();
        };
        let (lost, ()) = tokio::join!(ask(&engine, take(&format!("lost {round}"), limit)), heal);
        assert!(matches!(lost, Outcome::Allowed(_)), "{lost:?}");
        assert_eq!(version(&lost), version(&first) + 1);
        let next = ask(&engine, take(&format!("lost {round}"), limit)).await;
        assert_eq!(version(&next), version(&first) + 2, "it was applied once");
    }
    assert!(engine.figures().resolved >= 1, "{:?}", engine.figures());
    assert_eq!(engine.figures().resolved, engine.figures().doubtful);
}

/// The reply is lost, and before the engine has asked again others have written the key over and over: the history tells.
#[tokio::test]
async fn a_lost_reply_is_found_out_behind_the_writes_of_others() {
    let store = server();
    let proxy = Arc::new(Proxy::start(store.addr()).unwrap());
    let slow = Etcd::connect(config(&format!("etcd://{}", proxy.addr()))).await.unwrap();
    let other = engine(&store).await;
    let limit = "100/1h fixed-window";
    let first = version(&ask(&slow, take("behind", limit)).await);
    // The way back is closed until the others are done.
    let heal = async {
        lose(&proxy, Then::Reset).await;
        proxy.set(Fault::Refuse).unwrap();
        for _ in 0..10 {
            assert!(matches!(ask(&other, take("behind", limit)).await, Outcome::Allowed(_)));
        }
        proxy.set(Fault::Pass).unwrap();
    };
    let (lost, ()) = tokio::join!(ask(&slow, take("behind", limit)), heal);
    assert!(matches!(lost, Outcome::Allowed(_)), "{lost:?}");
    assert_eq!(version(&lost), first + 1, "ours was the first write after the state that it was decided on");
    let peek = Request::new(Op::Peek, [check("behind", limit, 1)]).unwrap();
    assert_eq!(version(&ask(&slow, peek).await), first + 11);
}

#[tokio::test]
async fn a_corrupt_value_is_refused_and_harms_no_other() {
    let store = server();
    let engine = engine(&store).await;
    let mut etcd = client(store.url()).await;
    for (number, bytes) in [&b""[..], b"text", &[1; 30], &[0xff; 200]].into_iter().enumerate() {
        let bad = format!("bad {number}");
        etcd.put(format!("{PREFIX}{}", key(&bad)), bytes, None).await.unwrap();
        let requests = vec![take("good", "1000/1h sliding-log"), take(&bad, "1/1s fixed-window")];
        let outcomes = engine.submit(Arc::new(Batch { requests, at: None })).await;
        assert!(matches!(outcomes[0], Outcome::Allowed(_)), "{:?}", outcomes[0]);
        let Outcome::NotSent(error) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("stored state") && !error.to_string().contains("bad"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_takes_fewer_operations_is_sent_fewer() {
    let store = Launch::new(Kind::Etcd).own().option("max-txn-ops", "10").start().unwrap();
    let engine = engine(&store).await;
    let requests: Vec<_> = (0..64).map(|number| take(&number.to_string(), "9/1h fixed-window")).collect();
    for _ in 0..2 {
        let batch = Arc::new(Batch { requests: requests.clone(), at: None });
        let outcomes = engine.submit(batch).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Allowed(_))), "{outcomes:?}");
    }
    let before = engine.figures().sent;
    assert_eq!(engine.submit(Arc::new(Batch { requests, at: None })).await.len(), 64);
    assert!(engine.figures().sent - before <= 9, "it was learnt: {}", engine.figures().sent - before);
    let layers = |count: usize| {
        let checks = (0..count).map(|number| check(&format!("layer {number}"), "9/1h fixed-window", 1));
        Request::new(Op::Take, checks).unwrap()
    };
    assert!(matches!(ask(&engine, layers(10)).await, Outcome::Allowed(_)));
    let Outcome::NotSent(error) = ask(&engine, layers(11)).await else { panic!("11 keys at once") };
    assert!(error.to_string().contains("--max-txn-ops"), "{error}");
}

#[tokio::test]
async fn states_that_are_too_long_for_one_request_go_one_by_one() {
    let store = Launch::new(Kind::Etcd).own().option("max-request-bytes", "20000").start().unwrap();
    let engine = engine(&store).await;
    let log = |part: usize| Request::new(Op::Take, [check(&part.to_string(), "2000/1h sliding-log", 1)]).unwrap();
    // Each log comes to some 5 kB: 2000 instants of their own.
    for step in 0..2_000 {
        let at = Some(Instant::from_micros(1_764_559_423_000_000 + step * 300).unwrap());
        let requests = (0..8).map(log).collect();
        let outcomes = engine.submit(Arc::new(Batch { requests, at })).await;
        let failed = outcomes.iter().find(|outcome| !matches!(outcome, Outcome::Allowed(_)));
        assert!(failed.is_none(), "step {step}: {failed:?}");
    }
}

#[tokio::test]
async fn a_lease_that_is_gone_is_granted_anew() {
    let store = server();
    let engine = engine(&store).await;
    let limit = "9/1h fixed-window";
    let first = version(&ask(&engine, take("lease", limit)).await);
    let mut etcd = client(store.url()).await;
    let leases: Vec<i64> = etcd.leases().await.unwrap().leases().iter().map(etcd_client::LeaseStatus::id).collect();
    assert_eq!(leases.len(), 1);
    // Kept alive by another lease, so that only the engine's own is lost.
    let other = etcd.lease_grant(600, None::<LeaseGrantOptions>).await.unwrap().id();
    let name = format!("{PREFIX}{}", key("lease"));
    etcd.put(name, "", Some(PutOptions::new().with_ignore_value().with_lease(other))).await.unwrap();
    etcd.lease_revoke(leases[0]).await.unwrap();
    let next = ask(&engine, take("lease", limit)).await;
    assert_eq!(version(&next), first + 1, "{next:?}");
    assert_eq!(engine.figures().leases_granted, 2);
}

#[tokio::test]
async fn a_state_ahead_of_the_clock_is_noticed() {
    let store = server();
    let now = Instant::from_micros(1_764_559_423_123_456).unwrap();
    let clocks = [ManualClock::at(now), ManualClock::at(now.saturating_add(Duration::from_millis(1_500)))];
    let [behind, ahead] = clocks.map(|clock| config(store.url()).clock(clock));
    let (behind, ahead) = (Etcd::connect(behind).await.unwrap(), Etcd::connect(ahead).await.unwrap());
    let limit = "10/1m token-bucket";
    assert!(matches!(ask(&behind, take("ahead", limit)).await, Outcome::Allowed(_)));
    assert!(matches!(ask(&ahead, take("ahead", limit)).await, Outcome::Allowed(_)));
    assert_eq!((behind.figures().ahead, ahead.figures().ahead), (0, 0));
    assert!(matches!(ask(&behind, take("ahead", limit)).await, Outcome::Allowed(_)));
    assert_eq!((behind.figures().ahead, ahead.figures().ahead), (1, 0));
}

#[tokio::test]
async fn a_reset_removes_the_key_and_a_peek_writes_nothing() {
    let store = server();
    let engine = engine(&store).await;
    let limit = "5/1h sliding-counter";
    let ask_op = async |op| engine.ask_one(op, check("reset", limit, 1)).await.unwrap();
    let stored = async || support::stored(store.url(), "reset").await.unwrap().len();
    let _ = ask_op(Op::Peek).await;
    assert_eq!(stored().await, 0);
    let _ = ask_op(Op::Take).await;
    assert_eq!(stored().await, 1);
    let _ = ask_op(Op::Reset).await;
    assert_eq!(stored().await, 0);
    assert_eq!(ask_op(Op::Take).await.remaining, 4);
}

#[tokio::test]
async fn no_call_outlasts_its_timeout_and_the_store_is_found_again() {
    let store = server();
    let timeout = Duration::from_millis(800);
    let engine = Etcd::connect(config(store.url()).call_timeout(timeout)).await.unwrap();
    let limit = "100000/1h fixed-window";
    assert!(matches!(ask(&engine, take("slow", limit)).await, Outcome::Allowed(_)));
    store.pause().unwrap();
    let started = Timer::now();
    let calls = (0..20).map(|number| ask(&engine, take(if number % 2 == 0 { "slow" } else { "other" }, limit)));
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await);
        if started.elapsed() > 2 * timeout {
            break;
        }
    }
    let each = started.elapsed() / u32::try_from(outcomes.len()).unwrap();
    assert!(each <= timeout + Duration::from_millis(150), "{each:?} a call");
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_) | Outcome::NotSent(_))),
        "{outcomes:?}"
    );
    store.resume().unwrap();
    let started = Timer::now();
    while !matches!(ask(&engine, take("slow", limit)).await, Outcome::Allowed(_)) {
        assert!(started.elapsed() < Duration::from_secs(5), "not found again");
    }
}
