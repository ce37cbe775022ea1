//! The handle that people hold: one rule, one limit, one store.

use std::sync::Arc;
use std::time::Duration;

use limiter_core::{Backend, BackendExt, Check, CheckError, Decision, Key, Limit, Op};

use crate::acquire::{AcquireError, Permit, acquire};

/// One limit under a name, kept in a store, for any number of keys.
///
/// It is cheap to clone, and clones share the store. Two limiters of one rule and scope on one store count
/// together, wherever they run.
///
/// ```
/// use limiter::RateLimiter;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let limiter = RateLimiter::in_memory("login", "5/1m sliding-log".parse()?);
/// let decision = limiter.check("user-42").await?;
/// assert!(decision.allowed);
/// assert_eq!(decision.remaining, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimiter {
    backend: Arc<dyn Backend>,
    scope: Arc<[u8]>,
    rule: Arc<str>,
    limit: Limit,
}

impl RateLimiter {
    /// The limit `limit` under the name `rule`, kept in `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, rule: &str, limit: Limit) -> Self {
        Self { backend, scope: Arc::default(), rule: rule.into(), limit }
    }

    /// The same, kept in a table of its own in **this process only**.
    #[cfg(feature = "memory")]
    #[must_use]
    pub fn in_memory(rule: &str, limit: Limit) -> Self {
        Self::new(Arc::new(limiter_core::Memory::new()), rule, limit)
    }

    /// The same limiter for the keys of one scope, a tenant say: another scope has other keys.
    ///
    /// On a Redis Cluster the keys of one scope lie together.
    #[must_use]
    pub fn scope(mut self, scope: impl AsRef<[u8]>) -> Self {
        self.scope = scope.as_ref().into();
        self
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// The store.
    #[must_use]
    pub const fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Takes one unit of `key`.
    ///
    /// # Errors
    /// [`CheckError::NotSent`] or [`CheckError::Unknown`] if the store did not decide.
    pub async fn check(&self, key: impl KeyParts) -> Result<Decision, CheckError> {
        self.check_n(key, 1).await
    }

    /// Takes `cost` units of `key`, all or none. A cost of 0 asks without taking.
    ///
    /// # Errors
    /// [`CheckError::Request`] if the cost is over the limit's capacity and so can never pass; else as [`check`](Self::check).
    pub async fn check_n(&self, key: impl KeyParts, cost: u64) -> Result<Decision, CheckError> {
        self.ask(Op::Take, key, cost).await
    }

    /// The decision that a check of `cost` units would get, taking nothing.
    ///
    /// # Errors
    /// As [`check_n`](Self::check_n).
    pub async fn peek(&self, key: impl KeyParts, cost: u64) -> Result<Decision, CheckError> {
        self.ask(Op::Peek, key, cost).await
    }

    /// Gives back `cost` units that `taken` was granted: never above full, and nothing if the window they were taken in is over.
    ///
    /// A refusal took nothing, so it gives nothing back; neither does what passed while the store was away, uncounted or by a
    /// fallback's count, which comes free with time. A `cost` over what was taken is not noticed, and admits the difference.
    ///
    /// Returns what is left. Do not repeat a refund whose outcome is unknown: done twice, it admits its cost once too often.
    ///
    /// # Errors
    /// As [`check_n`](Self::check_n).
    pub async fn refund(&self, key: impl KeyParts, cost: u64, taken: &Decision) -> Result<Decision, CheckError> {
        // Who gives back in one place whatever was decided must not open the limit by it.
        let cost = if taken.charged() { cost } else { 0 };
        self.ask(Op::Refund { taken: taken.at }, key, cost).await
    }

    /// Forgets `key`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn reset(&self, key: impl KeyParts) -> Result<(), CheckError> {
        self.ask(Op::Reset, key, 0).await.map(|_| ())
    }

    /// Takes one unit of `key`, waiting for it up to `within`.
    ///
    /// # Errors
    /// As [`acquire_n`](Self::acquire_n).
    ///
    /// # Panics
    /// As [`acquire_n`](Self::acquire_n).
    pub async fn acquire(&self, key: impl KeyParts, within: Duration) -> Result<Permit, AcquireError> {
        self.acquire_n(key, 1, within).await
    }

    /// Takes `cost` units of `key`, waiting for them up to `within`, and goes on when it may: a leaky bucket's delay is slept.
    ///
    /// Who waits holds nothing, except in a leaky bucket, where the place in the queue is taken at once; **a wait that is dropped
    /// gives its units back**. Waiters are not served in the order of their coming.
    ///
    /// # Errors
    /// [`AcquireError::Deadline`] as soon as it is clear that the wait would be longer than `within`. Nothing stays taken: a place
    /// in a leaky bucket's queue is given back in the background, and if that fails, it comes free with time.
    /// [`AcquireError::Check`] if the store did not decide, or if the cost can never pass.
    ///
    /// # Panics
    /// Outside a Tokio runtime with its timer enabled.
    pub async fn acquire_n(&self, key: impl KeyParts, cost: u64, within: Duration) -> Result<Permit, AcquireError> {
        acquire(Arc::clone(&self.backend), self.one(&key, cost), within).await
    }

    fn one(&self, key: &impl KeyParts, cost: u64) -> Check {
        Check::new(key.key(&self.scope, &self.rule), self.limit, cost)
    }

    async fn ask(&self, op: Op, key: impl KeyParts, cost: u64) -> Result<Decision, CheckError> {
        self.backend.ask_one(op, self.one(&key, cost)).await
    }
}

/// What can name a key: one part, as text or bytes, or several.
///
/// Different lists of parts are different keys, whatever bytes they hold: `("a", "bc")` is not `("ab", "c")`, and neither is
/// `"abc"`.
pub trait KeyParts: Send {
    /// The key of these parts in a scope, under a rule.
    fn key(&self, scope: &[u8], rule: &str) -> Key;
}

macro_rules! one_part {
    ($($part:ty),*) => {$(
        impl KeyParts for $part {
            fn key(&self, scope: &[u8], rule: &str) -> Key {
                Key::new(scope, rule, [self])
            }
        }
    )*};
}

one_part!(&str, &String, String, &[u8], Vec<u8>);

impl<P: AsRef<[u8]> + Send, const N: usize> KeyParts for [P; N] {
    fn key(&self, scope: &[u8], rule: &str) -> Key {
        Key::new(scope, rule, self)
    }
}

impl<A: AsRef<[u8]> + Send, B: AsRef<[u8]> + Send> KeyParts for (A, B) {
    fn key(&self, scope: &[u8], rule: &str) -> Key {
        Key::new(scope, rule, [self.0.as_ref(), self.1.as_ref()])
    }
}

impl<A: AsRef<[u8]> + Send, B: AsRef<[u8]> + Send, C: AsRef<[u8]> + Send> KeyParts for (A, B, C) {
    fn key(&self, scope: &[u8], rule: &str) -> Key {
        Key::new(scope, rule, [self.0.as_ref(), self.1.as_ref(), self.2.as_ref()])
    }
}
