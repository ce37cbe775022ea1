//! What is decided in place of the store.

use limiter_core::{Check, Clock, ErrorKind, Layer, Limit, Memory, Op, Outcome, Record, Request, SystemClock};

use super::share::share;
use crate::layer::FailurePolicy;

/// The verdict on a take or a peek that the store did not decide for such a failure, by the policies of its checks, in their order, and by
/// what `local` counts. None: the failure has to be told.
pub(crate) fn verdict(
    local: &Memory,
    request: &Request,
    kind: ErrorKind,
    policies: impl IntoIterator<Item = FailurePolicy>,
) -> Option<Record> {
    if kind == ErrorKind::Divergence || !matches!(request.op(), Op::Take | Op::Peek) {
        return None;
    }
    // What a flood of requests can bring about must not open anything.
    let busy = matches!(kind, ErrorKind::Full | ErrorKind::Contended | ErrorKind::Overloaded);
    let mut shares: Vec<Option<Limit>> = Vec::with_capacity(request.checks().len());
    for (check, policy) in request.checks().iter().zip(policies) {
        shares.push(match policy {
            FailurePolicy::Open if !busy => None,
            FailurePolicy::Local { nodes } => Some(share(&check.limit, nodes).ok()?),
            FailurePolicy::Open | FailurePolicy::Closed => return None,
        });
    }
    let mut counted: Vec<Check> = Vec::new();
    for (check, share) in request.checks().iter().zip(&shares) {
        counted.extend(share.map(|share| Check::new(check.key.clone(), share, check.cost)));
    }
    let local: Option<Record> = if counted.is_empty() {
        None
    } else {
        let request = Request::new(request.op(), counted).ok()?;
        match local.decide(&request, None) {
            Outcome::Allowed(record) | Outcome::Denied(record) => Some(record),
            Outcome::NotSent(_) | Outcome::Unknown(_) => return None,
        }
    };
    let at = local.as_ref().map_or_else(|| SystemClock.now(), |record| record.at);
    let allowed = local.as_ref().is_none_or(|record| record.allowed);
    let mut layers = local.iter().flat_map(Record::layers).copied();
    let counted = shares.into_iter().map(|share| {
        let share = share?;
        Some((layers.next()?, share))
    });
    let layers: Vec<Option<(Layer, Limit)>> = counted.collect();
    Some(Record::from_fallback(allowed, at, layers))
}
