//! The core decides as the oracle does, in every field.

use limiter_core::{Decision, Instant, Op};
use proptest::prelude::*;

use crate::oracle::{Answer, Oracle};
use crate::trace::{Ask, Trace, cases, micros, operations, takes};

/// A decision as the oracle tells it.
pub(crate) fn answer(decision: &Decision) -> Answer {
    Answer {
        allowed: decision.allowed,
        remaining: decision.remaining,
        retry_after: decision.retry_after.map(micros),
        reset_after: micros(decision.reset_after),
        delay: micros(decision.delay),
    }
}

fn agrees(trace: &Trace) -> Result<(), TestCaseError> {
    let mut core = trace.walk();
    let mut oracle = Oracle::fresh(trace.limit);
    for (number, &step) in trace.steps.iter().enumerate() {
        let cost = core.go(step);
        let (now, taken) = (core.now, core.taken);
        let (told, expected) = match step.op {
            Ask::Take => (core.take(cost), oracle.take(now, cost)),
            Ask::Peek => {
                let possible = cost <= trace.limit.capacity();
                (core.ask(Op::Peek, cost), possible.then(|| oracle.peek(now, cost)))
            }
            Ask::Refund => {
                // What was never taken is not given back.
                let Some((units, at)) = taken else { continue };
                let given = if cost == 0 { units } else { cost.min(units) };
                core.taken = None;
                oracle.refund(now, given, at.micros());
                (Some(core.refund(given, at)), Some(oracle.peek(now, 0)))
            }
            Ask::Reset => {
                core.taken = None;
                oracle = Oracle::fresh(trace.limit);
                (core.ask(Op::Reset, 0), Some(oracle.peek(now, 0)))
            }
        };
        prop_assert_eq!(told.as_ref().map(answer), expected, "step {} at {} for {}: {:?}", number, now, cost, &oracle);
        prop_assert!(told.is_none_or(|told| told.at.micros() == now && told.limit == trace.limit.capacity()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn takes_decide_as_the_oracle_does(trace in takes(true)) {
        agrees(&trace)?;
    }

    #[test]
    fn all_operations_decide_as_the_oracle_does(trace in operations(true)) {
        agrees(&trace)?;
    }
}

#[test]
fn the_last_instant_is_no_edge_to_any_machine() {
    for (limit, cost) in crate::bounds::extremes() {
        let last = Instant::MAX.micros();
        let mut core = crate::trace::Walk::new(limit, last);
        let mut oracle = Oracle::fresh(limit);
        for now in [last, last, last - 1, 0, last] {
            core.now = now;
            let told = core.take(cost).as_ref().map(answer);
            assert_eq!(told, oracle.take(now, cost), "{limit} at {now} for {cost}");
        }
    }
}
