//! What stands between a limiter and its engine.
//!
//! A layer wraps a [`Backend`](crate::Backend) and is one. So layers compose in any order, a limiter does not know how many there
//! are, and the suite that an engine has to pass runs against a stack as it runs against the engine.
//!
//! ```
//! use std::sync::Arc;
//! use limiter::layer::GroupCommit;
//! use limiter::{Memory, RateLimiter};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = Arc::new(Memory::new());
//! let limiter = RateLimiter::new(Arc::new(GroupCommit::new(store)), "login", "5/1m sliding-log".parse()?);
//! assert!(limiter.check("user-42").await?.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # In which order
//! What comes first when a request is asked stands outermost. [`Stack`](crate::Stack) puts them in this order, in one call:
//!
//! | layer | what it adds |
//! | --- | --- |
//! | `WatchRules` (feature `metrics`) | figures of what callers are told, rule by rule |
//! | [`DenyCache`] | a key that the store refused until T is refused here until T, without a call |
//! | `Fallback` (feature `memory`) | what is answered where the store does not decide: the [`FailurePolicy`] of each rule |
//! | [`Breaker`] | a store that is dead is not asked, until it is back |
//! | [`Deadline`] | a store that is slow counts as dead |
//! | [`GroupCommit`] | what arrives while a call is in flight goes together in the next |
//! | [`WatchCalls`] | figures and spans of the calls themselves |
//!
//! The deny cache is outside the fallback: what the store refused stays refused while it is away. The breaker is outside the deadline,
//! whose timeouts it counts, and inside the fallback, whose answers say nothing of the store. **Group commit is the innermost**, right
//! around the engine: what an outer layer answers by itself never queues, a layer that fails or repeats does so for one caller and not for
//! all that share a call, and what an outer layer measures is what its caller waited.
//!
//! # Whose word an answer is
//! Each decision says so: [`Decision::source`](crate::Decision::source). [`Source::is_degraded`](crate::Source::is_degraded) tells a
//! fallback's answer from the store's, and where [`has_numbers`](crate::Source::has_numbers) is false nobody counted, so that no header
//! should be made of it.
//!
//! # What a replay sees
//! A batch with a given instant is passed on by every layer as it is, and its failures stay failures.
//!
//! # What a layer owes
//! All that [`Backend`](crate::Backend) promises: an outcome for each request in order, also where its own work failed;
//! [`Outcome::NotSent`](crate::Outcome::NotSent) only if it is certain that nothing was applied; a future that may be dropped.
//! [`capabilities`](crate::Backend::capabilities) are the engine's. Its `Debug` is one line that shows what it wraps.

mod breaker;
mod deadline;
mod deny_cache;
mod failure;
#[cfg(feature = "memory")]
mod fallback;
mod figures;
mod group_commit;
mod watch;

pub use breaker::{Breaker, BreakerBuilder, BreakerState};
pub use deadline::Deadline;
pub use deny_cache::{DenyCache, DenyCacheBuilder};
pub use failure::{FailurePolicies, FailurePolicy, FailurePolicyError};
#[cfg(feature = "memory")]
pub use fallback::Fallback;
#[cfg(feature = "policy")]
pub(crate) use fallback::verdict;
pub use group_commit::{GroupCommit, GroupCommitBuilder};
pub use watch::WatchCalls;
#[cfg(feature = "metrics")]
pub use watch::WatchRules;
