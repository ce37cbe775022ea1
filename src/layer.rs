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
//! What comes first when a request is asked stands outermost. **Group commit is the innermost**, right around the engine: what an
//! outer layer answers by itself never queues, a layer that fails or repeats does so for one caller and not for all that share
//! a call, and what an outer layer measures is what its caller waited.
//!
//! # What a layer owes
//! All that [`Backend`](crate::Backend) promises: an outcome for each request in order, also where its own work failed;
//! [`Outcome::NotSent`](crate::Outcome::NotSent) only if it is certain that nothing was applied; a future that may be dropped.
//! [`capabilities`](crate::Backend::capabilities) are the engine's. Its `Debug` is one line that shows what it wraps.

mod group_commit;

pub use group_commit::{GroupCommit, GroupCommitBuilder};
