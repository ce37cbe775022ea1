//! Leases: when the store may collect a key. Housekeeping only, and shared.
//!
//! A lease of its own for each key would cost a round trip and a place in the server's heap for ever. Here a key is put on the
//! first lease that outlives it, and a new lease is granted only if there is none that ends soon enough: it lasts half as long
//! again as was asked for, so that it serves many keys that come later. So there are a few leases for each length of life, however
//! many keys there are. A key that is written again moves to a later lease by the same rule.
//!
//! A lease ends at the servers' clock, by its length: this process reckons in monotonic time from before it was asked for,
//! so a lease never ends sooner than is thought here, and no wall clock has a part in it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as Turn;
use tokio::time::Instant;

use crate::error::Failure;

/// The longest lease that etcd grants, in seconds.
const LONGEST: u64 = 9_000_000_000;

#[derive(Debug)]
pub(crate) struct Leases {
    /// How long a key is kept beyond its state: for clocks that differ and clocks that go back.
    margin: Duration,
    /// By the instant at which they end.
    table: Mutex<BTreeMap<Instant, i64>>,
    /// Whose turn it is to ask for one.
    turn: Turn<()>,
}

impl Leases {
    pub(crate) fn new(margin: Duration) -> Self {
        Self { margin, table: Mutex::default(), turn: Turn::default() }
    }

    /// A lease for a state that counts for this long. `grant` asks the server for one of so many seconds, and tells its number
    /// and how long it lasts.
    pub(crate) async fn lease<Grant>(
        &self,
        lifetime: Duration,
        grant: impl FnOnce(i64) -> Grant,
    ) -> Result<i64, Failure>
    where
        Grant: Future<Output = Result<(i64, Duration), Failure>>,
    {
        let need = lifetime.saturating_add(self.margin);
        if let Some(lease) = self.find(need, Instant::now()) {
            return Ok(lease);
        }
        let _turn = self.turn.lock().await;
        let asked = Instant::now();
        // The one before may have got it.
        if let Some(lease) = self.find(need, asked) {
            return Ok(lease);
        }
        let seconds = need.saturating_add(need / 2).as_secs().saturating_add(1).min(LONGEST);
        let (lease, lasts) = grant(i64::try_from(seconds).unwrap_or(i64::MAX)).await?;
        if let Some(ends) = asked.checked_add(lasts) {
            self.table().insert(ends, lease);
        }
        Ok(lease)
    }

    /// The first that outlives `need`, unless it does so by too much. Those that have ended are dropped.
    fn find(&self, need: Duration, now: Instant) -> Option<i64> {
        let mut table = self.table();
        if table.first_key_value().is_some_and(|(ends, _)| *ends <= now) {
            *table = table.split_off(&now);
        }
        let (ends, lease) = table.range(now.checked_add(need)?..).next()?;
        (*ends <= now.checked_add(need.saturating_mul(2))?).then_some(*lease)
    }

    /// Forgets a lease that the server does not know.
    pub(crate) fn forget(&self, lease: i64) {
        self.table().retain(|_, known| *known != lease);
    }

    pub(crate) fn len(&self) -> usize {
        self.table().len()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<Instant, i64>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::error::not_sent;

    const MARGIN: Duration = Duration::from_secs(60);

    struct Server {
        granted: AtomicI64,
        leases: Leases,
    }

    impl Server {
        fn new() -> Self {
            Self { granted: AtomicI64::new(0), leases: Leases::new(MARGIN) }
        }

        /// The lease, and how much longer it lasts.
        async fn lease(&self, lifetime: Duration) -> (i64, Duration) {
            let grant = |seconds: i64| async move {
                let lease = self.granted.fetch_add(1, Ordering::SeqCst) + 1;
                Ok((lease, Duration::from_secs(seconds.unsigned_abs())))
            };
            let lease = self.leases.lease(lifetime, grant).await.unwrap();
            let table = self.leases.table();
            let (ends, _) = table.iter().find(|(_, known)| **known == lease).unwrap();
            (lease, *ends - Instant::now())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_never_outlives_its_lease_and_leases_are_few() {
        let server = Server::new();
        let lifetimes = [1, 5, 60, 3_600, 86_400].map(Duration::from_secs);
        let mut most = 0;
        for step in 0..20_000_u32 {
            for lifetime in lifetimes {
                let (_, left) = server.lease(lifetime).await;
                assert!(left >= lifetime + MARGIN, "{lifetime:?} on a lease with {left:?} left");
                assert!(left <= 2 * (lifetime + MARGIN) + Duration::from_secs(1), "{lifetime:?} for {left:?}");
            }
            most = most.max(server.leases.len());
            tokio::time::advance(Duration::from_millis(500 + u64::from(step % 7))).await;
        }
        assert!(most <= 20, "{most} leases at a time");
        // Over nearly three hours: the shortest needs one every half minute.
        assert!(server.granted.load(Ordering::SeqCst) <= 450, "{:?} granted", server.granted);
    }

    #[tokio::test]
    async fn a_lease_that_the_server_lost_is_asked_for_anew() {
        let server = Server::new();
        let (first, _) = server.lease(Duration::from_secs(5)).await;
        assert_eq!(server.lease(Duration::from_secs(5)).await.0, first);
        server.leases.forget(first);
        assert_ne!(server.lease(Duration::from_secs(5)).await.0, first);
    }

    #[tokio::test]
    async fn a_lifetime_of_centuries_is_cut_to_what_there_is() {
        let server = Server::new();
        let (_, left) = server.lease(Duration::from_micros(1 << 52)).await;
        assert!(left > Duration::from_micros(1 << 52), "{left:?}");
        let (_, left) = server.lease(Duration::from_micros(1 << 53)).await;
        assert!(left <= Duration::from_secs(LONGEST), "{left:?}");
        let refused = |_: i64| async { Err(Failure::Away(not_sent("away"))) };
        assert!(server.leases.lease(Duration::from_secs(1), refused).await.is_err());
    }
}
