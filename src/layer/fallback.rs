//! What is answered where the store does not decide: each rule by its own policy.

mod share;
mod verdict;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use limiter_core::{Backend, Batch, Capabilities, Error, Memory, Op, Outcome, Request, Source};
use tokio::time::Instant;

pub(crate) use self::verdict::verdict;
use super::failure::FailurePolicies;
use super::figures::Count;

/// How often a log is told that the store does not decide.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// A layer that answers what the store beneath does not decide, by the [`FailurePolicy`](super::FailurePolicy) of the request's rules.
///
/// It answers takes and peeks. A refund or a reset that failed is told as it is, since nothing can stand in for it. So is a
/// [`Divergence`](limiter_core::ErrorKind::Divergence), which is a fault of the engine and no outage. A request that is unsound never gets here.
///
/// # Several limits at once
/// Each limit goes by its own rule's policy, the strictest first:
/// 1. if a rule is [`Closed`](super::FailurePolicy::Closed), the failure is told, and nothing is counted anywhere;
/// 2. else the limits whose rules are [`Local`](super::FailurePolicy::Local) are asked here, all or nothing. If one refuses, the request is refused;
/// 3. the limits whose rules are [`Open`](super::FailurePolicy::Open) pass uncounted.
///
/// # The local count
/// It is exact for this node, under its share of each limit, and bounded in memory. Where it can't count either (its table is full of
/// live keys, or a cost is over the share and so can never pass here), the store's failure is told. It begins with nothing taken: what the
/// store had counted before it was lost is not known. Units that it granted come free with time; a refund does not reach them.
///
/// A batch with a given instant is passed on as it is, and its failures stay failures: a replay wants to know.
pub struct Fallback {
    backend: Arc<dyn Backend>,
    policies: FailurePolicies,
    local: Memory,
    counts: Counts,
    origin: Instant,
    /// When a log was last told, in ms from the origin; 0 for never.
    told: AtomicU64,
}

/// What was answered in place of the store.
#[derive(Debug)]
struct Counts {
    open: Count,
    local: Count,
    refused: Count,
    failed: Count,
}

impl Fallback {
    /// The most keys that are counted here, 2^16: some 16 MB.
    const MAX_KEYS: usize = 1 << 16;
    /// The most entries of sliding logs that are counted here, 2^20: some 16 MB, up to 64.
    const MAX_LOG_ENTRIES: usize = 1 << 20;

    /// `backend`, and what to do without it.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, policies: FailurePolicies) -> Self {
        let local = Memory::builder().max_keys(Self::MAX_KEYS).max_log_entries(Self::MAX_LOG_ENTRIES).build();
        Self::with_memory(backend, policies, local)
    }

    /// The same with a local table of one's own size.
    #[must_use]
    pub fn with_memory(backend: Arc<dyn Backend>, policies: FailurePolicies, local: Memory) -> Self {
        let engine = backend.capabilities().engine;
        let count = |name, describes| Count::new(name, describes, engine);
        let counts = Counts {
            open: count("limiter_fallback_open_total", "Requests that passed uncounted, the store being away"),
            local: count("limiter_fallback_local_allowed_total", "Requests that the local count admitted"),
            refused: count("limiter_fallback_local_denied_total", "Requests that the local count refused"),
            failed: count("limiter_fallback_closed_total", "Requests whose failure was told"),
        };
        Self { backend, policies, local, counts, origin: Instant::now(), told: AtomicU64::new(0) }
    }

    /// The policies, which may be changed at any time.
    #[must_use]
    pub const fn policies(&self) -> &FailurePolicies {
        &self.policies
    }

    /// How many requests passed with a limit that nobody counted.
    #[must_use]
    pub fn passed_open(&self) -> u64 {
        self.counts.open.get()
    }

    /// How many requests the local count admitted.
    #[must_use]
    pub fn passed_local(&self) -> u64 {
        self.counts.local.get()
    }

    /// How many requests the local count refused.
    #[must_use]
    pub fn refused_local(&self) -> u64 {
        self.counts.refused.get()
    }

    /// How many takes and peeks failed for their callers.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.counts.failed.get()
    }

    /// How many keys the local table holds.
    #[must_use]
    pub fn local_keys(&self) -> usize {
        self.local.len()
    }

    /// What stands in for the outcome of `request`, if anything does.
    fn stand_in(&self, request: &Request, outcome: Outcome) -> Outcome {
        if request.op() == Op::Reset {
            // What is counted here is forgotten as well, whatever the store says.
            let _ = self.local.decide(request, None);
        }
        let (Err(error), Op::Take | Op::Peek) = (outcome.record(), request.op()) else { return outcome };
        self.tell(error);
        let policies = request.checks().iter().map(|check| self.policies.of_key(&check.key));
        let Some(record) = verdict(&self.local, request, error.kind(), policies) else {
            self.counts.failed.add(1);
            return outcome;
        };
        let count = match record.source() {
            _ if !record.allowed => &self.counts.refused,
            Source::Local => &self.counts.local,
            _ => &self.counts.open,
        };
        count.add(1);
        Outcome::decided(record)
    }

    /// Tells a log, but not of each request.
    fn tell(&self, error: &Error) {
        let now = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let told = self.told.load(Ordering::Relaxed);
        let due = told == 0 || u128::from(now.saturating_sub(told)) >= TOLD_EVERY.as_millis();
        if due && self.told.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::warn!(
                %error,
                open = self.passed_open(),
                local = self.passed_local(),
                refused = self.refused_local(),
                failed = self.failed(),
                "the store does not decide: requests are answered by their failure policies"
            );
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Fallback {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let outcomes = self.backend.submit(Arc::clone(&batch)).await;
        if batch.at.is_some() || outcomes.len() != batch.requests.len() {
            return outcomes;
        }
        batch.requests.iter().zip(outcomes).map(|(request, outcome)| self.stand_in(request, outcome)).collect()
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fallback({:?})", self.backend)
    }
}
