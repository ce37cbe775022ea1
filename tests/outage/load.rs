//! Callers that never stop, and what they see.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limiter::{BackendExt, Check, CheckError, Key, Limit, Op, Source, Stack};
use tokio::task::JoinHandle;

/// Each has the failure policy of its name.
pub(crate) const RULES: [&str; 3] = ["open", "closed", "local"];
/// Keys of each rule.
pub(crate) const KEYS: u64 = 4;
/// What the fallback rule lets pass in an hour: little, so that its shares are used up in an outage.
pub(crate) const LOCAL_LIMIT: u64 = 200;
/// Callers at each node.
const CALLERS: u64 = 8;
/// What each does between two calls.
const PAUSE: Duration = Duration::from_millis(2);
/// How often the timer is looked at.
const TICK: Duration = Duration::from_millis(20);

pub(crate) fn limit(rule: &str) -> Limit {
    let text = if rule == "local" { format!("{LOCAL_LIMIT}/1h sliding-log") } else { "1000000/1h fixed-window".into() };
    text.parse().unwrap()
}

pub(crate) fn key(rule: &str, key: u64) -> Key {
    Key::new("tenant", rule, [key.to_string()])
}

/// What callers of a rule saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) store_allowed: u64,
    pub(crate) store_denied: u64,
    pub(crate) cache_denied: u64,
    pub(crate) local_allowed: u64,
    pub(crate) local_denied: u64,
    pub(crate) open: u64,
    pub(crate) not_sent: u64,
    pub(crate) unknown: u64,
    /// Told to go on.
    pub(crate) went_on: u64,
    pub(crate) worst: Duration,
}

impl Seen {
    /// By the verdict alone, whatever its source.
    pub(crate) fn passed(&self) -> u64 {
        self.went_on
    }

    pub(crate) fn refused(&self) -> u64 {
        self.store_denied + self.cache_denied + self.local_denied
    }

    pub(crate) fn failed(&self) -> u64 {
        self.not_sent + self.unknown
    }

    pub(crate) fn degraded(&self) -> u64 {
        self.open + self.local_allowed + self.local_denied
    }

    pub(crate) fn store(&self) -> u64 {
        self.store_allowed + self.store_denied + self.cache_denied
    }

    fn add(&mut self, told: &Result<limiter::Decision, CheckError>, took: Duration) {
        self.worst = self.worst.max(took);
        let count = match told {
            Ok(told) => {
                self.went_on += u64::from(told.allowed);
                match (told.source, told.allowed) {
                    (Source::Store, true) => &mut self.store_allowed,
                    (Source::Store, false) => &mut self.store_denied,
                    (Source::Cache, false) => &mut self.cache_denied,
                    (Source::Local, true) => &mut self.local_allowed,
                    (Source::Local, false) => &mut self.local_denied,
                    (Source::Open, true) => &mut self.open,
                    other => unreachable!("{other:?}"),
                }
            }
            Err(CheckError::NotSent(_)) => &mut self.not_sent,
            Err(CheckError::Unknown(_)) => &mut self.unknown,
            Err(error) => unreachable!("{error}"),
        };
        *count += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.store_allowed, other.store_allowed),
            (&mut self.store_denied, other.store_denied),
            (&mut self.cache_denied, other.cache_denied),
            (&mut self.local_allowed, other.local_allowed),
            (&mut self.local_denied, other.local_denied),
            (&mut self.open, other.open),
            (&mut self.not_sent, other.not_sent),
            (&mut self.unknown, other.unknown),
            (&mut self.went_on, other.went_on),
        ] {
            *mine += theirs;
        }
        self.worst = self.worst.max(other.worst);
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "store {:>5} allowed {:>5} denied, cache {:>5} denied, local {:>4} allowed {:>5} denied, open {:>5}, \
             not sent {:>5}, unknown {:>3}, worst {:>8.1?}",
            self.store_allowed,
            self.store_denied,
            self.cache_denied,
            self.local_allowed,
            self.local_denied,
            self.open,
            self.not_sent,
            self.unknown,
            self.worst
        )
    }
}

/// Callers at all nodes.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    /// Of the present phase.
    seen: Arc<Mutex<[Seen; 3]>>,
    past: Mutex<[Seen; 3]>,
    callers: Vec<JoinHandle<()>>,
    late: JoinHandle<Duration>,
}

/// What was seen from beginning to end.
pub(crate) struct All {
    pub(crate) seen: [Seen; 3],
    /// How late a timer was at worst: as much later may a caller have been told on this machine.
    pub(crate) late: Duration,
}

impl Load {
    pub(crate) fn start(nodes: &[Arc<Stack>]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen: Arc<Mutex<[Seen; 3]>> = Arc::default();
        let callers = nodes.iter().flat_map(|node| (0..CALLERS).map(|caller| (Arc::clone(node), caller)));
        let callers = callers.map(|(node, caller)| {
            let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
            tokio::spawn(async move {
                let mut turn = caller;
                while !stop.load(Ordering::Relaxed) {
                    let (rule, number) = (usize::try_from(turn % 3).unwrap(), turn / 3 % KEYS);
                    let check = Check::new(key(RULES[rule], number), limit(RULES[rule]), 1);
                    let asked = Instant::now();
                    let told = node.ask_one(Op::Take, check).await;
                    let took = asked.elapsed();
                    seen.lock().unwrap()[rule].add(&told, took);
                    turn += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            })
        });
        let callers = callers.collect();
        let late = tokio::spawn({
            let stop = Arc::clone(&stop);
            async move {
                let mut late = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    tokio::time::sleep(TICK).await;
                    late = late.max(begun.elapsed().saturating_sub(TICK));
                }
                late
            }
        });
        Self { stop, seen, past: Mutex::default(), callers, late }
    }

    /// What is seen from now on for so long.
    pub(crate) async fn phase(&self, length: Duration) -> [Seen; 3] {
        self.cut();
        tokio::time::sleep(length).await;
        self.cut()
    }

    /// What was seen since the last cut.
    fn cut(&self) -> [Seen; 3] {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let mut past = self.past.lock().unwrap();
        past.iter_mut().zip(&seen).for_each(|(past, seen)| past.merge(seen));
        seen
    }

    pub(crate) async fn stop(self) -> All {
        self.stop.store(true, Ordering::Relaxed);
        for caller in std::mem::take(&mut { self.callers }) {
            caller.await.unwrap();
        }
        let late = self.late.await.unwrap();
        let last = std::mem::take(&mut *self.seen.lock().unwrap());
        let mut seen = self.past.into_inner().unwrap();
        seen.iter_mut().zip(&last).for_each(|(seen, last)| seen.merge(last));
        All { seen, late }
    }
}
