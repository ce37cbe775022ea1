//! The memory engine beside governor, in one run: `cargo bench -p limiter-benches --bench memory`.
//!
//! Both read their own clock at each check, and both are asked for keys that they know, by a key that was built anew: so
//! both compare its bytes. Read the ratios within one run; the nanoseconds are the machine's.

#![allow(clippy::expect_used, reason = "a bench stops on the first thing that is not as it should be")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limiter_core::{Algorithm, Check, Key, Limit, Memory, Op, Outcome, Request};

/// So many a second that no check of the run is refused.
const MANY: u32 = 1_000_000_000;
const SPREAD: usize = 100_000;

fn governor(quota: Quota) -> DefaultKeyedRateLimiter<String> {
    RateLimiter::keyed(quota)
}

fn unbounded() -> Quota {
    Quota::per_second(NonZeroU32::MIN.saturating_add(MANY - 1))
}

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit within the bounds")
}

/// A limit that admits all that a bench can ask.
fn admits_all(algorithm: Algorithm) -> Limit {
    match algorithm {
        // A log holds 100 000 units at most: at 10 M checks a second it has 10 000 in a millisecond.
        Algorithm::SlidingLog => limit("100000/1ms sliding-log"),
        _ => limit(&format!("{MANY}/1s {algorithm}")),
    }
}

fn key(user: usize) -> Key {
    Key::new("tenant-7", "api", [format!("user-{user}")])
}

/// Checks of one key that is known: the first check passes, and all of the run are answered alike.
fn one_key(group: &mut BenchmarkGroup<'_, WallTime>, quota: Quota, limits: impl Fn(Algorithm) -> Limit) {
    group.bench_function("governor keyed", |b| {
        let limiter = governor(quota);
        let known = limiter.check_key(&key(42).as_str().to_owned());
        let key = key(42).as_str().to_owned();
        assert!(known.is_ok(), "the first check passes");
        b.iter(|| limiter.check_key(black_box(&key)).is_ok());
    });
    for algorithm in Algorithm::ALL {
        let limit = limits(algorithm);
        let known = || {
            let memory = Memory::new();
            assert!(memory.take(&key(42), &limit, 1).is_ok_and(|verdict| verdict.allowed()), "the first check passes");
            memory
        };
        let key = key(42);
        group.bench_function(format!("limiter {algorithm}"), |b| {
            let memory = known();
            b.iter(|| memory.take(black_box(&key), &limit, 1).is_ok_and(|verdict| verdict.allowed()));
        });
        group.bench_function(format!("limiter {algorithm}, whole decision"), |b| {
            let memory = known();
            b.iter(|| memory.take(black_box(&key), &limit, 1).map(|verdict| verdict.decision()).ok());
        });
    }
}

fn admitted(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot key, admitted");
    one_key(&mut group, unbounded(), admits_all);
    group.finish();
}

fn denied(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot key, denied");
    let day = Duration::from_hours(24);
    let quota = Quota::with_period(day).expect("a period over 0");
    one_key(&mut group, quota, |algorithm| limit(&format!("1/1d {algorithm}")));
    group.finish();
}

/// Many keys, in an order that no prefetcher guesses: what a check costs when its key is in no cache.
fn many_keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("100k keys");
    // A step that is prime to the number of keys: each is visited once a round.
    let order = || (0..SPREAD).map(|at| at * 61_803 % SPREAD);
    group.bench_function("governor keyed", |b| {
        let limiter = governor(unbounded());
        let keys: Vec<String> = order().map(|user| key(user).as_str().to_owned()).collect();
        let check = |key: &String| limiter.check_key(key).is_ok();
        assert!((0..SPREAD).all(|user| check(&key(user).as_str().to_owned())), "the first checks pass");
        let mut next = keys.iter().cycle();
        b.iter(|| next.next().map(check));
    });
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket] {
        group.bench_function(format!("limiter {algorithm}"), |b| {
            let (memory, limit) = (Memory::new(), admits_all(algorithm));
            let keys: Vec<Key> = order().map(key).collect();
            let check = |key: &Key| memory.take(key, &limit, 1).is_ok_and(|verdict| verdict.allowed());
            assert!((0..SPREAD).all(|user| check(&key(user))), "the first checks pass");
            let mut next = keys.iter().cycle();
            b.iter(|| next.next().map(check));
        });
    }
    group.finish();
}

/// The time of `rounds` checks on each of two threads that start together.
fn two_threads(rounds: u64, check: impl Fn() -> bool + Sync) -> Duration {
    let start = Barrier::new(3);
    thread::scope(|scope| {
        let threads = [(); 2].map(|()| {
            scope.spawn(|| {
                start.wait();
                for _ in 0..rounds {
                    black_box(check());
                }
            })
        });
        start.wait();
        let began = Instant::now();
        for thread in threads {
            thread.join().expect("no check panics");
        }
        began.elapsed()
    })
}

fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot key, two threads");
    group.bench_function("governor keyed", |b| {
        let (limiter, key) = (governor(unbounded()), key(42).as_str().to_owned());
        b.iter_custom(|rounds| two_threads(rounds, || limiter.check_key(black_box(&key)).is_ok()));
    });
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket] {
        group.bench_function(format!("limiter {algorithm}"), |b| {
            let (memory, limit, key) = (Memory::new(), admits_all(algorithm), key(42));
            b.iter_custom(|rounds| {
                two_threads(rounds, || memory.take(black_box(&key), &limit, 1).is_ok_and(|verdict| verdict.allowed()))
            });
        });
    }
    group.finish();
}

/// Four limits that a request has to pass: for us in one step, all or nothing; for governor one after the other.
fn layers(c: &mut Criterion) {
    let mut group = c.benchmark_group("four layers");
    group.bench_function("governor keyed, four checks", |b| {
        let limiter = governor(unbounded());
        let keys: Vec<String> = (0..4).map(|user| key(user).as_str().to_owned()).collect();
        b.iter(|| black_box(&keys).iter().all(|key| limiter.check_key(key).is_ok()));
    });
    group.bench_function("limiter token-bucket, one request", |b| {
        let (memory, limit) = (Memory::new(), admits_all(Algorithm::TokenBucket));
        let request =
            Request::new(Op::Take, (0..4).map(|user| Check::new(key(user), limit, 1))).expect("a sound request");
        b.iter(|| matches!(memory.decide(black_box(&request), None), Outcome::Allowed(_)));
    });
    group.finish();
}

criterion_group!(benches, admitted, denied, many_keys, contended, layers);
criterion_main!(benches);
