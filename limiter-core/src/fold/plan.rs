//! A batch numbered and folded.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use smallvec::SmallVec;

use crate::key::Key;
use crate::limit::{Algorithm, Limit};
use crate::request::{Batch, Check, Op, Request};

/// The most equal requests that fold into one step, so that a store may multiply their count with what one check costs.
pub const MAX_FOLD: u32 = 1 << 20;

/// A batch's keys and limits, each once, and its steps.
#[derive(Debug, Default)]
pub struct Plan {
    keys: Vec<Key>,
    limits: Vec<Limit>,
    steps: Vec<Step>,
    /// The step that each request is part of.
    pub(super) places: Vec<usize>,
}

/// Equal requests that are decided together.
#[derive(Debug)]
pub struct Step {
    request: usize,
    count: u32,
    numbers: SmallVec<[(usize, usize); 4]>,
}

impl Step {
    /// The first of them, by its index in the batch.
    #[must_use]
    pub const fn request(&self) -> usize {
        self.request
    }

    /// How many they are, 1 … [`MAX_FOLD`].
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The numbers of each check's key and limit, from 0: its index in [`Plan::keys`] and [`Plan::limits`].
    #[must_use]
    pub fn numbers(&self) -> &[(usize, usize)] {
        &self.numbers
    }
}

impl Plan {
    /// Numbers and folds a batch.
    #[must_use]
    pub fn of(batch: &Batch) -> Self {
        let (mut keys, mut limits) = (Numbered::default(), Numbered::default());
        let mut plan = Self::default();
        // The last step at each key.
        let mut last: Vec<usize> = Vec::new();
        for (index, request) in batch.requests.iter().enumerate() {
            if plan.repeats(batch, index, request) {
                continue;
            }
            let checks = request.checks().iter();
            let numbers: SmallVec<[_; 4]> =
                checks.map(|check| (keys.number(&check.key), limits.number(&check.limit))).collect();
            last.resize(keys.order.len(), usize::MAX);
            if let Some(step) = plan.step_to_join(batch, request, &numbers, &last) {
                plan.places.push(step);
                continue;
            }
            for (key, _) in &numbers {
                if let Some(last) = last.get_mut(*key) {
                    *last = plan.steps.len();
                }
            }
            plan.places.push(plan.steps.len());
            plan.steps.push(Step { request: index, count: 1, numbers });
        }
        plan.keys = keys.order.into_iter().cloned().collect();
        plan.limits = limits.order.into_iter().copied().collect();
        plan
    }

    /// The batch's keys, each once, in the order of their first use.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The batch's limits, each once, in the order of their first use.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The steps, in the order in which they have to be decided.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Counts the request in at the step of the one before it if it equals that one, which was the last at all of its keys. It is what
    /// a busy key's calls are made of, and nothing is looked up for it.
    fn repeats(&mut self, batch: &Batch, index: usize, request: &Request) -> bool {
        let Some(before) = index.checked_sub(1) else { return false };
        let Some(&place) = self.places.get(before) else { return false };
        let Some(step) = self.steps.get_mut(place) else { return false };
        if step.count >= MAX_FOLD || !folds(request) || batch.requests.get(before) != Some(request) {
            return false;
        }
        step.count += 1;
        self.places.push(place);
        true
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
        if !folds(request) {
            return None;
        }
        let index = *last.get(numbers.first()?.0)?;
        if numbers.iter().any(|(key, _)| last.get(*key) != Some(&index)) {
            return None;
        }
        let step = self.steps.get_mut(index)?;
        if step.count >= MAX_FOLD || batch.requests.get(step.request) != Some(request) {
            return None;
        }
        step.count += 1;
        Some(index)
    }
}

/// A refund or a reset is no question that many ask at once.
fn folds(request: &Request) -> bool {
    matches!(request.op(), Op::Take | Op::Peek)
}

/// A limit as numbers: its machine's (fixed window 1, sliding log 2, sliding counter 3, the buckets 4), the amount, the period
/// in µs, and how long a full bucket takes to drain, as whole µs and a rest in 1/amount µs.
#[must_use]
pub fn terms(limit: &Limit) -> (u8, [u64; 4]) {
    let shape = match limit.algorithm() {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingLog => 2,
        Algorithm::SlidingCounter => 3,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 4,
    };
    let horizon = limit.horizon();
    (shape, [limit.amount(), limit.period_micros(), horizon.micros, horizon.rest])
}

/// How long the cost of a bucket's check takes: whole µs, and the rest in 1/amount µs. Divided here, since the product of a
/// cost and a period is more than a store's numbers hold. Nothing for the other machines.
#[must_use]
pub fn cost_span(check: &Check) -> (u64, u64) {
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
