//! The installed functions against the core: what they answer is what [`decide`] answers, request by request.
//!
//! `MIRROR_CASES` says how many traces are run, `MIRROR_SEED` where they begin. A failure names its seed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

#[path = "../../limiter-core/tests/mirror/model.rs"]
mod model;
#[path = "../../limiter-core/tests/mirror/traces.rs"]
mod traces;

use std::collections::HashMap;
use std::env;
use std::sync::Arc;

use limiter_conformance::store::wire::Sql;
use limiter_conformance::store::{Kind, shared};
use limiter_core::{Backend, Batch, Check, Instant, Key, Limit, Op, Request};
use limiter_postgres::{Config, Postgres};

use self::model::Model;
use self::traces::{Random, Trace};

/// An engine on functions whose text was changed, and a way to look at its tables.
struct Host {
    engine: Postgres,
    sql: Sql,
    schema: String,
}

impl Host {
    async fn new(schema: &str, change: impl Fn(String) -> String) -> Self {
        let store = shared(Kind::Postgres).unwrap();
        let mut sql = Sql::connect(store.addr()).unwrap();
        let config =
            Config::from_url(store.url()).unwrap().schema(schema).unlogged(true).migrate(false).sweep_every(None);
        sql.query(&change(config.migration().unwrap())).unwrap();
        let engine = Postgres::connect(config).await.unwrap();
        Self { engine, sql, schema: schema.to_owned() }
    }

    fn rows(&mut self, query: &str) -> Vec<Vec<Option<String>>> {
        self.sql.query(&query.replace("limits", &format!("{}.limits", self.schema))).unwrap()
    }
}

/// Logs whose older entries lie in chunks of so few that each trace has many.
fn short_chunks(text: String) -> String {
    let mut text = text;
    for (long, short) in [
        ("cardinality(cell.ats) > 64", "cardinality(cell.ats) > 3"),
        (
            "cell.ats[1], cell.ats[64], cell.uptos[64], cell.key, cell.ats[: 64], cell.uptos[: 64]",
            "cell.ats[1], cell.ats[3], cell.uptos[3], cell.key, cell.ats[: 3], cell.uptos[: 3]",
        ),
        ("cell.ats := cell.ats[65 :]", "cell.ats := cell.ats[4 :]"),
        ("cell.uptos := cell.uptos[65 :]", "cell.uptos := cell.uptos[4 :]"),
    ] {
        assert_eq!(text.matches(long).count(), 1, "{long}");
        text = text.replace(long, short);
    }
    text
}

/// Asks something about another key too: then no batch is simple, and all go the way of `step.sql`.
fn with_a_question(batch: &Batch) -> Batch {
    let aside = Check::new(Key::new("t", "aside", ["x"]), "5/1s fixed-window".parse().unwrap(), 1);
    let mut requests = batch.requests.clone();
    requests.push(Request::new(Op::Peek, [aside]).unwrap());
    Batch { requests, at: batch.at }
}

/// Takes of another key too: then a batch that is simple is of several keys, and goes the way of `take.sql`.
fn with_a_neighbour(batch: &Batch) -> Batch {
    let aside = Key::new("t", "beside", ["x"]);
    let mut requests = batch.requests.clone();
    requests.push(Request::take(aside, "1000/1s fixed-window".parse().unwrap(), 1).unwrap());
    Batch { requests, at: batch.at }
}

/// Runs one trace; how many requests it had, or what was not as it should be.
async fn run(host: &mut Host, seed: u64) -> Result<usize, String> {
    let (mut trace, mut model, mut count) = (Trace::new(seed), Model::default(), 0);
    host.rows("DELETE FROM limits; DELETE FROM limits_log");
    for number in 0..trace.length {
        let batch = trace.batch();
        let batch = match seed % 3 {
            0 => Arc::new(with_a_question(&batch)),
            1 => Arc::new(with_a_neighbour(&batch)),
            _ => batch,
        };
        let expected = model.submit(&batch);
        let outcomes = host.engine.submit(Arc::clone(&batch)).await;
        if outcomes.len() != expected.len() {
            return Err(format!("seed {seed}: {} outcomes", outcomes.len()));
        }
        for (index, ((request, outcome), expected)) in batch.requests.iter().zip(&outcomes).zip(&expected).enumerate() {
            match outcome.record() {
                Ok(record) if record == expected => trace.learn(request, outcome),
                other => {
                    return Err(format!(
                        "seed {seed} batch {number} request {index}: {request:?}\n server {other:?}\n core   {expected:?}"
                    ));
                }
            }
        }
        count += expected.len();
    }
    let stored: HashMap<String, bool> = host
        .rows(
            "SELECT key, expires - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint < 3500000000 \
             AND expires > 0 FROM limits",
        )
        .into_iter()
        .map(|row| (row[0].clone().unwrap(), row[1].as_deref() == Some("t")))
        .collect();
    if stored.len() != model.0.len() || model.0.keys().any(|key| !stored.contains_key(key.as_str())) {
        return Err(format!("seed {seed}: the server keeps other keys than the core"));
    }
    if stored.values().any(|short| *short) {
        return Err(format!("seed {seed}: a key that a given instant may outlast"));
    }
    let lost = host.rows(
        "SELECT 1 FROM limits_log l LEFT JOIN limits t ON t.key = l.key GROUP BY l.key, t.chunks \
         HAVING count(*) <> coalesce(t.chunks, 0)",
    );
    if !lost.is_empty() {
        return Err(format!("seed {seed}: chunks that no log knows of"));
    }
    Ok(count)
}

/// Runs one trace of a log by itself, which is given back most of what it took: from the row, from a chunk, and from where they meet.
async fn run_log(host: &mut Host, seed: u64) -> Result<(), String> {
    let (mut random, mut model, mut taken) = (Random(seed), Model::default(), vec![1_764_559_423_000_000]);
    let limit: Limit = "40/1s sliding-log".parse().unwrap();
    host.rows("DELETE FROM limits; DELETE FROM limits_log");
    for number in 0..80 {
        let now =
            taken.last().unwrap() + if random.one_in(12) { random.below(1_500_000) } else { random.below(20_000) };
        let (op, cost) = match random.below(8) {
            // The newest more often: then the entry before it is the newest.
            0 | 1 => (Op::Refund { taken: Instant::from_micros(*taken.last().unwrap()).unwrap() }, 1 + random.below(3)),
            2 => (Op::Refund { taken: Instant::from_micros(*random.pick(&taken)).unwrap() }, 1 + random.below(9)),
            3 => (Op::Peek, 1 + random.below(40)),
            _ => (Op::Take, 1 + random.below(2)),
        };
        let request = Request::new(op, [Check::new(Key::new("t", "mirror", ["log"]), limit, cost)]).unwrap();
        let batch = Arc::new(Batch { requests: vec![request], at: Some(Instant::from_micros(now).unwrap()) });
        let expected = model.submit(&batch).remove(0);
        let outcome = host.engine.submit(batch).await.remove(0);
        match outcome.record() {
            Ok(record) if record == &expected => {}
            other => return Err(format!("seed {seed} step {number} {op} of {cost}: {other:?}, the core {expected:?}")),
        }
        if op == Op::Take && expected.allowed {
            taken.push(now);
        }
    }
    Ok(())
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

async fn traces(schema: &str, change: impl Fn(String) -> String) {
    let (cases, first) = (from_env("MIRROR_CASES", 150), from_env("MIRROR_SEED", 1));
    let mut host = Host::new(schema, change).await;
    let mut requests = 0;
    for seed in first..first + cases {
        requests += run(&mut host, seed).await.unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{requests} requests in {cases} traces");
}

#[tokio::test]
async fn the_server_decides_as_the_core() {
    traces("mirror", |text| text).await;
}

#[tokio::test]
async fn the_server_decides_as_the_core_in_short_chunks() {
    traces("mirror_chunks", short_chunks).await;
}

#[tokio::test]
async fn what_a_log_gives_back_is_found_wherever_it_lies() {
    let mut host = Host::new("mirror_log", short_chunks).await;
    for seed in 1..30 {
        run_log(&mut host, seed).await.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Slips as one makes them, in functions with short chunks. Each is found within a thousand traces or so; the number is the
/// trace that found it last, which is tried first.
const SLIPS: &[(u64, &str, &str)] = &[
    // one.sql
    (2, "    IF x < grid THEN", "    IF x <= grid THEN"),
    (23, "WHEN machine = 3 AND grid - x = period THEN y", "WHEN machine = 3 THEN y"),
    (107, "weight := period - greatest(now - x, 0);", "weight := period - (now - x);"),
    (155, "weighted := (z * weight + period - 1) / period;", "weighted := z * weight / period;"),
    (2, "IF z > (9223372036854775807 - period) / weight THEN", "IF false THEN"),
    (65, "    IF y >= amount THEN\n      x := x + 1; y := 0;\n    END IF;\n    IF x > z", "    IF x > z"),
    (65, "least(n, ((horizon - x) * amount + rest - y)", "least(n, ((horizon - x) * amount + rest)"),
    (14, "z := greatest(z, now);\n  ELSE", "z := now;\n  ELSE"),
    (71, "a0 := 0; b0 := 0; c0 := 0;", "NULL;"),
    (
        1,
        "THEN 2 * period ELSE period END),\n      CASE WHEN arg[1] < 0 THEN 0 ELSE clock + 3600000000 END)\n  WHERE",
        "THEN 2 * period ELSE period END), 0)\n  WHERE",
    ),
    // take.sql
    (23, "WHEN shape = 4 OR own < grid THEN 0 ELSE b END", "WHEN shape = 4 OR own <= grid THEN 0 ELSE b END"),
    (94, "WHEN grid - own = period THEN b", "WHEN grid - own >= period THEN b"),
    (451, "period - greatest(now - start, 0) AS weight", "period - (now - start) AS weight"),
    (4, "(before * weight + period - 1) / period", "before * weight / period"),
    (28, "WHEN before <= (9223372036854775807 - period) / weight", "WHEN true"),
    (46, "CASE WHEN b < amount THEN a ELSE a + 1 END AS whole", "a AS whole"),
    (58, "> (c + horizon, rest) THEN c + horizon", "> (now + horizon, rest) THEN now + horizon"),
    (82, "(spare + part) % amount) <= (horizon, rest))", "(spare + part) % amount) < (horizon, rest))"),
    (10, "      WHEN horizon < 4611686018427387904 / amount THEN\n        ", "      WHEN true THEN\n        "),
    (10, "WHEN 4 THEN greatest(c, now) WHEN 3", "WHEN 4 THEN now WHEN 3"),
    (4, "WHEN was = 0 THEN greatest(now - 1, version)", "WHEN was = 0 THEN greatest(now, version)"),
    (28, "CASE WHEN t.shape = u.shape THEN t.b ELSE 0 END AS b", "t.b AS b"),
    (1, "CASE WHEN arg[1] < 0 THEN 0 ELSE clock + 3600000000 END)\n    FROM step", "0)\n    FROM step"),
    // step.sql
    (9, "IF x - x % period < p THEN", "IF x - x % period <= p THEN"),
    (2, "k := k * n;", "k := k;"),
    (1, "EXIT WHEN k = 0;", "EXIT;"),
    (300, "IF taken > now - period THEN", "IF taken >= now - period THEN"),
    (
        1,
        "IF x > now OR x = now AND y > 0 THEN\n            x := x - now - long",
        "IF true THEN\n            x := x - now - long",
    ),
    (
        2,
        "IF y < 0 THEN\n              x := x - 1; y := y + amount;",
        "IF y < 0 THEN\n              x := x - 1; y := 0;",
    ),
    (
        15,
        "cell.version := k + CASE cell.shape WHEN 0 THEN greatest(now - 1, cell.version)",
        "cell.version := k + CASE cell.shape WHEN 0 THEN now - 1",
    ),
    (2, "cell.a := x + k * long + y / amount", "cell.a := x + k * long"),
    (5, "cell.c := u;", "cell.c := cell.c;"),
    (5, "AND (op <> 0 OR k < n) AND cell.shape = 2", "AND k < n AND cell.shape = 2"),
    (3, "gone := gone || cell.key;", "NULL;"),
    (14, "WHERE w.n <= arg[4] OR EXISTS", "WHERE true OR EXISTS"),
    // log.sql
    (37, "l.first_at <= edge ORDER BY", "l.last_at <= edge ORDER BY"),
    (79, "width_bucket(bound - 1, l.uptos) + 1", "width_bucket(bound, l.uptos) + 1"),
    (8, "cell.uptos[size] := cell.b;", "NULL;"),
    (8, "e.upto - cost > before", "e.upto > before"),
    (1, "AND m.last_at < taken)", "AND m.last_at < 0)"),
    (8, "{sunk}(cell, cell.a, cell.b, cell.c, taken - 1)", "{sunk}(cell, cell.a, cell.b, cell.c, taken)"),
    (1, "cell.chunks := cell.chunks - pulled;", "NULL;"),
];

#[tokio::test]
async fn planted_slips_are_caught() {
    let mut missed = Vec::new();
    let from = usize::try_from(from_env("MIRROR_SLIP", 0)).unwrap();
    for (number, (first, right, wrong)) in SLIPS.iter().enumerate().skip(from) {
        let mut host = Host::new(&format!("slip_{number}"), |text| {
            // The names are filled in already.
            let start = text.find("limits_sunk_").unwrap();
            let sunk = format!("\"slip_{number}\".\"{}\"", text[start..].split('"').next().unwrap());
            let log = format!("\"slip_{number}\".\"limits_log\"");
            let [right, wrong] = [right, wrong].map(|part| part.replace("{sunk}", &sunk).replace("{log}", &log));
            let text = short_chunks(text);
            assert_eq!(text.matches(&right).count(), 1, "{right}");
            text.replace(&right, &wrong)
        })
        .await;
        // First the trace that is known to find it.
        let known = [(false, *first)].into_iter();
        let mut traces = known.chain((1..30).map(|seed| (true, seed))).chain((1..1_500).map(|seed| (false, seed)));
        let caught = loop {
            let Some((of_logs, seed)) = traces.next() else { break None };
            let held = if of_logs { run_log(&mut host, seed).await } else { run(&mut host, seed).await.map(drop) };
            if held.is_err() {
                break Some((of_logs, seed));
            }
        };
        if caught.is_none() {
            missed.push(right);
        }
        println!("{caught:?} {right}");
    }
    assert_eq!(missed, Vec::<&&str>::new(), "of {}", SLIPS.len());
}

/// One taking; the server against the core.
async fn take(host: &Host, model: &mut Model, limit: &Limit, now: u64, op: Op, cost: u64) {
    let request = Request::new(op, [Check::new(Key::new("t", "mirror", ["log"]), *limit, cost)]).unwrap();
    let batch = Arc::new(Batch { requests: vec![request], at: Some(Instant::from_micros(now).unwrap()) });
    let expected = model.submit(&batch).remove(0);
    assert_eq!(host.engine.submit(batch).await[0].record().unwrap(), &expected, "{op} at {now}");
}

#[tokio::test]
async fn a_long_log_is_exact_and_its_row_stays_short() {
    let mut host = Host::new("mirror_long", |text| text).await;
    let limit: Limit = "2000/1s sliding-log".parse().unwrap();
    let (mut model, mut random, mut now) = (Model::default(), Random(7), 1_764_559_423_000_000);
    let mut longest = 0;
    for step in 0..5_000_u64 {
        now += 450 + random.below(7);
        let op = match step % 500 {
            499 => Op::Refund { taken: Instant::from_micros(now - random.below(900_000)).unwrap() },
            250 => Op::Peek,
            _ => Op::Take,
        };
        let cost = match op {
            Op::Refund { .. } => 1 + random.below(90),
            Op::Peek => 1 + random.below(2_000),
            _ => 1,
        };
        take(&host, &mut model, &limit, now, op, cost).await;
        if step % 100 == 0 {
            let rows = host.rows("SELECT pg_column_size(t.*) FROM limits t");
            longest = longest.max(rows[0][0].as_ref().unwrap().parse().unwrap());
        }
    }
    let chunks: u64 = host.rows("SELECT count(*) FROM limits_log")[0][0].as_ref().unwrap().parse().unwrap();
    println!("a row of {longest} bytes at most, {chunks} chunks");
    assert!(longest < 1_300, "a row of {longest} bytes");
    assert!((20..=33).contains(&chunks), "{chunks} chunks of some 2 000 entries");
    // Another machine takes the key over, by the way of `one.sql`: nothing of the log stays.
    let bucket: Limit = "5/1s token-bucket".parse().unwrap();
    take(&host, &mut model, &bucket, now, Op::Take, 1).await;
    assert_eq!(host.rows("SELECT count(*) FROM limits_log")[0][0].as_deref(), Some("0"));
    assert_eq!(host.rows("SELECT chunks, ats, uptos FROM limits")[0], [Some("0".to_owned()), None, None]);
}
