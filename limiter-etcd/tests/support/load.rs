//! Tasks that ask without a pause while something happens to the store, and the account of what they were told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use limiter_core::{Backend, Batch, Check, Key, Limit, Op, Outcome, Request};
use limiter_etcd::Etcd;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) not_sent: AtomicU64,
    pub(crate) unknown: AtomicU64,
    /// Of what was allowed.
    pub(crate) versions: Mutex<Vec<u64>>,
    answered: Mutex<Option<Instant>>,
    /// The longest time without any answer.
    pub(crate) gap: Mutex<Duration>,
    pub(crate) longest_call: Mutex<Duration>,
    stop: AtomicBool,
}

pub(crate) fn request(op: Op, part: &str, limit: Limit) -> Request {
    Request::new(op, [Check::new(Key::new("t", "load", [part]), limit, 1)]).unwrap()
}

impl Account {
    pub(crate) async fn note(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Allowed(record) => {
                self.versions.lock().await.push(record.layers()[0].version);
                &self.allowed
            }
            Outcome::Denied(_) => &self.denied,
            Outcome::NotSent(_) => &self.not_sent,
            Outcome::Unknown(_) => &self.unknown,
        };
        counter.fetch_add(1, Ordering::SeqCst);
        if outcome.record().is_ok() {
            let now = Instant::now();
            let before = self.answered.lock().await.replace(now);
            let mut gap = self.gap.lock().await;
            *gap = gap.max(before.map_or(Duration::ZERO, |before| now - before));
        }
    }

    pub(crate) fn told(&self) -> [u64; 4] {
        [&self.allowed, &self.denied, &self.not_sent, &self.unknown].map(|counter| counter.load(Ordering::SeqCst))
    }

    /// The longest time without an answer since the last time that this was asked.
    pub(crate) async fn take_gap(&self) -> Duration {
        let open = self.answered.lock().await.map_or(Duration::ZERO, |answered| answered.elapsed());
        std::mem::take(&mut *self.gap.lock().await).max(open)
    }
}

/// `tasks` tasks that ask each of these nodes for the key, until they are stopped.
pub(crate) fn start(nodes: &[Arc<Etcd>], tasks: usize, part: &'static str, limit: Limit) -> Load {
    let account = Arc::new(Account::default());
    let running = nodes.iter().flat_map(|node| std::iter::repeat_n(node, tasks)).map(|node| {
        let (node, account) = (Arc::clone(node), Arc::clone(&account));
        tokio::spawn(async move {
            while !account.stop.load(Ordering::SeqCst) {
                let started = Instant::now();
                let outcomes = node.submit(Arc::new(Batch::of(request(Op::Take, part, limit)))).await;
                let mut longest = account.longest_call.lock().await;
                *longest = longest.max(started.elapsed());
                drop(longest);
                account.note(&outcomes[0]).await;
                if outcomes[0].record().is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        })
    });
    Load { running: running.collect(), account, part, limit }
}

pub(crate) struct Load {
    running: Vec<JoinHandle<()>>,
    pub(crate) account: Arc<Account>,
    part: &'static str,
    limit: Limit,
}

impl Load {
    /// Waits until so many more were allowed.
    pub(crate) async fn allowed_more(&self, more: u64) -> Duration {
        let started = Instant::now();
        let until = self.account.allowed.load(Ordering::SeqCst) + more;
        while self.account.allowed.load(Ordering::SeqCst) < until {
            assert!(started.elapsed() < Duration::from_secs(60), "no more is allowed: {:?}", self.account);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        started.elapsed()
    }

    /// Stops the tasks, and checks the account against the store's: each admission has a version of its own and is stored,
    /// and what is stored besides is not known.
    pub(crate) async fn audit(self, node: &Etcd) -> Arc<Account> {
        self.account.stop.store(true, Ordering::SeqCst);
        for task in self.running {
            task.await.unwrap();
        }
        let peek = request(Op::Peek, self.part, self.limit);
        let started = Instant::now();
        let left = loop {
            let outcome = node.submit(Arc::new(Batch::of(peek.clone()))).await.remove(0);
            match outcome.decisions(&peek) {
                Ok(decisions) => break decisions.layers()[0].remaining,
                Err(error) => assert!(started.elapsed() < Duration::from_secs(60), "no answer to a peek: {error}"),
            }
        };
        let [allowed, _, _, unknown] = self.account.told();
        let taken = self.limit.capacity() - left;
        assert!((allowed..=allowed + unknown).contains(&taken), "{taken} taken, {allowed} told, {unknown} not known");
        let mut versions = self.account.versions.lock().await.clone();
        versions.sort_unstable();
        let (first, last) = (versions[0], versions[versions.len() - 1]);
        versions.dedup();
        assert_eq!(u64::try_from(versions.len()).unwrap(), allowed, "no version was given twice");
        let missing = last - first + 1 - allowed;
        assert!(missing <= unknown, "{missing} versions are missing, and {unknown} calls are not known");
        self.account
    }
}
