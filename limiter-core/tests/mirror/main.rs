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
mod traces;

use std::collections::HashMap;
use std::env;
use std::sync::Arc;

use limiter_core::{Batch, Cell, Cells, Key, Op, Record, Request, decide};

use self::host::Host;
use self::traces::Trace;

/// The cells that the core decides on.
#[derive(Default)]
struct Model(HashMap<Key, Cell>);

struct Of<'a> {
    model: &'a mut Model,
    request: &'a Request,
}

impl Cells for Of<'_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        self.model.0.entry(self.request.checks()[index].key.clone()).or_default()
    }
}

impl Model {
    fn submit(&mut self, batch: &Batch) -> Vec<Record> {
        let now = batch.at.unwrap();
        let records =
            batch.requests.iter().map(|request| decide(request, now, &mut Of { model: self, request })).collect();
        // A store keeps no version of a key that it does not keep.
        self.0.retain(|_, cell| cell.state.is_some());
        records
    }
}

fn charges(request: &Request, record: &Record) -> bool {
    match request.op() {
        Op::Take => record.allowed && request.checks().iter().any(|check| check.cost > 0),
        Op::Peek => false,
        _ => true,
    }
}

/// Runs one trace; how many requests it had, or what was not as it should be.
fn run(host: &mut Host, seed: u64, batches: u32) -> Result<usize, String> {
    let (mut trace, mut model, mut count) = (Trace::new(seed), Model::default(), 0);
    host.store.borrow_mut().values.clear();
    for number in 0..batches {
        let batch = trace.batch();
        let expected = model.submit(&batch);
        let outcomes = host.submit(&batch);
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
        if !kept || store.values.len() != model.0.len() {
            return Err(format!("seed {seed} batch {number}: the script keeps other keys than the core"));
        }
        count += expected.len();
    }
    Ok(count)
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn the_script_decides_as_the_core() {
    let (cases, first) = (from_env("MIRROR_CASES", 400), from_env("MIRROR_SEED", 1));
    let mut host = Host::new();
    let mut requests = 0;
    for seed in first..first + cases {
        requests += run(&mut host, seed, 40).unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{requests} requests in {cases} traces");
}
