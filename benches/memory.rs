//! The memory engine beside governor, in one run: `cargo bench -p limiter-benches --bench memory`.
//!
//! Both read their own clock at each check, and both are asked for a key that they know.

use std::hint::black_box;
use std::num::NonZeroU32;

use criterion::{Criterion, criterion_group, criterion_main};
use governor::{Quota, RateLimiter};
use limiter_core::{Algorithm, Key, Limit, Memory};

/// So many that no check of the run is refused.
const MANY: u32 = 1_000_000_000;

fn hot_key(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot key, admitted");
    group.bench_function("governor keyed", |b| {
        let quota = Quota::per_second(NonZeroU32::MIN.saturating_add(MANY - 1));
        let limiter = RateLimiter::keyed(quota);
        let key = "rl:{tenant-7}:api:user-42".to_owned();
        b.iter(|| black_box(limiter.check_key(black_box(&key)).is_ok()));
    });
    for algorithm in Algorithm::ALL {
        let amount = if algorithm == Algorithm::SlidingLog { 100_000 } else { u64::from(MANY) };
        let period = if algorithm == Algorithm::SlidingLog { "1ms" } else { "1s" };
        let limit: Limit = format!("{amount}/{period} {algorithm}").parse().expect("a limit within the bounds");
        let key = Key::new("tenant-7", "api", ["user-42"]);
        group.bench_function(format!("limiter {algorithm}"), |b| {
            let memory = Memory::new();
            b.iter(|| black_box(memory.take(black_box(&key), &limit, 1).is_ok_and(|verdict| verdict.allowed())));
        });
        group.bench_function(format!("limiter {algorithm}, whole decision"), |b| {
            let memory = Memory::new();
            b.iter(|| black_box(memory.take(black_box(&key), &limit, 1).map(|verdict| verdict.decision()).is_ok()));
        });
    }
    group.finish();
}

criterion_group!(benches, hot_key);
criterion_main!(benches);
