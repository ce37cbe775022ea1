//! What a step inside a store is asked and answers: a batch numbered and folded, and its outcomes unfolded again.
//!
//! An engine whose store runs the step itself sends each key and each limit once, names them by number from there on, and sends
//! equal requests as one step with a count, of which the store admits as many as fit, in order:
//!
//! ```text
//!  Batch ──► Plan: keys, limits, steps ──► the engine's wire form ──► the store's mirror of the machines
//!                                                                          │
//!  outcomes ◄── Plan::outcomes ◄── Decided: allowed, views, versions ◄── the store's answer
//! ```
//!
//! The outcomes are exactly those that the requests would have had one by one: each step is unfolded by playing its requests
//! through the core, and a verdict that is not the core's is an error of kind [`Divergence`](crate::ErrorKind::Divergence).

mod plan;
mod unfold;

pub use self::plan::{MAX_FOLD, Plan, Step, cost_span, terms};
pub use self::unfold::Decided;
