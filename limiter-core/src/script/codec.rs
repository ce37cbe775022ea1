//! A batch as the script's keys and argument. The form is told at the head of `head.lua`.

use std::collections::HashMap;

use super::number::{MINUS_ONE, put};
use crate::fold::{Plan, Step, cost_span, terms};
use crate::instant::Instant;
use crate::limit::{Algorithm, Limit};
use crate::request::{Batch, Check, Op, Request};

/// The forms of an argument.
const PLAIN: u8 = 1;
const FULL: u8 = 2;

/// One call of the script.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) plan: Plan,
    pub(super) argument: Vec<u8>,
}

impl Call {
    pub(super) fn of(batch: &Batch, nonce: u64) -> Self {
        let plan = Plan::of(batch);
        let mut argument = Vec::with_capacity(32 + 57 * plan.limits().len() + 48 * batch.requests.len());
        argument.extend_from_slice(&nonce.to_le_bytes());
        if is_plain(&plan, batch) {
            write_plain(&mut argument, &plan, batch);
        } else {
            write_full(&mut argument, &plan, batch);
        }
        Self { plan, argument }
    }
}

/// Whether the plain form can say it: takes of no log, and no key twice.
fn is_plain(plan: &Plan, batch: &Batch) -> bool {
    let checks: usize = plan.steps().iter().map(|step| step.numbers().len()).sum();
    checks == plan.keys().len()
        && batch.requests.iter().all(|request| request.op() == Op::Take)
        && plan.limits().iter().all(|limit| limit.algorithm() != Algorithm::SlidingLog)
}

fn write_plain(argument: &mut Vec<u8>, plan: &Plan, batch: &Batch) {
    // A limit and a cost under it are told once, and named by number from there on.
    let mut numbers: HashMap<(usize, u64), usize> = HashMap::new();
    let (mut terms, mut steps) = (Vec::new(), Vec::new());
    for step in plan.steps() {
        let Some(request) = batch.requests.get(step.request()) else { continue };
        steps.extend_from_slice(&step.count().to_le_bytes());
        steps.push(length(request));
        for (check, (_, limit)) in request.checks().iter().zip(step.numbers()) {
            let next = numbers.len() + 1;
            let number = *numbers.entry((*limit, check.cost)).or_insert(next);
            if number == next {
                put_term(&mut terms, &check.limit);
                put_cost(&mut terms, check);
            }
            put_count(&mut steps, number);
        }
    }
    put_head(argument, PLAIN, batch.at, numbers.len(), plan.steps().len());
    argument.append(&mut terms);
    argument.append(&mut steps);
}

fn write_full(argument: &mut Vec<u8>, plan: &Plan, batch: &Batch) {
    put_head(argument, FULL, batch.at, plan.limits().len(), plan.steps().len());
    for limit in plan.limits() {
        put_term(argument, limit);
    }
    for step in plan.steps() {
        if let Some(request) = batch.requests.get(step.request()) {
            write_step(argument, request, step);
        }
    }
}

fn put_head(argument: &mut Vec<u8>, form: u8, at: Option<Instant>, terms: usize, steps: usize) {
    argument.push(form);
    match at {
        Some(at) => put(argument, at.micros()),
        None => argument.extend_from_slice(&MINUS_ONE),
    }
    put_count(argument, terms);
    put_count(argument, steps);
}

fn put_term(argument: &mut Vec<u8>, limit: &Limit) {
    let (shape, numbers) = terms(limit);
    argument.push(shape);
    for number in numbers {
        put(argument, number);
    }
}

fn put_cost(argument: &mut Vec<u8>, check: &Check) {
    put(argument, check.cost);
    let (long, part) = cost_span(check);
    put(argument, long);
    put(argument, part);
}

/// At most [`MAX_CHECKS`](crate::MAX_CHECKS).
fn length(request: &Request) -> u8 {
    u8::try_from(request.checks().len()).unwrap_or(u8::MAX)
}

fn write_step(argument: &mut Vec<u8>, request: &Request, step: &Step) {
    let (op, taken) = match request.op() {
        Op::Take => (0, 0),
        Op::Peek => (1, 0),
        Op::Refund { taken } => (2, taken.micros()),
        Op::Reset => (3, 0),
    };
    argument.push(op);
    argument.extend_from_slice(&step.count().to_le_bytes());
    argument.push(length(request));
    put(argument, taken);
    for (check, (key, limit)) in request.checks().iter().zip(step.numbers()) {
        // Lua counts from 1.
        put_count(argument, key + 1);
        put_count(argument, limit + 1);
        put_cost(argument, check);
    }
}

/// A batch of 2^32 checks does not fit into memory, let alone into a call.
fn put_count(argument: &mut Vec<u8>, count: usize) {
    argument.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}
