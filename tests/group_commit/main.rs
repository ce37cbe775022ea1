//! Group commit, held against what an engine sees when nothing stands between.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod dropped;
mod engine;
mod failures;
mod grouping;
mod laws;
