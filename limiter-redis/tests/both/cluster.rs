//! A cluster that changes and fails: replies that get lost, slots that move, nodes that go and come back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use limiter_conformance::proxy::{Fault, Then};
use limiter_conformance::rig::Rig;
use limiter_conformance::store::topology::RedisCluster;
use limiter_conformance::store::wire::{Reply, Resp};
use limiter_conformance::{Options, Subject, run};
use limiter_core::script::slot_of;
use limiter_core::{Atomicity, Backend, BackendExt, Batch, Check, ErrorKind, Key, Limit, Op, Outcome, Request};
use tokio::time::Instant;

use crate::{Config, Engine};

async fn engine(url: &str) -> Engine {
    Engine::connect(Config::from_url(url).unwrap()).await.unwrap()
}

fn ask(addr: SocketAddr, words: &[&str]) -> Reply {
    Resp::connect(addr).unwrap().call(words).unwrap()
}

fn check(scope: &str, limit: &str) -> Check {
    Check::new(Key::new(scope, "cluster", ["key"]), limit.parse().unwrap(), 1)
}

fn take(checks: impl IntoIterator<Item = Check>) -> Arc<Batch> {
    Arc::new(Batch::of(Request::new(Op::Take, checks).unwrap()))
}

async fn left(engine: &Engine, check: &Check) -> u64 {
    engine.ask_one(Op::Peek, Check { cost: 0, ..check.clone() }).await.unwrap().remaining
}

/// A scope whose slot is the node's, of the three primaries.
fn scope_of(node: usize) -> String {
    let third = usize::from(limiter_core::script::SLOTS) / 3;
    let mut names = (0..).map(|number| format!("scope-{number}"));
    names.find(|name| usize::from(slot_of(&Key::new(name, "cluster", ["key"]))) / (third + 1) == node).unwrap()
}

#[test]
fn the_suites_failures_on_a_cluster_of_its_own() {
    let cluster = RedisCluster::start().unwrap();
    let rig = Rig::before_cluster(&cluster).unwrap();
    let url = rig.url(&cluster.url());
    let subject = rig.equip(Subject::new("redis-cluster", move || {
        let url = url.clone();
        async move { Ok(Engine::connect(Config::from_url(&url)?).await?) }
    }));
    let report = run(&subject, &Options::default().filter("failures::").filter("cancellation::").at_least(6));
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_lost_is_unknown_and_its_call_ran_once() {
    let cluster = RedisCluster::start().unwrap();
    let rig = Rig::before_cluster(&cluster).unwrap();
    let url = rig.url(&cluster.url());
    let config = Config::from_url(&url).unwrap().call_timeout(Duration::from_millis(300));
    let engine = Engine::connect(config).await.unwrap();
    for (node, then) in [(0, Then::Reset), (1, Then::Silence), (2, Then::Reset)] {
        let proxy = rig.proxies().nth(node).unwrap();
        let of = |at: usize, limit: &str| {
            Check::new(Key::new(scope_of(at), "lost", [node.to_string()]), limit.parse().unwrap(), 1)
        };
        let (near, far) = (of(node, "10/1h sliding-log"), of((node + 1) % 3, "5/1h sliding-log"));
        assert!(engine.submit(take([near.clone()])).await[0].record().unwrap().allowed);
        for (checks, due) in [(vec![near.clone()], (8, 5)), (vec![near.clone(), far.clone()], (7, 5))] {
            proxy.set(Fault::DropReply(then)).unwrap();
            let begun = Instant::now();
            let outcome = engine.submit(take(checks.clone())).await.remove(0);
            // Over two slots, the far one is taken first, while the near one is only asked: nothing of it is left then.
            let spans = checks.len() > 1;
            assert!(
                matches!(
                    (&outcome, spans),
                    (Outcome::Unknown(_), false) | (Outcome::NotSent(_) | Outcome::Unknown(_), true)
                ),
                "{outcome:?}"
            );
            assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
            proxy.set(Fault::Pass).unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            let is = (left(&engine, &near).await, left(&engine, &far).await);
            let due = if spans { (due.0 + 1, due.1) } else { due };
            assert_eq!(is, due, "{then:?}, over {} slots", checks.len());
        }
    }
}

#[tokio::test]
async fn requests_over_several_slots_are_all_or_nothing_one_by_one() {
    let cluster = RedisCluster::start().unwrap();
    let engine = engine(&cluster.url()).await;
    assert_eq!(engine.capabilities().atomicity, Atomicity::SameScope);
    let layers = [
        check(&scope_of(0), "10/1h fixed-window"),
        check(&scope_of(1), "2/1h token-bucket"),
        check(&scope_of(2), "5/1h sliding-log"),
    ];
    for allowed in [true, true, false, false] {
        assert_eq!(engine.ask(Request::new(Op::Take, layers.clone()).unwrap()).await.unwrap().allowed, allowed);
    }
    for (layer, due) in layers.iter().zip([8, 0, 3]) {
        assert_eq!(left(&engine, layer).await, due);
    }
    // What a caller takes over several slots, it can give back.
    let of = |layer: &Check| Check { key: Key::new(layer.key.as_str(), "again", ["key"]), ..layer.clone() };
    let spread = [of(&layers[0]), of(&layers[2])];
    let taken = engine.ask(Request::new(Op::Take, spread.clone()).unwrap()).await.unwrap();
    assert!(taken.allowed);
    let back = Request::new(Op::Refund { taken: taken.at }, spread.clone()).unwrap();
    let back: Vec<u64> = engine.ask(back).await.unwrap().layers().iter().map(|layer| layer.remaining).collect();
    assert_eq!(back, [10, 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_over_several_slots_never_take_too_much() {
    let cluster = RedisCluster::start().unwrap();
    let layers = [check(&scope_of(0), "300/1h fixed-window"), check(&scope_of(1), "250/1h sliding-log")];
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let (layers, engine) = (layers.clone(), engine(&cluster.url()).await);
        tasks.push(tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..20 {
                let requests = vec![Request::new(Op::Take, layers.clone()).unwrap(); 2];
                for outcome in engine.submit(Arc::new(Batch { requests, at: None })).await {
                    allowed += u64::from(outcome.record().unwrap().allowed);
                }
            }
            allowed
        }));
    }
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    let engine = engine(&cluster.url()).await;
    assert_eq!(allowed, 250, "under steady demand the limit is reached");
    assert_eq!((left(&engine, &layers[0]).await, left(&engine, &layers[1]).await), (50, 0));
}

/// Moves a slot from one node to another, as an operator does: step by step, with `while_asking` in between.
async fn move_slot(slot: u16, from: SocketAddr, to: SocketAddr, while_asking: impl Future<Output = ()>) {
    let (slot, id) = (slot.to_string(), |addr| ask(addr, &["CLUSTER", "MYID"]).text().to_owned());
    ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
    ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    while_asking.await;
    let keys = ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    for key in keys.list() {
        let (host, port) = (to.ip().to_string(), to.port().to_string());
        let moved = ask(from, &["MIGRATE", &host, &port, key.text(), "0", "5000"]);
        assert_eq!(moved.text(), "OK");
    }
    for node in [to, from] {
        assert_eq!(ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &id(to)]).text(), "OK");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_followed_and_counted_once() {
    let cluster = RedisCluster::start().unwrap();
    let engine = Arc::new(engine(&cluster.url()).await);
    let hot = check(&scope_of(0), "1000000/1h sliding-counter");
    let pair = [hot.clone(), Check { key: Key::new(scope_of(0), "cluster", ["other"]), ..hot.clone() }];
    let stop = Arc::new(AtomicBool::new(false));
    let (asking, key, both) = (Arc::clone(&stop), hot.clone(), pair.clone());
    let client = Arc::clone(&engine);
    let steady = tokio::spawn(async move {
        let mut allowed = 0_u64;
        while !asking.load(Ordering::Relaxed) {
            for checks in [vec![key.clone()], both.to_vec()] {
                let outcome = client.submit(take(checks)).await.remove(0);
                assert!(outcome.record().unwrap_or_else(|error| panic!("{error}")).allowed);
                allowed += 1;
            }
        }
        allowed
    });
    let slot = slot_of(&hot.key);
    let [a, b] = [cluster.nodes[0].addr(), cluster.nodes[1].addr()];
    for (turn, (from, to)) in [(a, b), (b, a), (a, b)].into_iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(60)).await;
        // Keys that are not there yet are asked for at the new node (ASK); a script with one here and one there tries again.
        let fresh = check(&scope_of(0), "3/1h fixed-window");
        let fresh = Check { key: Key::new(scope_of(0), "cluster", [turn.to_string()]), ..fresh };
        move_slot(slot, from, to, async {
            assert!(engine.submit(take([fresh.clone()])).await[0].record().unwrap().allowed);
        })
        .await;
        assert_eq!(left(&engine, &fresh).await, 2);
    }
    stop.store(true, Ordering::Relaxed);
    let allowed = steady.await.unwrap();
    assert_eq!(1_000_000 - left(&engine, &hot).await, allowed, "each was counted once, wherever its key was");
    assert!(allowed > 20, "{allowed} calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_dies_is_replaced_by_its_replica() {
    let cluster = RedisCluster::start().unwrap();
    let engine = engine(&cluster.url()).await;
    let limit: Limit = "1000/1h fixed-window".parse().unwrap();
    let there = [0, 1, 2].map(|node| Check { limit, ..check(&scope_of(node), "1/1h fixed-window") });
    for check in &there {
        assert!(engine.submit(take([check.clone()])).await[0].record().unwrap().allowed);
    }
    cluster.nodes[1].kill().unwrap();
    let begun = Instant::now();
    let (mut failed, mut others) = (0, 0);
    loop {
        let outcome = engine.submit(take([there[1].clone()])).await.remove(0);
        if outcome.record().is_ok() {
            break;
        }
        failed += 1;
        assert!(begun.elapsed() < Duration::from_secs(30), "{outcome:?}");
        let other = engine.submit(take([there[0].clone()])).await.remove(0);
        // A primary that misses another one refuses for a moment, too, if the cluster wants all slots served.
        others += u32::from(other.record().is_ok());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("healed after {:?}, {failed} calls failed, {others} elsewhere did not", begun.elapsed());
    assert!(others > 0, "a node that lives is asked while another is away");
    // From now on no call fails.
    for _ in 0..20 {
        for check in &there {
            assert!(engine.submit(take([check.clone()])).await[0].record().unwrap().allowed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stops_answering_is_unknown_in_time_and_replaced() {
    let cluster = RedisCluster::start_with(&[("cluster-node-timeout", "1500")]).unwrap();
    let config = Config::from_url(&cluster.url()).unwrap().call_timeout(Duration::from_millis(200));
    let engine = Engine::connect(config).await.unwrap();
    let check = check(&scope_of(2), "1000/1h fixed-window");
    assert!(engine.submit(take([check.clone()])).await[0].record().unwrap().allowed);
    cluster.nodes[2].pause().unwrap();
    let begun = Instant::now();
    let (mut kinds, mut longest) = (Vec::new(), Duration::ZERO);
    loop {
        let asked = Instant::now();
        let outcome = engine.submit(take([check.clone()])).await.remove(0);
        longest = longest.max(asked.elapsed());
        match outcome.record() {
            Ok(_) => break,
            Err(error) => kinds.push(error.kind()),
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{outcome:?}");
    }
    assert_eq!(kinds.first(), Some(&ErrorKind::Unknown { in_flight: true }));
    assert!(longest < Duration::from_millis(600), "{longest:?}");
    cluster.nodes[2].resume().unwrap();
    for _ in 0..20 {
        assert!(engine.submit(take([check.clone()])).await[0].record().unwrap().allowed);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
