//! A key that the store refused is refused here until it opens, without a call.

mod table;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use foldhash::fast::RandomState;
use limiter_core::{Backend, Batch, Capabilities, Key, Op, Outcome, Record, Request, Source};
use tokio::time::Instant;

use self::table::Table;
use super::figures::Count;

/// A layer that remembers refusals.
///
/// A refusal says when the key opens at the earliest, and whatever others take meanwhile makes it later. So until then the answer
/// is known, and a client that hammers a closed door costs the store nothing. What is remembered is the state that the store told, and a
/// cost is refused here only if **the core refuses it on that state at an instant that is not before the store's**: measured
/// from before the store was asked, plus a thousandth for clocks that run apart. Near the end the store is asked too early rather
/// than a key refused too long.
///
/// Such a decision has [`Source::Cache`], and a `retry_after` from now that is long enough. `remaining` and
/// `reset_after` follow from the remembered state. In one process with nothing in flight they are the store's; of a sliding log
/// `remaining` is what it was when the store refused; and what others took meanwhile is not in them.
///
/// # What ends a refusal before its time
/// A refund, a reset, another limit on the key: made **through this layer**, they are seen at once, also by answers that are in flight.
/// Made elsewhere, as are a loss of the store's states and a clock of the store's that is set forward, they are seen after
/// [`max_age`](DenyCacheBuilder::max_age) at the latest. So are a refund and a reset whose caller was dropped, or whose outcome is
/// unknown, and that the store applied later.
///
/// # Several limits at once
/// If one limit is known to refuse, the request is refused, and no other is asked or charged; those have
/// [`Source::Unasked`] and no numbers. `retry_after` is the longest of the known ones.
///
/// # What is always asked
/// Peeks, refunds and resets, and a cost of 0. Only the store's own refusals are remembered, never a fallback's. A batch that has a
/// refund or a reset, or a given instant, goes to the store as it is.
///
/// ```
/// use std::sync::Arc;
/// use limiter::layer::DenyCache;
/// use limiter::{Memory, RateLimiter, Source};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let cached = Arc::new(DenyCache::new(Arc::new(Memory::new())));
/// let limiter = RateLimiter::new(cached.clone(), "login", "1/1h sliding-log".parse()?);
/// assert!(limiter.check("user-42").await?.allowed);
/// assert_eq!(limiter.check("user-42").await?.source, Source::Store);
/// assert_eq!(limiter.check("user-42").await?.source, Source::Cache);
/// limiter.reset("user-42").await?;
/// assert!(limiter.check("user-42").await?.allowed);
/// assert_eq!(cached.hits(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DenyCache {
    backend: Arc<dyn Backend>,
    table: Table,
    hits: Count,
    misses: Count,
}

/// A [`DenyCache`] that is still being set up.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `wrap` is called"]
pub struct DenyCacheBuilder {
    max_keys: usize,
    max_age: Duration,
}

impl DenyCacheBuilder {
    /// The most keys that are remembered, about, by default 2^16, at some 300 bytes each. Those go first that are asked least. 0 counts as 1.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys.max(1);
        self
    }

    /// How long a refusal is believed at most, by default 1 s: after that the store is asked again, and so learns this process
    /// of refunds, resets and limits that others changed.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Wraps `backend`.
    #[must_use]
    pub fn wrap(self, backend: Arc<dyn Backend>) -> DenyCache {
        let engine = backend.capabilities().engine;
        DenyCache {
            table: Table::new(self.max_keys, self.max_age),
            hits: Count::new("limiter_deny_cache_hits_total", "Requests that were refused without the store", engine),
            misses: Count::new("limiter_deny_cache_misses_total", "Takes that the store was asked for", engine),
            backend,
        }
    }
}

impl Default for DenyCacheBuilder {
    fn default() -> Self {
        Self { max_keys: 1 << 16, max_age: Duration::from_secs(1) }
    }
}

impl DenyCache {
    /// `backend`, whose refusals are remembered with the defaults of [`DenyCacheBuilder`].
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::builder().wrap(backend)
    }

    /// A deny cache with bounds of one's own.
    pub fn builder() -> DenyCacheBuilder {
        DenyCacheBuilder::default()
    }

    /// How many requests were refused without the store.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// How many takes the store was asked for.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// How many keys are remembered, those included that are open by now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets `key`, as for a limit that was changed elsewhere.
    pub fn forget(&self, key: &Key) {
        self.table.forget(key);
    }

    /// Sends a batch that may open keys.
    async fn pass(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        // Forgotten once the store has applied it, or the caller is gone: what was asked in between is not believed.
        let _forget = Forget { table: &self.table, batch: &batch };
        self.backend.submit(Arc::clone(&batch)).await
    }

    /// Sends takes and peeks, and remembers what is refused.
    async fn ask(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let before = self.table.before();
        let outcomes = self.backend.submit(Arc::clone(&batch)).await;
        for (request, outcome) in batch.requests.iter().zip(&outcomes) {
            match outcome.record() {
                Ok(record) if record.source() == Source::Store && record.layers().len() == request.checks().len() => {
                    self.table.learn(request, record, before);
                }
                // A fallback's word says nothing of the store, and neither does a failure.
                _ => {}
            }
        }
        outcomes
    }
}

/// Forgets what a batch may have opened, when it is dropped.
struct Forget<'a> {
    table: &'a Table,
    batch: &'a Batch,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        // At a given instant a take may open a key too: a window that begins later drops what an earlier one held.
        let given = self.batch.at.is_some();
        let opens = |request: &&Request| given || opens(request);
        for check in self.batch.requests.iter().filter(opens).flat_map(Request::checks) {
            self.table.forget(&check.key);
        }
    }
}

fn opens(request: &Request) -> bool {
    !matches!(request.op(), Op::Take | Op::Peek)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for DenyCache {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        if batch.at.is_some() || batch.requests.iter().any(opens) {
            return self.pass(batch).await;
        }
        let now = Instant::now();
        let refuse = |request: &Request| {
            if request.op() != Op::Take {
                return None;
            }
            let record = self.table.refuse(request, now);
            if record.is_some() {
                self.hits.add(1);
            } else {
                self.misses.add(1);
            }
            record
        };
        if let [request] = &*batch.requests {
            return match refuse(request) {
                Some(record) => vec![Outcome::Denied(record)],
                None => self.ask(batch).await,
            };
        }
        // What an earlier request of the batch is asking for may change before this one's turn.
        let mut asking: HashSet<&Key, RandomState> = HashSet::default();
        let mut known: Vec<Option<Record>> = Vec::with_capacity(batch.requests.len());
        for request in &batch.requests {
            let keys = || request.checks().iter().map(|check| &check.key);
            let record = if keys().any(|key| asking.contains(key)) { None } else { refuse(request) };
            if record.is_none() {
                asking.extend(keys());
            }
            known.push(record);
        }
        if known.iter().all(Option::is_none) {
            return self.ask(batch).await;
        }
        let unknown = batch.requests.iter().zip(&known).filter(|(_, known)| known.is_none());
        let requests: Vec<Request> = unknown.map(|(request, _)| request.clone()).collect();
        if requests.is_empty() {
            return known.into_iter().flatten().map(Outcome::Denied).collect();
        }
        let mut asked = self.ask(Arc::new(Batch { requests, at: None })).await.into_iter();
        // An engine that gives too few outcomes is found out where they are counted.
        let merged = known.into_iter().map_while(|known| known.map(Outcome::Denied).or_else(|| asked.next()));
        merged.collect()
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

impl fmt::Debug for DenyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DenyCache({} keys, {:?})", self.len(), self.backend)
    }
}
