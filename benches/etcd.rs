//! The etcd engine beside the plain use of its driver, in one run on one server: `cargo bench -p limiter-benches --bench etcd`.
//!
//! - `one`: a warm check alone, in turn with a transaction of one put by the same driver.
//! - `hot`: one key. 32 clients that get, compare and put; against 32 tasks in each of two processes (this program, started again).
//! - `many`: 128 tasks on 10 000 keys. A compare-and-put for each check, from a remembered revision; against the engine.
//!
//! The plain ones keep a counter of 8 bytes and decide nothing: what they lack would only make them slower. The server is
//! the launcher's, on this machine's disk. `-- ROUNDS` for other than 5. Read the ratios: the figures move with the disk.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::float_arithmetic,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a bench stops on the first thing that is not as it should be, and tells ratios"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Started};

use etcd_client::{Client, Compare, CompareOp, KvClient, Txn, TxnOp, TxnOpResponse};
use limiter_benches::{Bars, Spread};
use limiter_conformance::store::{Kind, Launch};
use limiter_core::{BackendExt, Key, Limit, Request};
use limiter_etcd::{Config, Etcd};
use tokio::runtime::{Builder, Runtime};

const TASKS: u64 = 32;
const LENGTH: Duration = Duration::from_secs(4);
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, "node", url] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return node(url);
    }
    let rounds = args.iter().find_map(|argument| argument.parse().ok()).unwrap_or(5);
    let store = Launch::new(Kind::Etcd).own().start().unwrap();
    let runtime = runtime();
    let mut bars = Bars::default();
    one(&runtime, store.url(), rounds, &mut bars);
    hot(&runtime, store.url(), rounds, &mut bars);
    many(&runtime, store.url(), rounds, &mut bars);
    bars.print();
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn client(url: &str) -> Client {
    Client::connect([url.trim_start_matches("etcd://")], None).await.unwrap()
}

async fn engine(url: &str) -> Etcd {
    Etcd::connect(Config::from_url(url).unwrap().call_timeout(Duration::from_secs(10))).await.unwrap()
}

fn take(key: &str) -> Request {
    let limit: Limit = "1000000000/1s token-bucket".parse().unwrap();
    Request::take(Key::new("t", "bench", [key]), limit, 1).unwrap()
}

async fn check(engine: &Etcd, request: &Request) {
    assert!(engine.ask(request.clone()).await.unwrap().allowed);
}

/// The ratios of each round's figures.
fn ratio(ours: &[f64], plain: &[f64]) -> Spread {
    Spread::of(ours.iter().zip(plain).map(|(ours, plain)| ours / plain))
}

fn show(what: &str, figures: &[f64], unit: &str) {
    let Spread { median, least, most } = Spread::of(figures.iter().copied());
    println!("{what:<52} {median:>9.0} ({least:.0}–{most:.0}) {unit}");
}

/// One task, no others: a check and a put, in turn; the medians of each round.
fn one(runtime: &Runtime, url: &str, rounds: usize, bars: &mut Bars) {
    let (puts, checks) = runtime.block_on(async {
        let (mut plain, engine) = (client(url).await.kv_client(), engine(url).await);
        let request = take("one");
        let (mut puts, mut checks) = (Vec::new(), Vec::new());
        // The first round connects, learns the key and grants its lease.
        for round in 0..=rounds {
            let (mut put, mut checked) = (Vec::new(), Vec::new());
            for _ in 0..500 {
                let started = Started::now();
                let txn = Txn::new().and_then([TxnOp::put("put", [7_u8; 45], None)]);
                assert!(plain.txn(txn).await.unwrap().succeeded());
                put.push(started.elapsed().as_secs_f64() * 1e6);
                let started = Started::now();
                check(&engine, &request).await;
                checked.push(started.elapsed().as_secs_f64() * 1e6);
            }
            if round > 0 {
                puts.push(Spread::of(put.into_iter()).median);
                checks.push(Spread::of(checked.into_iter()).median);
            }
        }
        (puts, checks)
    });
    show("one: transaction of one put, p50", &puts, "µs");
    show("one: warm check, p50", &checks, "µs");
    bars.at_most("one: p50, check ÷ transaction of one put", ratio(&checks, &puts), 1.5);
}

fn hot(runtime: &Runtime, url: &str, rounds: usize, bars: &mut Bars) {
    let (mut loops, mut nodes) = (Vec::new(), Vec::new());
    let (mut attempts, mut node_attempts) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (rate, tried) = plain_loop(runtime, url);
        loops.push(rate);
        attempts.push(tried);
        let (rate, tried) = two_nodes(url);
        nodes.push(rate);
        node_attempts.push(tried);
    }
    let median = |figures: Vec<f64>| Spread::of(figures.into_iter()).median;
    show("hot: get, compare, put; 32 clients", &loops, &format!("/s, {:.1} attempts a success", median(attempts)));
    show(
        "hot: limiter, 2 processes of 32 tasks",
        &nodes,
        &format!("/s, {:.2} attempts a write", median(node_attempts)),
    );
    bars.at_least("hot: decisions/s, limiter ÷ get, compare, put", ratio(&nodes, &loops), 100.0);
}

/// Successes a second, and attempts for each.
fn plain_loop(runtime: &Runtime, url: &str) -> (f64, f64) {
    runtime.block_on(async {
        let client = client(url).await;
        let (successes, attempts) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let started = Started::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (mut kv, successes, attempts) = (client.kv_client(), Arc::clone(&successes), Arc::clone(&attempts));
                tokio::spawn(async move {
                    while started.elapsed() < LENGTH {
                        let (count, revision) = counter(&mut kv, "loop").await;
                        let won = put(&mut kv, "loop", count, revision).await;
                        attempts.fetch_add(1, Ordering::Relaxed);
                        successes.fetch_add(u64::from(won.is_ok()), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let (successes, attempts) = (successes.load(Ordering::Relaxed), attempts.load(Ordering::Relaxed));
        (successes as f64 / started.elapsed().as_secs_f64(), attempts as f64 / successes as f64)
    })
}

async fn counter(kv: &mut KvClient, key: &str) -> (u64, i64) {
    let got = kv.get(key, None).await.unwrap();
    got.kvs().first().map_or((0, 0), |kv| (u64::from_le_bytes(kv.value().try_into().unwrap()), kv.mod_revision()))
}

/// Counts one up if nobody did: the revision at which it was put, or what is there.
async fn put(kv: &mut KvClient, key: &str, count: u64, revision: i64) -> Result<i64, (u64, i64)> {
    let txn = Txn::new()
        .when([Compare::mod_revision(key, CompareOp::Equal, revision)])
        .and_then([TxnOp::put(key, (count + 1).to_le_bytes(), None)])
        .or_else([TxnOp::get(key, None)]);
    let answer = kv.txn(txn).await.unwrap();
    if answer.succeeded() {
        return Ok(answer.header().unwrap().revision());
    }
    match answer.op_responses().first() {
        Some(TxnOpResponse::Get(got)) => {
            let there = got.kvs().first();
            Err(there.map_or((0, 0), |kv| (u64::from_le_bytes(kv.value().try_into().unwrap()), kv.mod_revision())))
        }
        _ => Err((0, 0)),
    }
}

/// Decisions a second of both, and attempts for each transaction.
fn two_nodes(url: &str) -> (f64, f64) {
    let program = std::env::current_exe().unwrap();
    let mut nodes: Vec<_> = (0..2)
        .map(|_| {
            Command::new(&program).args(["node", url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut outputs: Vec<_> =
        nodes.iter_mut().map(|node| BufReader::new(node.stdout.take().unwrap()).lines()).collect();
    for output in &mut outputs {
        assert_eq!(output.next().unwrap().unwrap(), "ready");
    }
    for node in &mut nodes {
        node.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
    let (mut rate, mut sent, mut committed) = (0.0, 0.0, 0.0);
    for output in &mut outputs {
        let line = output.next().unwrap().unwrap();
        let figures: Vec<f64> = line.split(' ').map(|figure| figure.parse().unwrap()).collect();
        rate += figures[0];
        sent += figures[1];
        committed += figures[2];
    }
    for mut node in nodes {
        assert!(node.wait().unwrap().success());
    }
    (rate, sent / committed)
}

/// One of two processes at the hot key.
fn node(url: &str) {
    runtime().block_on(async {
        let engine = Arc::new(engine(url).await);
        check(&engine, &take("hot")).await;
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let started = Started::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let engine = Arc::clone(&engine);
                tokio::spawn(async move {
                    let request = take("hot");
                    let mut done = 0_u64;
                    while started.elapsed() < LENGTH {
                        check(&engine, &request).await;
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.unwrap();
        }
        let figures = engine.figures();
        let committed: u64 = figures.committed.iter().sum();
        println!("{} {} {committed}", done as f64 / started.elapsed().as_secs_f64(), figures.sent);
    });
}

const KEYS: u64 = 10_000;

fn many(runtime: &Runtime, url: &str, rounds: usize, bars: &mut Bars) {
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    let remembered = Arc::new((0..KEYS).map(|_| Mutex::new((0, 0))).collect::<Vec<_>>());
    let engine = runtime.block_on(async { Arc::new(engine(url).await) });
    let requests: Arc<Vec<Request>> = Arc::new((0..KEYS).map(|key| take(&key.to_string())).collect());
    let client = runtime.block_on(client(url));
    // The first round learns all keys.
    for round in 0..=rounds {
        let rate = run_many(runtime, |task, started| {
            let (mut kv, remembered) = (client.kv_client(), Arc::clone(&remembered));
            async move {
                let mut done = 0;
                while started.elapsed() < LENGTH {
                    let place = place(task, done);
                    let slot = &remembered[place];
                    let (mut count, mut revision) = *slot.lock().unwrap();
                    loop {
                        match put(&mut kv, &format!("many/{place}"), count, revision).await {
                            Ok(at) => break *slot.lock().unwrap() = (count + 1, at),
                            Err(there) => (count, revision) = there,
                        }
                    }
                    done += 1;
                }
                done
            }
        });
        let rate_ours = run_many(runtime, |task, started| {
            let (engine, requests) = (Arc::clone(&engine), Arc::clone(&requests));
            async move {
                let mut done = 0;
                while started.elapsed() < LENGTH {
                    check(&engine, &requests[place(task, done)]).await;
                    done += 1;
                }
                done
            }
        });
        if round > 0 {
            plain.push(rate);
            ours.push(rate_ours);
        }
    }
    show("many: a compare-and-put a check; 128 tasks, 10 k keys", &plain, "/s");
    show("many: limiter", &ours, "/s");
    bars.at_least("many: checks/s, limiter ÷ compare-and-put", ratio(&ours, &plain), 2.5);
}

/// Each task begins elsewhere and goes on by a prime, so that two of them seldom meet.
fn place(task: u64, turn: u64) -> usize {
    usize::try_from((task * 79 + turn * 7_907) % KEYS).unwrap()
}

/// Checks a second of 128 tasks.
fn run_many<F: Future<Output = u64> + Send + 'static>(runtime: &Runtime, task: impl Fn(u64, Started) -> F) -> f64 {
    runtime.block_on(async {
        let started = Started::now();
        let tasks: Vec<_> = (0..128).map(|number| tokio::spawn(task(number, started))).collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.unwrap();
        }
        done as f64 / started.elapsed().as_secs_f64()
    })
}
