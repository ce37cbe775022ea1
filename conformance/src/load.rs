//! Load on a store, and what it costs: for benches, and for the command that measures a user's own store.
//!
//! ```
//! use std::time::Duration;
//! use limiter_conformance::load;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let load = load::closed(4, Duration::from_millis(20), |_turn| async {
//!     tokio::task::yield_now().await;
//!     true
//! })
//! .await;
//! assert!(load.answered() > 0 && load.failed == 0);
//! println!("{} a second, p99 {:?}", load.per_second(), load.quantile(0.99));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

/// How many questions a task asks before it takes new numbers for them and tells how long they took.
const AT_ONCE: u64 = 64;

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Load {
    /// Questions that were not answered as they should be.
    pub failed: u64,
    /// From the first question to the last answer.
    pub elapsed: Duration,
    /// The waits of those that were answered, in ns, to three digits.
    latency: Histogram<u64>,
}

impl Load {
    /// A load that something else was put to: how long it took, and how long each answer was waited for.
    #[must_use]
    pub fn of(elapsed: Duration, waits: impl IntoIterator<Item = Duration>) -> Self {
        let mut tally = Tally::new();
        waits.into_iter().for_each(|waited| tally.count(true, waited));
        Self { failed: tally.failed, elapsed, latency: tally.latency }
    }

    /// How many questions were answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.latency.len()
    }

    /// Answers in a second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        let nanos = self.elapsed.as_nanos().max(1);
        u64::try_from(u128::from(self.answered()) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    }

    /// How long the part `quantile` (0 to 1) of the answers took at the longest.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latency.value_at_quantile(quantile))
    }

    /// `cost` of the whole load for each answer.
    #[must_use]
    pub fn each(&self, cost: Duration) -> Duration {
        let nanos = cost.as_nanos() / u128::from(self.answered().max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A closed loop: `tasks` tasks, each of which asks again as soon as it is answered, for `span`.
///
/// `ask` is given the number of the question, which no two have, and says whether the answer is as it should be.
pub async fn closed<F, Fut>(tasks: u32, span: Duration, ask: F) -> Load
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = bool> + Send + 'static,
{
    let (ask, turn) = (Arc::new(ask), Arc::new(AtomicU64::new(0)));
    // As many tallies as threads. One for each task would be a hundred kilobytes each, and what the processor's caches lose to
    // them is then counted against the store. So is what threads lose that take turns at one number or one tally for each question,
    // so a task does that once in a while.
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let tallies: Arc<[Mutex<Tally>]> = (0..threads).map(|_| Mutex::new(Tally::new())).collect();
    let started = Instant::now();
    let mut running = JoinSet::new();
    for place in (0..threads).cycle().zip(0..tasks).map(|(place, _)| place) {
        let (ask, turn, tallies) = (Arc::clone(&ask), Arc::clone(&turn), Arc::clone(&tallies));
        running.spawn(async move {
            let mut asked = Instant::now();
            let mut seen = Vec::new();
            while asked.duration_since(started) < span {
                let first = turn.fetch_add(AT_ONCE, Ordering::Relaxed);
                for number in first..first.saturating_add(AT_ONCE) {
                    let answered = ask(number).await;
                    let now = Instant::now();
                    seen.push((answered, now.duration_since(asked)));
                    asked = now;
                    if asked.duration_since(started) >= span {
                        break;
                    }
                }
                if let Some(tally) = tallies.get(place) {
                    let mut tally = lock(tally);
                    seen.drain(..).for_each(|(answered, waited)| tally.count(answered, waited));
                }
            }
        });
    }
    let mut all = Tally::new();
    while let Some(ended) = running.join_next().await {
        all.failed += u64::from(ended.is_err());
    }
    let elapsed = started.elapsed();
    tallies.iter().for_each(|tally| all.add(&lock(tally)));
    Load { failed: all.failed, elapsed, latency: all.latency }
}

/// An open loop: `per_second` questions a second for `span`, whether or not those before are answered.
///
/// **A wait counts from the instant at which the question was due**, not from when it was sent: a store that stands still for a
/// second has made all those wait who would have come meanwhile (what is else known as coordinated omission).
pub async fn open<F, Fut>(per_second: u32, span: Duration, ask: F) -> Load
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = bool> + Send + 'static,
{
    let ask = Arc::new(ask);
    let per_second = per_second.max(1);
    let started = Instant::now();
    let mut running = JoinSet::new();
    let mut done = Tally::new();
    for turn in 0..u64::MAX {
        let due = Duration::from_nanos(turn.saturating_mul(1_000_000_000) / u64::from(per_second));
        if due >= span {
            break;
        }
        tokio::time::sleep_until((started + due).into()).await;
        let ask = Arc::clone(&ask);
        running.spawn(async move { (ask(turn).await, (started + due).elapsed()) });
        while let Some(ended) = running.try_join_next() {
            done.count_ended(&ended);
        }
    }
    while let Some(ended) = running.join_next().await {
        done.count_ended(&ended);
    }
    Load { failed: done.failed, elapsed: started.elapsed(), latency: done.latency }
}

/// The CPU time that process `pid` has used so far, to 10 ms.
///
/// # Errors
/// If there is no such process, or no `/proc` to read it from.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything; the numbers come after it.
    let ticks = text.rsplit_once(')').and_then(|(_, fields)| {
        let mut fields = fields.split_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<u64>().ok();
        next()?.checked_add(next()?)
    });
    let ticks = ticks.ok_or_else(|| io::Error::other("/proc tells no CPU time"))?;
    Ok(Duration::from_millis(ticks.saturating_mul(10)))
}

/// What some tasks have seen.
#[derive(Debug)]
struct Tally {
    failed: u64,
    latency: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        // Three digits are within what the histogram allows.
        let latency = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"));
        Self { failed: 0, latency }
    }

    fn count(&mut self, answered: bool, waited: Duration) {
        if answered {
            // The histogram grows as it needs.
            let recorded = self.latency.record(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
            debug_assert!(recorded.is_ok());
        } else {
            self.failed += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        self.failed += other.failed;
        // Both grow as they need, so that one always takes the other in.
        let added = self.latency.add(&other.latency);
        debug_assert!(added.is_ok());
    }

    fn count_ended(&mut self, ended: &Result<(bool, Duration), tokio::task::JoinError>) {
        match ended {
            Ok((answered, waited)) => self.count(*answered, *waited),
            Err(_) => self.failed += 1,
        }
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_counts_from_when_the_question_was_due() {
        // One at a time, 5 ms each, due every 1 ms: the last of 20 waits for all before it.
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        let load = open(1000, Duration::from_millis(20), move |_| {
            let turn = Arc::clone(&turn);
            async move {
                let _mine = turn.lock().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
                true
            }
        })
        .await;
        assert_eq!(load.answered(), 20);
        assert!(load.quantile(1.0) >= Duration::from_millis(60), "{:?}", load.quantile(1.0));
    }

    #[tokio::test]
    async fn failures_are_counted_apart() {
        let load = closed(3, Duration::from_millis(10), |turn| async move {
            tokio::task::yield_now().await;
            turn % 2 == 0
        })
        .await;
        assert!(load.failed > 0 && load.answered() > 0);
    }

    #[test]
    fn this_process_has_used_cpu_time() {
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(60) {
            std::hint::spin_loop();
        }
        assert!(cpu_time(std::process::id()).is_ok_and(|used| used >= Duration::from_millis(10)));
        assert!(cpu_time(u32::MAX).is_err());
    }
}
