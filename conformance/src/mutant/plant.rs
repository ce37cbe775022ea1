//! What each fault changes in a decision.

use limiter_core::{
    Bucket, Cell, Check, FixedWindow, Instant, Layer, MAX_BURST, Op, Outcome, Record, Request, SlidingCounter,
    SlidingLog, State, View,
};

use super::Fault;

/// What the faulty engine asks in place of a request.
pub(super) fn request(fault: Option<Fault>, request: &Request, now: Instant) -> Option<Request> {
    let checks = request.checks().iter().cloned();
    let (op, checks): (Op, Vec<Check>) = match (fault?, request.op()) {
        (Fault::RefundTwice, op @ Op::Refund { .. }) => {
            (op, checks.map(|check| Check { cost: (check.cost * 2).min(MAX_BURST), ..check }).collect())
        }
        (Fault::LateRefund, Op::Refund { .. }) => (Op::Refund { taken: now }, checks.collect()),
        (Fault::PeekTakes, Op::Peek) => (Op::Take, checks.collect()),
        _ => return None,
    };
    Request::new(op, checks).ok()
}

/// What is wrong with the states before they are decided on.
pub(super) fn before(fault: Option<Fault>, request: &Request, now: Instant, cells: &mut [Cell]) {
    for (check, cell) in request.checks().iter().zip(cells) {
        match (fault, &mut cell.state) {
            (Some(Fault::ExpiryRenewed), Some(State::FixedWindow(window))) => {
                let period = u64::try_from(check.limit.period().as_micros()).unwrap_or(u64::MAX);
                window.start = now.micros() - now.micros() % period;
            }
            (Some(Fault::BackwardIsFresh), Some(state)) => {
                let written = match state {
                    State::FixedWindow(FixedWindow { start, .. })
                    | State::SlidingCounter(SlidingCounter { start, .. }) => *start,
                    State::SlidingLog(log) => log.entries().last().map_or(0, |(at, _)| at),
                    State::Bucket(Bucket { seen, .. }) => *seen,
                    _ => 0,
                };
                if now.micros() < written {
                    cell.state = None;
                }
            }
            _ => {}
        }
    }
}

/// A verdict of the engine's own, where it is not the core's.
pub(super) fn verdict(
    fault: Option<Fault>,
    request: &Request,
    now: Instant,
    before: &[Cell],
    cells: &mut [Cell],
) -> Option<Record> {
    let ([check], [old], [cell]) = (request.checks(), before, cells) else { return None };
    if request.op() != Op::Take || check.cost == 0 {
        return None;
    }
    let view = old
        .state
        .as_ref()
        .map_or(View::fresh(check.limit.algorithm()), |state| state.view(&check.limit, now, check.cost));
    if view.admits(&check.limit, now, check.cost) {
        return None;
    }
    let admits = match fault? {
        Fault::OffByOne => view.admits(&check.limit, now, check.cost - 1),
        Fault::FlooredCounter => floored(&view, check, now),
        _ => false,
    };
    if !admits {
        return None;
    }
    let state = cell.state.get_or_insert_with(|| State::fresh(check.limit.algorithm()));
    state.take(&check.limit, now, check.cost);
    cell.version += 1;
    Some(Record::new(true, now, [Layer { view, version: cell.version }]))
}

/// Whether the cost passes if the share of the previous window is rounded down.
fn floored(view: &View, check: &Check, now: Instant) -> bool {
    let View::SlidingCounter(SlidingCounter { start, current, previous }) = *view else { return false };
    let period = u64::try_from(check.limit.period().as_micros()).unwrap_or(u64::MAX);
    let grid = now.micros() - now.micros() % period;
    let (current, previous) = match grid.checked_sub(start) {
        Some(0) => (current, previous),
        Some(later) if later == period => (0, current),
        _ => return false,
    };
    let weight = u128::from(period - now.micros() % period);
    let share = u128::from(previous) * weight / u128::from(period);
    share + u128::from(current + check.cost) <= u128::from(check.limit.amount())
}

/// What is wrong with the states after they are decided on.
pub(super) fn after(fault: Option<Fault>, request: &Request, record: &Record, before: &mut [Cell], cells: &mut [Cell]) {
    let now = record.at;
    for ((check, old), cell) in request.checks().iter().zip(before).zip(cells) {
        let charged = record.allowed && request.op() == Op::Take && check.cost > 0;
        match (fault, &mut cell.state) {
            (Some(Fault::DenialsCharged), Some(state)) if request.op() == Op::Take && !record.allowed => {
                state.take(&check.limit, now, check.cost);
                cell.version += 1;
            }
            (Some(Fault::InstantAsMember), Some(State::SlidingLog(log))) if charged => {
                let older = old.state.take();
                let older = if let Some(State::SlidingLog(older)) = older { older } else { SlidingLog::default() };
                let others = older.entries().filter(|(at, _)| *at < now.micros());
                *log = SlidingLog::from_entries(others.chain([(now.micros(), check.cost)]));
            }
            (Some(Fault::FloatSeconds), Some(State::Bucket(bucket))) => float(bucket, check),
            (Some(Fault::DebtCarriedOver), Some(State::Bucket(bucket))) => bucket.seen = bucket.tat,
            (Some(Fault::VersionStands), Some(_)) if charged && old.state.is_some() => cell.version = old.version,
            _ => {}
        }
    }
}

/// Brings an instant through seconds in floating point, as it is often stored.
#[expect(
    clippy::float_arithmetic,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "that is the fault"
)]
fn float(bucket: &mut Bucket, check: &Check) {
    let seconds = (bucket.tat as f64 + bucket.rest as f64 / check.limit.amount() as f64) / 1e6;
    bucket.tat = (seconds * 1e6) as u64;
    bucket.rest = 0;
}

/// A batch, where its requests are not decided one after the other. `decide` keeps what it wrote if it is told so.
pub(super) fn batch(
    fault: Option<Fault>,
    requests: &[Request],
    mut decide: impl FnMut(&Request, bool) -> Record,
) -> Vec<Outcome> {
    if fault == Some(Fault::BatchAsSum) {
        return requests.chunk_by(|a, b| a == b).flat_map(|equal| sum(equal, &mut decide)).collect();
    }
    let stale: Vec<Record> = requests.iter().map(|request| decide(request, false)).collect();
    for request in requests {
        drop(decide(request, true));
    }
    stale.into_iter().map(Outcome::decided).collect()
}

/// Equal requests, decided as one for their sum.
fn sum(equal: &[Request], decide: &mut impl FnMut(&Request, bool) -> Record) -> Vec<Outcome> {
    let times = u64::try_from(equal.len()).unwrap_or(u64::MAX);
    let whole = equal.first().and_then(|request| {
        let checks = request.checks().iter().map(|check| Check { cost: check.cost * times, ..check.clone() });
        Request::new(request.op(), checks).ok()
    });
    match (whole, equal.first()) {
        (Some(whole), _) => {
            let record = decide(&whole, true);
            equal.iter().map(|_| Outcome::decided(record.clone())).collect()
        }
        // The sum can never pass, so none of them does.
        (None, Some(one)) => {
            let record = decide(one, false);
            equal
                .iter()
                .map(|_| Outcome::decided(Record::new(false, record.at, record.layers().iter().copied())))
                .collect()
        }
        (None, None) => Vec::new(),
    }
}
