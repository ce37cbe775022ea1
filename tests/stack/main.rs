//! The recommended stack passes the suite that an engine has to pass.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops on the first thing that is not as it should be")]

use std::sync::Arc;
use std::time::Duration;

use limiter::{Backend, Stack, StackBuilder};

mod memory;
#[cfg(feature = "redis")]
mod redis;

/// All layers at their defaults, but for the deadline: on a busy machine a call takes long, and here that is no fault.
fn builder() -> StackBuilder {
    Stack::builder().deadline(Duration::from_secs(10))
}

fn stack(engine: Arc<dyn Backend>) -> Stack {
    builder().build(engine)
}
