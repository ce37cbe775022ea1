//! What holds for every limit and every trace. Each law is named after what it says.
//!
//! `PROPTEST_CASES=10000 cargo test -p limiter-core --test laws` looks further. A seed that failed once is kept in
//! `tests/proptest-regressions`, and tried first from then on.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod agreement;
mod amounts;
mod bounds;
mod changes;
mod layers;
mod nothing;
#[path = "../oracle/mod.rs"]
mod oracle;
mod refunds;
mod stored;
mod trace;
mod waits;
