//! The layers, held against what an engine says when nothing stands between, and against engines that fail.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod breaker;
mod deny_cache;
mod engine;
mod fallback;
mod in_flight;
