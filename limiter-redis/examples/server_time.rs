//! The server's time for a check, as it counts it itself (`INFO commandstats`): alone, in batches, folded, layered, and on a
//! sliding log of 100,000 entries.
//!
//! `cargo run --release --package limiter-redis --example server_time`

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::float_arithmetic,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a program that measures and prints"
)]

use std::sync::Arc;

use limiter_conformance::store::{Kind, Launch};
use limiter_core::{Backend, Batch, Check, Instant, Key, Limit, Op, Request};
use limiter_redis::{Config, Redis};

struct Bench {
    engine: Redis,
    admin: redis::aio::MultiplexedConnection,
}

impl Bench {
    /// µs and calls that the server counts for the script.
    async fn counted(&mut self) -> (f64, f64) {
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut self.admin).await.unwrap();
        let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
        let field = |name: &str| {
            let value = line.split([':', ',']).find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            value.map_or(0.0, |value| value.parse().unwrap())
        };
        (field("usec"), field("calls"))
    }

    async fn run(&mut self, name: &str, per_call: usize, batches: impl Iterator<Item = Batch>) {
        let before = self.counted().await;
        let mut allowed = 0;
        for batch in batches {
            let outcomes = self.engine.submit(Arc::new(batch)).await;
            allowed += outcomes.iter().filter(|outcome| outcome.record().unwrap().allowed).count();
        }
        let after = self.counted().await;
        let (time, calls) = (after.0 - before.0, after.1 - before.1);
        println!(
            "{name:<52} {:7.2} us a call {:7.2} us a check   ({allowed} allowed of {})",
            time / calls,
            time / calls / per_call as f64,
            calls * per_call as f64
        );
    }
}

fn check(rule: &str, user: usize, limit: &Limit) -> Check {
    Check::new(Key::new("bench", rule, [user.to_string()]), *limit, 1)
}

fn take(rule: &str, user: usize, limit: &Limit) -> Request {
    Request::new(Op::Take, [check(rule, user, limit)]).unwrap()
}

fn batch(requests: Vec<Request>) -> Batch {
    Batch { requests, at: None }
}

#[tokio::main]
async fn main() {
    let store = Launch::new(Kind::Redis).own().start().unwrap();
    let engine = Redis::connect(Config::from_url(store.url()).unwrap()).await.unwrap();
    let client = redis::Client::open(store.url()).unwrap();
    let admin = client.get_multiplexed_async_connection().await.unwrap();
    let mut bench = Bench { engine, admin };
    let limit = |text: &str| text.parse::<Limit>().unwrap();
    let bucket = limit("1000000/1s token-bucket");
    bench.run("(warm-up)", 1, (0..2_000).map(|user| batch(vec![take("w", user, &bucket)]))).await;
    for text in [
        "1000/1h fixed-window",
        "1000/1h sliding-log",
        "1000/1h sliding-counter",
        "1000/1h token-bucket",
        "1000/1h leaky-bucket",
    ] {
        let limit = limit(text);
        bench.run(&format!("one, {text}"), 1, (0..20_000).map(|i| batch(vec![take(text, i % 4_000, &limit)]))).await;
    }
    let narrow = limit("1/1h token-bucket");
    bench.run("one, denied", 1, (0..20_000).map(|_| batch(vec![take("d", 0, &narrow)]))).await;
    for size in [8, 32, 128] {
        let batches = (0..20_000 / size).map(|i| batch((0..size).map(|j| take("s", i * size + j, &bucket)).collect()));
        bench.run(&format!("{size} keys in a call, one limit"), size, batches).await;
    }
    for size in [8, 128, 1024] {
        let batches = (0..2_000).map(|_| batch(vec![take("h", 0, &bucket); size]));
        bench.run(&format!("{size} equal ones of a hot key"), size, batches).await;
    }
    let rules = ["global", "tenant", "user", "endpoint"];
    let texts =
        ["1000000/1s token-bucket", "100000/1m fixed-window", "1000/1m sliding-counter", "1000/1m token-bucket"];
    let layers =
        |i: usize| rules.iter().zip(texts).map(move |(rule, text)| check(rule, i % 500, &text.parse().unwrap()));
    bench
        .run("one of four limits", 1, (0..20_000).map(|i| batch(vec![Request::new(Op::Take, layers(i)).unwrap()])))
        .await;

    // A log of 100,000 entries: filled at given instants, then kept full by steady demand a little over the limit.
    let long = limit("100000/1s sliding-log");
    let at = |micros: u64| Some(Instant::from_micros(1_764_559_423_000_000 + micros).unwrap());
    let one = |micros: u64| Batch { requests: vec![take("log", 0, &long)], at: at(micros) };
    bench.run("log, filled from 0 to 100,000 entries", 1, (0..100_000).map(|i| one(i * 10))).await;
    bench.run("log of 100,000, as many expire as come", 1, (100_000..130_000).map(|i| one(i * 10))).await;
    bench.run("log of 100,000, full: denied", 1, (0..10_000).map(|_| one(1_299_990))).await;
    let large = |i: u64| {
        let check = Check::new(Key::new("bench", "log", ["0"]), long, 20_000 + i % 50_000);
        Batch { requests: vec![Request::new(Op::Peek, [check]).unwrap()], at: at(1_299_990) }
    };
    bench.run("log of 100,000, when would tens of thousands pass", 1, (0..5_000).map(large)).await;
    let key = Key::new("bench", "log", ["0"]);
    let bytes: usize = redis::cmd("MEMORY").arg("USAGE").arg(key.as_str()).query_async(&mut bench.admin).await.unwrap();
    println!("log of 100,000: {bytes} bytes on the server");
}
