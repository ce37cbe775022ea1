//! The store is killed, stopped and restarted under load: what an open, a closed and a fallback rule do meanwhile, how long a caller waits,
//! and how soon all is well again. The figures are printed: `cargo test --features redis --test outage -- --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod load;

use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter::layer::{BreakerState, FailurePolicy};
use limiter::{BackendExt, Check, Op, Stack};
use limiter_conformance::proxy::{Fault, Proxy};
use limiter_conformance::store::{Kind, Launch, Store};

use tokio::sync::Mutex;

use load::{Load, RULES, Seen};

/// What a decision may cost its caller.
const DEADLINE: Duration = Duration::from_millis(200);
/// What the layers may add.
const SLACK: Duration = Duration::from_millis(50);
/// Two nodes share the limit of the fallback rule.
const NODES: usize = 2;
/// How long the store is away.
const AWAY: Duration = Duration::from_secs(2);
/// One at a time: each is a load of its own.
static ALONE: Mutex<()> = Mutex::const_new(());
/// How soon it has to be used again once it is back.
const HEALS_IN: Duration = Duration::from_secs(2);

fn server() -> Store {
    Launch::new(Kind::Redis).own().start().unwrap()
}

async fn nodes(url: &str) -> Vec<Arc<Stack>> {
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let builder =
            Stack::builder().deadline(DEADLINE).rule("open", FailurePolicy::Open).rule("closed", FailurePolicy::Closed);
        let builder = builder.rule("local", format!("local nodes={NODES}").parse().unwrap());
        nodes.push(Arc::new(builder.build(limiter::engine(url).await.unwrap())));
    }
    nodes
}

/// Breaks the store by `fault`, heals it by `heal`, and holds everything that was answered against the policies.
async fn outage(name: &str, nodes: &[Arc<Stack>], fault: impl FnOnce(), heal: impl FnOnce()) -> [Seen; 3] {
    let load = Load::start(nodes);
    let quiet = load.phase(Duration::from_secs(1)).await;
    for (rule, seen) in RULES.iter().zip(&quiet) {
        assert!(seen.store_allowed > 0, "{name}: no load on {rule}: {seen:?}");
    }
    fault();
    // What is in flight, and what it takes to notice.
    let noticing = load.phase(5 * DEADLINE).await;
    let away = load.phase(AWAY).await;
    heal();
    let healed = Instant::now();
    while nodes.iter().any(|node| node.breaker().state() != BreakerState::Closed) {
        assert!(healed.elapsed() < Duration::from_secs(30), "{name}: it does not heal");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let recovery = healed.elapsed();
    load.phase(5 * DEADLINE).await;
    let well = load.phase(Duration::from_secs(1)).await;
    let all = load.stop().await;

    println!("\n{name}: recovered in {} ms", recovery.as_millis());
    for (phase, seen) in [("before", &quiet), ("noticing", &noticing), ("away", &away), ("after", &well)] {
        for (rule, seen) in RULES.iter().zip(seen) {
            println!("  {phase:<9} {rule:<7} {seen}");
        }
    }
    let [open, closed, local] = &away;
    assert!(open.open > 0 && open.refused() == 0 && open.failed() == 0, "{name}: an open rule passes: {open:?}");
    assert!(closed.failed() > 0 && closed.passed() == 0, "{name}: a closed rule tells the failure: {closed:?}");
    assert!(
        local.local_allowed + local.local_denied > 0 && local.failed() == 0,
        "{name}: a local rule counts: {local:?}"
    );
    // Each node's half of the limit, for an hour, at each of the keys.
    let most = load::KEYS * load::LOCAL_LIMIT;
    let local_passed: u64 = all.seen[2].local_allowed;
    assert!(local_passed <= most, "{name}: {local_passed} passed by the shares of {most}");
    for (rule, seen) in RULES.iter().zip(&well) {
        // A busy machine may miss the deadline of a call or two.
        assert!(seen.store() > 20 * (seen.degraded() + seen.failed()), "{name}: {rule} afterwards: {seen:?}");
    }
    // A conservation law: what passed is what the store admitted, and what is counted as passed without it.
    for (rule, seen) in RULES.iter().zip(&all.seen) {
        assert_eq!(seen.passed(), seen.store_allowed + seen.open + seen.local_allowed, "{name}: {rule}");
    }
    let counted: u64 = nodes.iter().map(|node| node.fallback().passed_open()).sum();
    assert_eq!(all.seen[0].open, counted, "{name}: each pass without a count is counted as one");
    let worst = all.seen.iter().map(|seen| seen.worst).max().unwrap();
    println!(
        "  worst call {worst:.1?} of {DEADLINE:?} + {SLACK:?} (a timer of this machine was {:.1?} late); spared by the breaker {}",
        all.late,
        nodes.iter().map(|node| node.breaker().spared()).sum::<u64>()
    );
    assert!(worst <= DEADLINE + SLACK + all.late, "{name}: a caller waited {worst:?}");
    assert!(recovery <= HEALS_IN + all.late, "{name}: recovered in {recovery:?}");
    all.seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_killed_and_restarted() {
    let _alone = ALONE.lock().await;
    let store = server();
    let nodes = nodes(store.url()).await;
    outage("killed", &nodes, || store.kill().unwrap(), || store.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_stops_where_it_stands() {
    let _alone = ALONE.lock().await;
    let store = server();
    let nodes = nodes(store.url()).await;
    let [open, ..] = outage("stopped", &nodes, || store.pause().unwrap(), || store.resume().unwrap()).await;
    // Nothing was lost, so what the store has counted lies between what it told and what may have been applied besides.
    let limit = load::limit("open");
    let mut consumed = 0;
    for key in 0..load::KEYS {
        let left = nodes[0].ask_one(Op::Peek, Check::new(load::key("open", key), limit, 0)).await.unwrap();
        consumed += limit.capacity() - left.remaining;
    }
    let missed: u64 = nodes.iter().map(|node| node.deadline().missed()).sum();
    let most = open.store_allowed + missed;
    println!(
        "  the store counted {consumed} units: {} told, and at most {missed} that came too late",
        open.store_allowed
    );
    assert!((open.store_allowed..=most).contains(&consumed), "{consumed} of {} to {most}", open.store_allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_swallows_everything_and_one_that_is_slow() {
    let _alone = ALONE.lock().await;
    let store = server();
    let proxy = Proxy::start(store.addr()).unwrap();
    let url = store.url().replace(&store.addr().to_string(), &proxy.addr().to_string());
    let slow = Fault::Delay { each_way: Duration::from_millis(250), jitter: Duration::ZERO, seed: 1 };
    for (name, fault) in [("a black hole", Fault::BlackHole), ("slow", slow)] {
        let nodes = nodes(&url).await;
        outage(name, &nodes, || proxy.set(fault).unwrap(), || proxy.set(Fault::Pass).unwrap()).await;
        let keys = RULES.iter().flat_map(|rule| (0..load::KEYS).map(|key| load::key(rule, key)));
        for key in keys {
            let reset = nodes[0].ask_one(Op::Reset, Check::new(key, load::limit("open"), 0)).await.unwrap();
            assert!(reset.allowed);
        }
    }
}
