//! What asks without taking leaves no trace.

use limiter_core::{Cell, Op};
use proptest::prelude::*;

use crate::trace::{Ask, cases, costs, operations, takes};

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_denial_changes_nothing(trace in takes(true)) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            let before = key.cell.clone();
            if key.step(step).is_none_or(|(_, decision)| !decision.allowed) {
                prop_assert_eq!(&before, &key.cell);
            }
        }
    }

    #[test]
    fn a_peek_changes_nothing_and_tells_what_a_take_would_get(trace in operations(true), costs in prop::collection::vec(costs(), 24)) {
        let mut key = trace.walk();
        for (&step, &cost) in trace.steps.iter().zip(&costs) {
            key.step(step);
            let cost = key.go(crate::trace::Step { cost, ..step });
            let before = key.cell.clone();
            let peeked = key.ask(Op::Peek, cost);
            prop_assert_eq!(&before, &key.cell);
            let taken = key.clone().take(cost);
            let verdict = |decision: limiter_core::Decision| (decision.allowed, decision.retry_after);
            prop_assert_eq!(peeked.map(verdict), taken.map(verdict));
        }
    }

    #[test]
    fn a_cost_of_nothing_passes_and_changes_nothing(trace in takes(true)) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            key.step(step);
            let before = key.cell.clone();
            prop_assert!(key.ask(Op::Take, 0).is_some_and(|decision| decision.allowed && decision.delay.is_zero()));
            prop_assert_eq!(&before, &key.cell);
        }
    }

    #[test]
    fn a_reset_key_is_as_one_never_used(trace in takes(true)) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            key.step(step);
        }
        let told = key.ask(Op::Reset, 0).unwrap();
        prop_assert_eq!((told.remaining, told.reset_after.is_zero()), (trace.limit.capacity(), true));
        prop_assert_eq!(&key.cell.state, &Cell::default().state);
    }

    /// So that a history can be put in order and its gaps be seen: also over a reset, and on a clock that goes back.
    #[test]
    fn a_version_grows_with_each_write_and_only_then(trace in operations(true)) {
        let mut key = trace.walk();
        for &step in &trace.steps {
            let before = key.cell.clone();
            let cost = key.go(step);
            let written = match step.op {
                Ask::Take => key.take(cost).is_some_and(|decision| decision.allowed && cost > 0),
                Ask::Peek => key.ask(Op::Peek, cost).is_some_and(|_| false),
                Ask::Reset => key.ask(Op::Reset, 0).is_some_and(|_| false),
                Ask::Refund => {
                    let _ = key.refund(1, key.at());
                    before.state.is_some()
                }
            };
            let expected = match (written, &before.state) {
                (true, Some(_)) => before.version + 1,
                (true, None) => key.now.max(before.version + 1),
                (false, _) => before.version,
            };
            prop_assert_eq!(key.cell.version, expected, "{:?} of {}", step.op, cost);
        }
    }
}
