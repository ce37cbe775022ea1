//! The script against the core, in process: what it answers is what [`decide`] answers, request by request.
//!
//! `MIRROR_CASES` says how many traces are run, `MIRROR_SEED` where they begin. A failure names its seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::float_arithmetic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be, and stands in for a store that has only doubles"
)]

mod host;
mod model;
mod traces;

use std::env;
use std::sync::Arc;

use limiter_core::script::TEXT;
use limiter_core::{Batch, Cell, Instant, Key, Limit, Op, Record, Request, decide};

use self::host::Host;
use self::model::Model;
use self::traces::{Random, Trace};

fn charges(request: &Request, record: &Record) -> bool {
    match request.op() {
        Op::Take => record.allowed && request.checks().iter().any(|check| check.cost > 0),
        Op::Peek => false,
        _ => true,
    }
}

/// Runs one trace; how many requests it had, or what was not as it should be.
fn run(host: &mut Host, seed: u64) -> Result<usize, String> {
    let (mut trace, mut model, mut count) = (Trace::new(seed), Model::default(), 0);
    host.store.borrow_mut().values.clear();
    for number in 0..trace.length {
        let batch = trace.batch();
        let expected = model.submit(&batch);
        let outcomes = host.submit(&batch).map_err(|failure| format!("seed {seed} batch {number}: {failure}"))?;
        if outcomes.len() != expected.len() {
            return Err(format!("seed {seed}: {} outcomes", outcomes.len()));
        }
        for (index, ((request, outcome), expected)) in batch.requests.iter().zip(&outcomes).zip(&expected).enumerate() {
            match outcome.record() {
                Ok(record) if record == expected => trace.learn(request, outcome),
                other => {
                    return Err(format!(
                        "seed {seed} batch {number} request {index}: {request:?}\n script {other:?}\n core   {expected:?}"
                    ));
                }
            }
        }
        let store = host.store.borrow();
        if store.writes > 0 && !batch.requests.iter().zip(&expected).any(|(request, record)| charges(request, record)) {
            return Err(format!("seed {seed} batch {number}: a write though nothing was charged"));
        }
        let kept = model.0.keys().all(|key| store.values.contains_key(key.as_str().as_bytes()));
        if store.values.keys().any(|key| store.lives[key] < 3_600_000) {
            return Err(format!("seed {seed} batch {number}: a key that a given instant may outlast"));
        }
        if !kept || store.values.len() != model.0.len() {
            return Err(format!("seed {seed} batch {number}: the script keeps other keys than the core"));
        }
        count += expected.len();
    }
    Ok(count)
}

/// The inverse of a number modulo another, if there is one.
fn inverse(number: u64, modulus: u64) -> Option<u64> {
    let (mut rest, mut factor) = ((i128::from(modulus), i128::from(number)), (0, 1));
    while rest.1 != 0 {
        let times = rest.0 / rest.1;
        rest = (rest.1, rest.0 - times * rest.1);
        factor = (factor.1, factor.0 - times * factor.1);
    }
    (rest.0 == 1).then(|| u64::try_from(factor.0.rem_euclid(i128::from(modulus))).unwrap())
}

/// Compares fractions that differ by as little as they can, where a product of doubles is off by millions:
/// previous x weight is one more than room x period, or as much, or one less.
fn fractions(host: &Host) -> Result<(), String> {
    let fits = host.machine(3);
    let mut random = Random(1);
    for _ in 0..2_000 {
        let period = 900_000_000_000 + random.below(100_000_000_000);
        let limit: Limit = format!("1000000000000/{period}us sliding-counter").parse().unwrap();
        let weight = 1 + random.below(period);
        let Some(previous) = inverse(weight, period) else { continue };
        for previous in [previous, period - previous, period] {
            let share = u128::from(previous) * u128::from(weight);
            let room = u64::try_from((share + 1) / u128::from(period)).unwrap();
            let expected = share <= u128::from(room) * u128::from(period);
            let start = period * (1 + random.below(50));
            let Some(current) = limit.amount().checked_sub(room + 1) else { continue };
            let state = (start, current, previous);
            let answer = fits(state, &limit, start + period - weight);
            if answer != u64::from(expected) {
                return Err(format!("{previous} x {weight} / {period} <= {room}: {answer}"));
            }
        }
    }
    Ok(())
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Slips as one makes them. Each is found within a few hundred traces.
const SLIPS: &[(&str, &str)] = &[
    // Fixed window.
    ("if start < current then\n    return current, 0", "if start <= current then\n    return current, 0"),
    ("floor((limit.amount - count) / cost)", "floor((limit.amount - count) / cost + 1e-9)"),
    ("return current, max(0, units - cost), 0", "return current, units - cost, 0"),
    // Sliding log.
    ("AT, edge + 1)", "AT, edge)"),
    ("if taken <= edge then", "if taken < edge then"),
    ("index = search(log, index, UPTO, sunk + excess)", "index = search(log, index, UPTO, sunk + excess + 1)"),
    ("local at, upto = max(now, log.newest)", "local at, upto = now"),
    ("    log.newest, log.sum = entry(log, count - 1)\n    log.count = count", "    log.count = count"),
    // Sliding counter.
    ("if grid - start == period then", "if grid - start >= period then"),
    ("if share < 2 ^ 53 and whole < 2 ^ 53 then", "if true then"),
    ("if a == 0 then\n      return true", "if a == 0 then\n      return c == 0"),
    ("max(0, now - start)", "(now - start)"),
    // Bucket.
    ("if rest >= amount then", "if rest > amount then"),
    ("ahead, rest = ahead + 1, 0", "ahead, rest = ahead, 0"),
    ("if n % 2 == 1 then", "if n % 2 == 0 then"),
    ("part <= spare) and 1", "part < spare) and 1"),
    ("return latest, debt - long - 1, spare", "return latest, debt - long, spare"),
    ("if owed == 0 and spare == 0 then", "if false then"),
    ("longs[top] <= limit.horizon", "longs[top] < 1"),
    // The whole.
    ("and max(now - 1, cell.version)", "and now - 1"),
    ("if op ~= TAKE or k < n then", "if k < n then"),
    ("    if cell.shape == limit.shape then\n      cell.a", "    if true then\n      cell.a"),
    ("k = k * n", "k = k"),
    ("elseif cell.bumped then", "elseif false then"),
    ("given and max(life, GIVEN) or life", "life"),
    // The plain form.
    ("if long < room or long == room and part <= limit.part then", "if long < room then"),
    ("(version or max(now - 1, 0)) + k", "(version or max(now - 1, 0)) + 1"),
    ("    if is ~= shape then", "    if false then"),
    ("          if k < n then", "          if false then"),
    ("now, term.cost, term.long, term.rest, k)", "now, term.cost, term.long, term.rest, n)"),
    ("given and max(left, GIVEN) or left", "left"),
];

#[test]
fn planted_slips_are_caught() {
    let missed = SLIPS.iter().filter(|(right, wrong)| {
        assert_eq!(TEXT.matches(right).count(), 1, "{right}");
        let mut host = Host::of(&TEXT.replace(right, wrong));
        fractions(&host).is_ok() && (1..400).all(|seed| run(&mut host, seed).is_ok())
    });
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<&(&str, &str)>::new(), "of {}", SLIPS.len());
}

#[test]
fn fractions_are_compared_exactly() {
    fractions(&Host::new()).unwrap();
}

/// One taking of one unit; the script against the core.
fn take(host: &mut Host, model: &mut Model, limit: &Limit, now: u64, cost: u64) -> Record {
    let request = Request::take(Key::new("t", "mirror", ["log"]), *limit, cost).unwrap();
    let batch = Arc::new(Batch { requests: vec![request], at: Some(Instant::from_micros(now).unwrap()) });
    let expected = model.submit(&batch).remove(0);
    assert_eq!(host.submit(&batch).unwrap()[0].record().unwrap(), &expected, "at {now}");
    expected
}

#[test]
fn a_long_log_costs_what_expires() {
    let length = from_env("MIRROR_LOG", 4_000);
    let limit: Limit = format!("{length}/1s sliding-log").parse().unwrap();
    let (mut host, mut model, mut random) = (Host::new(), Model::default(), Random(7));
    let (mut now, mut reads, mut moved, mut largest, mut calls) = (1_764_559_423_000_000, 0, 0, 0, 0);
    for call in 0..4 * length {
        // Three windows of steady demand, a little over the limit; then pauses in which more and more expires.
        now += if call < 3 * length {
            1_000_000 / length - random.below(2)
        } else {
            random.below(1_500_000) >> random.below(20)
        };
        let cost = if random.one_in(length / 4) { random.below(length / 8) } else { 1 };
        take(&mut host, &mut model, &limit, now, cost);
        let store = host.store.borrow();
        reads += store.reads;
        moved += store.moved;
        calls += 1;
        largest = largest.max(store.values.values().map(Vec::len).sum());
    }
    println!("{calls} calls, {reads} reads, {} bytes a call, at most {largest} bytes kept", moved / calls);
    assert!(u64::from(reads) < 12 * 4 * length, "{reads} reads");
    assert!(moved < 2_000 * calls, "{moved} bytes moved");
    assert!(largest < 50 + 16 * (2 * usize::try_from(length).unwrap() + 32), "{largest} bytes kept");
}

#[test]
fn the_sums_of_a_log_that_never_empties_are_brought_back() {
    let limit: Limit = "100000/1s sliding-log".parse().unwrap();
    let (mut host, mut model) = (Host::new(), Model::default());
    for step in 0..100 {
        take(&mut host, &mut model, &limit, 1_000_000 + step * 20_000, 1_000);
        if step == 40 {
            // As after years of full demand: all sums are as much larger.
            let mut store = host.store.borrow_mut();
            let value = store.values.values_mut().next().unwrap();
            let count = (value.len() - 50) / 16;
            for at in [18, 26].into_iter().chain((0..count).map(|entry| 58 + 16 * entry)) {
                let sum = f64::from_le_bytes(value[at..at + 8].try_into().unwrap());
                value[at..at + 8].copy_from_slice(&(sum + 4_503_599_627_370_496.0 - 45_000.0).to_le_bytes());
            }
        }
    }
    let store = host.store.borrow();
    let value = store.values.values().next().unwrap();
    assert!(f64::from_le_bytes(value[18..26].try_into().unwrap()) < 1e6, "the sum");
}

#[test]
fn a_key_lives_as_long_as_its_state_on_the_stores_clock() {
    let limits = [
        "7/13s fixed-window",
        "5/1s sliding-log",
        "7/13s sliding-counter",
        "7/13s token-bucket",
        "1000000/1s leaky-bucket",
    ];
    for limit in limits.map(|limit| limit.parse::<Limit>().unwrap()) {
        let (mut host, mut cell) = (Host::new(), Cell::default());
        for now in [1_764_559_423_123_456, 1_764_559_423_123_457, 1_764_559_424_000_000, 1_764_559_436_999_999] {
            host.store.borrow_mut().now = now;
            let request = Request::take(Key::new("t", "mirror", ["life"]), limit, 1).unwrap();
            let expected = decide(&request, Instant::from_micros(now).unwrap(), &mut cell);
            let batch = Arc::new(Batch::of(request));
            assert_eq!(host.submit(&batch).unwrap()[0].record().unwrap(), &expected, "{limit}");
            let left = cell.state.as_ref().unwrap().reset_at(&limit).micros() - now;
            let life = host.store.borrow().lives.values().copied().next().unwrap();
            assert_eq!(life, left.div_ceil(1_000) + 1_000, "{limit}: {left} us are left");
        }
    }
}

#[test]
fn the_script_decides_as_the_core() {
    let (cases, first) = (from_env("MIRROR_CASES", 400), from_env("MIRROR_SEED", 1));
    let mut host = Host::new();
    let mut requests = 0;
    for seed in first..first + cases {
        requests += run(&mut host, seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{requests} requests in {cases} traces");
}
