//! The group commit layer, with and without, in one run: `cargo bench -p limiter-benches --bench group_commit`.
//!
//! `free`: a store that costs nothing, all on one thread. What the layer adds is its whole cost per check.
//! `server`: a store that decides one call at a time in a thread of its own, 20 µs a call and 5 µs for each run of equal requests in
//! it: about what a Redis script costs. What the layer saves is what a store gains.

#![allow(clippy::expect_used, reason = "a bench stops on the first thing that is not as it should be")]

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant as Started};

use async_trait::async_trait;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use limiter::layer::GroupCommit;
use limiter::{
    Algorithm, Atomicity, Backend, BackendExt, Batch, Capabilities, ClockSource, Instant, Key, Layer, Limit, Outcome,
    Record, Request, Scope, View,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

const CALL: Duration = Duration::from_micros(20);
const RUN: Duration = Duration::from_micros(5);
const TASKS: [u64; 4] = [1, 16, 128, 1024];

/// Everything passes.
fn outcomes(batch: &Batch) -> Vec<Outcome> {
    let layer = Layer { view: View::fresh(Algorithm::TokenBucket), version: 0 };
    batch.requests.iter().map(|_| Outcome::decided(Record::new(true, Instant::EPOCH, [layer]))).collect()
}

const fn capabilities() -> Capabilities {
    Capabilities::new("fake", ClockSource::Store, Scope::Cluster, Atomicity::AllKeys)
}

#[derive(Debug)]
struct Free;

#[async_trait]
impl Backend for Free {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        outcomes(&batch)
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }
}

struct Server(mpsc::Sender<(Arc<Batch>, oneshot::Sender<Vec<Outcome>>)>);

impl Server {
    fn start() -> Self {
        let (calls, called) = mpsc::channel::<(Arc<Batch>, oneshot::Sender<Vec<Outcome>>)>();
        thread::spawn(move || {
            for (batch, answer) in called {
                let started = Started::now();
                let runs = batch.requests.chunk_by(|one, next| one == next).count();
                let cost = CALL + RUN * u32::try_from(runs).unwrap_or(u32::MAX);
                while started.elapsed() < cost {
                    std::hint::spin_loop();
                }
                drop(answer.send(outcomes(&batch)));
            }
        });
        Self(calls)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

#[async_trait]
impl Backend for Server {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.0.send((batch, answer)).expect("the server lives as long as its calls");
        answered.await.expect("it answers each")
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }
}

/// Takes of `keys` different keys.
fn requests(keys: u32) -> Arc<[Request]> {
    let limit: Limit = "1000/1s token-bucket".parse().expect("a limit within the bounds");
    let take = |key: u32| Request::take(Key::new("t", "api", [key.to_string()]), limit, 1).expect("a sound request");
    (0..keys).map(take).collect()
}

/// Time for `tasks` tasks to ask `each` times.
fn run(runtime: &Runtime, backend: &Arc<dyn Backend>, requests: &Arc<[Request]>, tasks: u64, each: u64) -> Duration {
    runtime.block_on(async {
        let started = Started::now();
        let asking: Vec<_> = (0..tasks)
            .map(|task| {
                let (backend, requests) = (Arc::clone(backend), Arc::clone(requests));
                tokio::spawn(async move {
                    for turn in 0..each {
                        // Each task begins elsewhere and goes on by a prime, so that two of them seldom meet.
                        let place = usize::try_from(task * 7_919 + turn * 7_907).unwrap_or_default() % requests.len();
                        let request = requests.get(place).expect("a place below the length");
                        assert!(backend.ask(request.clone()).await.is_ok_and(|decisions| decisions.allowed));
                    }
                })
            })
            .collect();
        for task in asking {
            task.await.expect("a task that ends");
        }
        started.elapsed()
    })
}

fn compare(group: &mut BenchmarkGroup<'_, WallTime>, runtime: &Runtime, store: &Arc<dyn Backend>) {
    let grouped = |lanes| -> Arc<dyn Backend> { Arc::new(GroupCommit::builder().lanes(lanes).wrap(Arc::clone(store))) };
    let stacks = [("alone", Arc::clone(store)), ("1 lane", grouped(1)), ("4 lanes", grouped(4))];
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for (keys, name) in [(1, "hot key"), (100_000, "100 k keys")] {
        let requests = requests(keys);
        for tasks in TASKS {
            group.throughput(Throughput::Elements(tasks));
            for (stack, backend) in &stacks {
                group.bench_function(format!("{name}, {tasks} tasks, {stack}"), |b| {
                    b.iter_custom(|each| run(runtime, backend, &requests, tasks, each));
                });
            }
        }
    }
}

fn free(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let store: Arc<dyn Backend> = Arc::new(Free);
    let mut group = c.benchmark_group("free");
    compare(&mut group, &runtime, &store);
    group.finish();
}

fn server(c: &mut Criterion) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let store: Arc<dyn Backend> = Arc::new(Server::start());
    let mut group = c.benchmark_group("server");
    compare(&mut group, &runtime, &store);
    group.finish();
}

criterion_group!(benches, free, server);
criterion_main!(benches);
