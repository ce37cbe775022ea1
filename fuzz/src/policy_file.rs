//! A policy file.

use std::net::Ipv6Addr;

use limiter::policy::{MAX_RULES, Policy, Query};

use crate::assert_is_a_line;

/// Any text is a policy that answers any query, or is refused with the line and the column of each fault.
///
/// # Panics
/// If not.
pub fn policy_file(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Policy::parse(text) {
        Ok(policy) => {
            assert!(policy.rules().len() <= MAX_RULES);
            explain(&policy);
        }
        Err(error) => {
            assert!(!error.faults().is_empty(), "refused without a fault");
            let mut last = (0, 0);
            for fault in error.faults() {
                let (line, column) = fault.position().expect("a fault in a text has a place");
                let width = text.split('\n').nth(line - 1).map(|line| line.chars().count());
                assert!(
                    column >= 1 && width.is_some_and(|width| column <= width + 1),
                    "{line}:{column} is not in the text"
                );
                assert!((line, column) >= last, "{line}:{column} comes before {last:?}");
                last = (line, column);
                assert_is_a_line(fault.message(), 2_000);
            }
            assert_eq!(
                error.in_file("p").to_string().lines().count(),
                Policy::parse(text).map_or_else(|error| error.faults().len(), |_| 0)
            );
        }
    }
}

/// What queries of all kinds meet, told in lines.
fn explain(policy: &Policy) {
    let hostile = &b"\0}:{\xff\r\n"[..];
    let mut full =
        Query::new().tenant("acme").user("u").plan("pro").method("POST").endpoint("/login").address([10, 0, 0, 1]);
    let mut odd =
        Query::new().tenant(hostile).user(hostile).plan(hostile).method(hostile).endpoint(hostile).cost(u64::MAX);
    odd = odd.address(Ipv6Addr::LOCALHOST);
    for header in policy.headers() {
        full = full.header(&**header, "x");
        odd = odd.header(&**header, hostile);
    }
    for query in [Query::new(), full, odd] {
        for line in policy.explain(&query).to_string().lines() {
            assert_is_a_line(line, usize::MAX);
        }
    }
}
