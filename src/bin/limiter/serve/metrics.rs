//! What the rules decided, in Prometheus' text form.

use std::fmt::Write as _;

use limiter::policy::PolicyLimiter;

/// Labels are the names of rules and outcomes: a bounded set, and never a key.
pub(super) fn text(limiter: &PolicyLimiter) -> String {
    let mut text = "# HELP limiter_rule_decisions_total What each rule decided.\n\
                    # TYPE limiter_rule_decisions_total counter\n"
        .to_owned();
    for count in limiter.counts() {
        let outcomes = [("allowed", count.allowed), ("limited", count.limited), ("degraded", count.degraded)];
        for (outcome, number) in outcomes {
            // Names of rules are plain characters: nothing has to be escaped.
            let rule = &count.rule;
            let _infallible =
                writeln!(text, "limiter_rule_decisions_total{{rule=\"{rule}\",outcome=\"{outcome}\"}} {number}");
        }
    }
    text
}
