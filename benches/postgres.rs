//! The Postgres engine beside what a service would write by hand, in one run on one server with its disk in use:
//! `cargo bench -p limiter-benches --bench postgres`.
//!
//! With `-- ROUNDS SECONDS` for other than 5 rounds of 2 s. Read the ratios: absolute figures are the machine's, and change with what
//! else runs on it.

#![allow(clippy::expect_used, reason = "a bench stops on the first thing that is not as it should be")]

use std::env;
use std::sync::{Arc, Once};
use std::time::Duration;

use limiter::layer::GroupCommit;
use limiter::{Backend, BackendExt, Batch, CheckError, Key, Limit, Request};
use limiter_benches::{Bars, Rounds, median_wait, rate};
use limiter_conformance::load::{Load, closed};
use limiter_conformance::store::{Kind, Launch};
use limiter_postgres::{Config, Durability, Postgres};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor, Row};
use tokio::sync::Mutex;

const KEYS: u64 = 100_000;

/// The keys one after the other, a prime apart, so that two tasks seldom meet.
fn key(turn: u64, keys: u64) -> u64 {
    turn.wrapping_mul(7_919) % keys
}

fn request(number: u64) -> Request {
    // Always admitted, hence always written.
    let limit: Limit = "1000000000/1s token-bucket".parse().expect("a limit within the bounds");
    Request::take(Key::new("t", "bench", [number.to_string()]), limit, 1).expect("a sound request")
}

/// By hand: one row, one statement.
const UPSERT: &str = "INSERT INTO by_hand (key, tat, rest) VALUES ($1, $2, 0) \
    ON CONFLICT (key) DO UPDATE SET tat = greatest(by_hand.tat, $2) + 1 RETURNING tat";

async fn upsert(connection: &mut PgConnection, number: u64) -> bool {
    let query = sqlx::query(UPSERT).bind(request_key(number)).bind(1_i64);
    query.fetch_one(connection).await.is_ok()
}

fn request_key(number: u64) -> String {
    format!("rl:{{t}}:bench:{number}")
}

/// By hand: a transaction, a lock, a decision, a write.
async fn transaction(pool: &PgPool, number: u64) -> Result<bool, sqlx::Error> {
    let mut open = pool.begin().await?;
    let query = sqlx::query("SELECT tat, rest FROM by_hand WHERE key = $1 FOR UPDATE").bind(request_key(number));
    let row = query.fetch_one(&mut *open).await?;
    let (tat, rest): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let query = sqlx::query("UPDATE by_hand SET tat = $2, rest = $3 WHERE key = $1");
    open.execute(query.bind(request_key(number)).bind(tat + 1).bind(rest)).await?;
    open.commit().await?;
    Ok(true)
}

/// The first failure of the run; how many there were is told beside the figures.
fn tell_once(error: &CheckError) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| println!("the first check that failed: {error}"));
}

async fn checks(backend: &Arc<dyn Backend>, tasks: u32, keys: u64, span: Duration) -> Load {
    let backend = Arc::clone(backend);
    closed(tasks, span, move |turn| {
        let backend = Arc::clone(&backend);
        async move {
            let answer = backend.ask(request(key(turn, keys))).await;
            answer.inspect_err(tell_once).is_ok_and(|decisions| decisions.allowed)
        }
    })
    .await
}

async fn transactions(pool: &PgPool, tasks: u32, keys: u64, span: Duration) -> Load {
    let pool = pool.clone();
    closed(tasks, span, move |turn| {
        let pool = pool.clone();
        async move { transaction(&pool, key(turn, keys)).await.unwrap_or(false) }
    })
    .await
}

async fn fill(pool: &PgPool, engine: &Postgres) {
    pool.execute(
        "CREATE TABLE by_hand (key text PRIMARY KEY, tat bigint NOT NULL, rest bigint NOT NULL) WITH (fillfactor = 60)",
    )
    .await
    .expect("a table");
    let query = "INSERT INTO by_hand SELECT 'rl:{t}:bench:' || n, 1, 0 FROM generate_series(0, 99999) AS n";
    pool.execute(query).await.expect("rows");
    for first in (0..KEYS).step_by(1_000) {
        let requests = (first..first + 1_000).map(request).collect();
        let outcomes = engine.submit(Arc::new(Batch { requests, at: None })).await;
        assert!(outcomes.iter().all(|outcome| outcome.record().is_ok_and(|record| record.allowed)));
    }
    pool.execute("VACUUM ANALYZE").await.expect("statistics");
}

/// What runs against what: a transaction by hand, the engine as it is, and behind a group commit of some lanes.
struct Bench {
    url: String,
    pool: PgPool,
    engine: Arc<dyn Backend>,
    grouped: Vec<(String, Arc<dyn Backend>)>,
    rounds: u64,
    span: Duration,
}

const BY_HAND: &str = "BEGIN … COMMIT, pool of 16";
const ONCE: &str = "limiter, a call per check";

impl Bench {
    async fn alone(&self, bars: &mut Bars) {
        let connection = Arc::new(Mutex::new(PgConnection::connect(&self.url).await.expect("a connection")));
        let mut table = Rounds::default();
        let Some((name, grouped)) = self.grouped.last() else { return };
        for _ in 0..self.rounds {
            let held = Arc::clone(&connection);
            let upsert = move |turn| {
                let held = Arc::clone(&held);
                async move { upsert(&mut *held.lock().await, key(turn, KEYS)).await }
            };
            table.add("upsert on a held connection", closed(1, self.span, upsert).await);
            table.add(ONCE, checks(&self.engine, 1, KEYS, self.span).await);
            table.add(name, checks(grouped, 1, KEYS, self.span).await);
        }
        table.print("100 k keys, 1 task");
        let ratio = |variant: &str| table.ratio(variant, "upsert on a held connection", median_wait);
        bars.at_most("1 task: p50, a call per check ÷ upsert", ratio(ONCE), 1.5);
        bars.at_most("1 task: p50, grouped ÷ upsert", ratio(name), 1.5);
    }

    async fn together(&self, keys: u64, tasks: u32, bars: &mut Bars) {
        let mut table = Rounds::default();
        for _ in 0..self.rounds {
            table.add(BY_HAND, transactions(&self.pool, tasks, keys, self.span).await);
            table.add(ONCE, checks(&self.engine, tasks, keys, self.span).await);
            for (name, grouped) in &self.grouped {
                table.add(name, checks(grouped, tasks, keys, self.span).await);
            }
        }
        let title = format!("{}, {tasks} tasks", if keys == 1 { "one hot key" } else { "100 k keys" });
        table.print(&title);
        let bar = if keys == 1 { 50.0 } else { 8.0 };
        for (name, _) in &self.grouped {
            let ratio = table.ratio(name, BY_HAND, rate);
            bars.at_least(format!("{title}: {name} ÷ BEGIN … COMMIT"), ratio, bar);
        }
    }
}

fn main() {
    let mut numbers = env::args().filter_map(|argument| argument.parse().ok());
    let (rounds, seconds) = (numbers.next().unwrap_or(5), numbers.next().unwrap_or(2));
    let store = Launch::new(Kind::Postgres).option("fsync", "on").own().start().expect("a server");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = Config::from_url(store.url()).expect("a sound URL").durability(Durability::On);
        let engine = Postgres::connect(config).await.expect("an engine");
        let pool =
            PgPoolOptions::new().min_connections(16).max_connections(16).connect(store.url()).await.expect("a pool");
        fill(&pool, &engine).await;
        let engine: Arc<dyn Backend> = Arc::new(engine);
        // Fewer lanes make larger batches and fewer commits; more of them keep both the client and the server at work.
        let lanes = |lanes: usize| -> (String, Arc<dyn Backend>) {
            let grouped = GroupCommit::builder().lanes(lanes).wrap(Arc::clone(&engine));
            (format!("limiter, grouped, lanes: {lanes}"), Arc::new(grouped))
        };
        let grouped = [1, 2, 4].map(lanes).into();
        let span = Duration::from_secs(seconds);
        let bench = Bench { url: store.url().to_owned(), pool, engine: Arc::clone(&engine), grouped, rounds, span };
        let mut bars = Bars::default();
        bench.alone(&mut bars).await;
        for (keys, tasks) in [(KEYS, 128), (1, 128), (KEYS, 1024)] {
            bench.together(keys, tasks, &mut bars).await;
        }
        bars.print();
    });
}
