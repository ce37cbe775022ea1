//! The locks that the engine takes: the standard library's, or those of the scheduler that tests its interleavings.

#[cfg(not(shuttle))]
pub(super) use std::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
pub(super) use shuttle::sync::{Mutex, MutexGuard};
