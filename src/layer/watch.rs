//! Seeing it: what callers are told, rule by rule, and what the store is asked, call by call.

mod calls;
#[cfg(feature = "metrics")]
mod rules;

pub use calls::WatchCalls;
#[cfg(feature = "metrics")]
pub use rules::WatchRules;
