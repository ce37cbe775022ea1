//! A batch as the script's keys and argument. The form is told at the head of `head.lua`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use smallvec::SmallVec;

use super::number::{MINUS_ONE, put};
use crate::key::Key;
use crate::limit::{Algorithm, Limit};
use crate::request::{Batch, Check, Op, Request};

/// One call of the script.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The batch's keys, each once, in the order of their first use.
    pub(super) keys: Vec<Key>,
    pub(super) argument: Vec<u8>,
    pub(super) steps: Vec<Step>,
    /// The step that each request is part of.
    pub(super) places: Vec<usize>,
}

/// Equal requests that are decided together.
#[derive(Debug)]
pub(super) struct Step {
    /// The first of them.
    pub(super) request: usize,
    /// How many they are.
    pub(super) count: u32,
    /// The numbers of each check's key and limit.
    numbers: SmallVec<[(usize, usize); 4]>,
}

impl Call {
    pub(super) fn of(batch: &Batch, nonce: u64) -> Self {
        let (mut keys, mut limits) = (Numbered::default(), Numbered::default());
        let mut call = Self::default();
        // The last step at each key.
        let mut last: Vec<usize> = Vec::new();
        for (index, request) in batch.requests.iter().enumerate() {
            let checks = request.checks().iter();
            let numbers: SmallVec<[_; 4]> =
                checks.map(|check| (keys.number(&check.key), limits.number(&check.limit))).collect();
            last.resize(keys.order.len(), usize::MAX);
            if let Some(step) = call.step_to_join(batch, request, &numbers, &last) {
                call.places.push(step);
                continue;
            }
            for (key, _) in &numbers {
                if let Some(last) = last.get_mut(*key) {
                    *last = call.steps.len();
                }
            }
            call.places.push(call.steps.len());
            call.steps.push(Step { request: index, count: 1, numbers });
        }
        call.keys = keys.order.into_iter().cloned().collect();
        call.write(batch, nonce, &limits.order);
        call
    }

    /// Counts the request in at an equal step, if there is one and nobody came after it at any of the keys: then it makes no
    /// difference whether those that did come, at other keys, are decided before the request or after it.
    fn step_to_join(
        &mut self,
        batch: &Batch,
        request: &Request,
        numbers: &[(usize, usize)],
        last: &[usize],
    ) -> Option<usize> {
        // A refund or a reset is no question that many ask at once.
        if !matches!(request.op(), Op::Take | Op::Peek) {
            return None;
        }
        let index = *last.get(numbers.first()?.0)?;
        if numbers.iter().any(|(key, _)| last.get(*key) != Some(&index)) {
            return None;
        }
        let step = self.steps.get_mut(index)?;
        if batch.requests.get(step.request) != Some(request) {
            return None;
        }
        step.count = step.count.checked_add(1)?;
        Some(index)
    }

    fn write(&mut self, batch: &Batch, nonce: u64, limits: &[&Limit]) {
        let argument = &mut self.argument;
        argument.reserve(24 + 33 * limits.len() + 48 * batch.requests.len());
        argument.extend_from_slice(&nonce.to_le_bytes());
        match batch.at {
            Some(at) => put(argument, at.micros()),
            None => argument.extend_from_slice(&MINUS_ONE),
        }
        put_count(argument, limits.len());
        put_count(argument, self.steps.len());
        for limit in limits {
            argument.push(shape(limit.algorithm()));
            let horizon = limit.horizon();
            for number in [limit.amount(), limit.period_micros(), horizon.micros, horizon.rest] {
                put(argument, number);
            }
        }
        for step in &self.steps {
            if let Some(request) = batch.requests.get(step.request) {
                write_step(argument, request, step);
            }
        }
    }
}

fn write_step(argument: &mut Vec<u8>, request: &Request, step: &Step) {
    let (op, taken) = match request.op() {
        Op::Take => (0, 0),
        Op::Peek => (1, 0),
        Op::Refund { taken } => (2, taken.micros()),
        Op::Reset => (3, 0),
    };
    argument.push(op);
    argument.extend_from_slice(&step.count.to_le_bytes());
    // At most `MAX_CHECKS`.
    argument.push(u8::try_from(request.checks().len()).unwrap_or(u8::MAX));
    put(argument, taken);
    for (check, (key, limit)) in request.checks().iter().zip(&step.numbers) {
        // Lua counts from 1.
        put_count(argument, key + 1);
        put_count(argument, limit + 1);
        put(argument, check.cost);
        let (long, part) = time(check);
        put(argument, long);
        put(argument, part);
    }
}

/// How long the cost of a bucket's check takes: whole µs, and the rest in 1/amount µs. Divided here, since the product of a
/// cost and a period is more than a double holds.
fn time(check: &Check) -> (u64, u64) {
    let Check { limit, cost, .. } = check;
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            // A refund may be larger than a bucket; it gives back all there is.
            let span = limit.time_for((*cost).min(limit.capacity()));
            (span.micros, span.rest)
        }
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => (0, 0),
    }
}

/// The number of a machine, in the argument and in what is stored.
fn shape(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingLog => 2,
        Algorithm::SlidingCounter => 3,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 4,
    }
}

/// A batch of 2^32 checks does not fit into memory, let alone into a call.
fn put_count(argument: &mut Vec<u8>, count: usize) {
    argument.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

/// Things that are sent once, and named by number from there on.
struct Numbered<'b, T> {
    numbers: HashMap<&'b T, usize>,
    order: Vec<&'b T>,
}

impl<T> Default for Numbered<'_, T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), order: Vec::new() }
    }
}

impl<'b, T: Eq + Hash> Numbered<'b, T> {
    fn number(&mut self, thing: &'b T) -> usize {
        match self.numbers.entry(thing) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = self.order.len();
                self.order.push(thing);
                *entry.insert(number)
            }
        }
    }
}
