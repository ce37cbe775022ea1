//! What the layers cost, in one run: `cargo bench -p limiter-benches --bench layers`.
//!
//! `refused`: a take that is refused, asked of the memory engine, of it behind the deny cache, and of the whole stack; and of a store that
//! takes 45 µs a call, which is what a check on Redis over loopback costs. `passing`: what each layer adds to a take that passes.
//! `outage`: a check while the breaker is open, by failure policy.
//!
//! All is asked on one thread, and what is measured is that thread's time on the processor: so a busy machine shows the same figures.

#![allow(clippy::expect_used, reason = "a bench stops on the first thing that is not as it should be")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use limiter::layer::{Breaker, Deadline, DenyCache, FailurePolicies, FailurePolicy, Fallback, WatchCalls};
use limiter::{
    Backend, BackendExt, Batch, Capabilities, Error, ErrorKind, Key, Limit, Memory, Outcome, Request, Source, Stack,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

/// Memory that takes its time, as a store at the other end of a socket does.
#[derive(Debug)]
struct Distant(Memory);

#[async_trait]
impl Backend for Distant {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let started = on_processor();
        while on_processor().saturating_sub(started) < Duration::from_micros(45) {
            std::hint::spin_loop();
        }
        self.0.submit(batch).await
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

/// Nobody there.
#[derive(Debug)]
struct Dead;

#[async_trait]
impl Backend for Dead {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let error = Error::new("dead", ErrorKind::NotSent, "nobody there");
        vec![Outcome::NotSent(error); batch.requests.len()]
    }

    fn capabilities(&self) -> Capabilities {
        Memory::new().capabilities()
    }
}

/// How long this thread has been on a processor.
fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a time that has passed")
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn take(rule: &str, key: u32, limit: &str) -> Request {
    let limit: Limit = limit.parse().expect("a limit within the bounds");
    Request::take(Key::new("tenant", rule, [key.to_string()]), limit, 1).expect("a sound request")
}

/// Asks for one request after the other, and holds each answer against `due`.
fn ask(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    backend: &dyn Backend,
    requests: &[Request],
    due: impl Fn(bool, Source) -> bool,
) {
    let runtime = runtime();
    let mut turn = requests.iter().cycle();
    group.bench_function(name, |b| {
        b.iter_custom(|each| {
            runtime.block_on(async {
                let started = on_processor();
                for _ in 0..each {
                    let request = turn.next().expect("a cycle has no end");
                    let told = backend.ask(black_box(request.clone())).await.expect("a decision");
                    assert!(due(told.allowed, told.source), "{told:?}");
                }
                on_processor().saturating_sub(started)
            })
        });
    });
}

fn configure<'c>(c: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(500));
    group
}

/// Takes all that the keys have.
fn exhaust(backend: &dyn Backend, requests: &[Request]) {
    runtime().block_on(async {
        for request in requests {
            for _ in 0..2 {
                drop(backend.ask(request.clone()).await.expect("a decision"));
            }
        }
    });
}

fn refused(c: &mut Criterion) {
    let mut group = configure(c, "refused");
    let cache = || DenyCache::builder().max_age(Duration::from_hours(1)).max_keys(200_000);
    for limit in
        ["1/1h fixed-window", "1/1h sliding-log", "1/1h sliding-counter", "1/1h token-bucket", "1/1h leaky-bucket"]
    {
        let requests = [take("api", 0, limit)];
        let cached = cache().wrap(Arc::new(Distant(Memory::new())));
        exhaust(&cached, &requests);
        ask(&mut group, &format!("{limit}, deny cache"), &cached, &requests, |allowed, source| {
            !allowed && source == Source::Cache
        });
    }
    let limit = "1/1h token-bucket";
    for (keys, name) in [(1, "hot key"), (100_000, "100 k keys")] {
        let requests: Vec<Request> = (0..keys).map(|key| take("api", key, limit)).collect();
        let memory = Memory::new();
        exhaust(&memory, &requests);
        ask(&mut group, &format!("{name}, memory engine"), &memory, &requests, |allowed, _| !allowed);
        let cached = cache().wrap(Arc::new(memory));
        exhaust(&cached, &requests);
        ask(&mut group, &format!("{name}, deny cache"), &cached, &requests, |allowed, _| !allowed);
        let stack = Stack::builder().deny_cache(cache()).build(Arc::new(Memory::new()));
        exhaust(&stack, &requests);
        ask(&mut group, &format!("{name}, whole stack"), &stack, &requests, |allowed, _| !allowed);
    }
    let requests = [take("api", 0, limit)];
    let distant = Distant(Memory::new());
    exhaust(&distant, &requests);
    ask(&mut group, "hot key, a store of 45 µs", &distant, &requests, |allowed, _| !allowed);
    group.finish();
}

fn passing(c: &mut Criterion) {
    let mut group = configure(c, "passing");
    let requests = [take("api", 0, "1000000000000/1s token-bucket")];
    let passes = |allowed, source| allowed && source == Source::Store;
    let memory = || -> Arc<dyn Backend> { Arc::new(Memory::new()) };
    ask(&mut group, "memory engine", &*memory(), &requests, passes);
    ask(&mut group, "watch calls", &WatchCalls::new(memory()), &requests, passes);
    ask(&mut group, "deadline", &Deadline::new(memory(), Duration::from_millis(200)), &requests, passes);
    ask(&mut group, "breaker", &Breaker::new(memory()), &requests, passes);
    ask(&mut group, "fallback", &Fallback::new(memory(), FailurePolicies::default()), &requests, passes);
    ask(&mut group, "deny cache", &DenyCache::new(memory()), &requests, passes);
    ask(&mut group, "whole stack", &Stack::new(memory()), &requests, passes);
    group.finish();
}

fn outage(c: &mut Criterion) {
    let mut group = configure(c, "outage");
    let breaker = Breaker::builder().failures(1).pause(Duration::from_hours(1), Duration::from_hours(1));
    let local = FailurePolicy::Local { nodes: NonZeroU32::MIN };
    let stack = Stack::builder().rule("open", FailurePolicy::Open).rule("local", local).breaker(breaker);
    let stack = stack.build(Arc::new(Dead));
    runtime().block_on(async { drop(stack.ask(take("open", 0, "1/1s token-bucket")).await) });
    let requests = |rule| [take(rule, 0, "1000000000000/1s token-bucket")];
    ask(&mut group, "open", &stack, &requests("open"), |allowed, source| allowed && source == Source::Open);
    ask(&mut group, "local", &stack, &requests("local"), |allowed, source| allowed && source == Source::Local);
    group.finish();
}

criterion_group!(benches, refused, passing, outage);
criterion_main!(benches);
