//! What every history is held against, whatever was done to the store meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use limiter_core::{Key, Limit, Op};

use crate::case::Failure;
use crate::fault::figure::Figure;
use crate::fault::ground::Means;
use crate::fault::scene::{METER, METER_KEY, METER_LIMIT, Scene};
use crate::history::{Answer, Call, History, Replay, Window};
use crate::subject::Stored;
use crate::workload::{PROCESSES, Plan};

/// How far a decision's instant may lie outside its call, in µs: two clocks of one machine, of which one may be slewed.
const SLACK: u64 = 25_000;
/// How much longer than it counts a store may keep a key.
const KEPT: Duration = Duration::from_secs(2);
/// What a call may take beyond the engine's timeout, on a machine that is never late.
const LATE: Duration = Duration::from_millis(50);

/// What became of the history of a row's clients.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) replay: Replay,
    /// The fullest period of each key.
    windows: Vec<Window>,
    pub(crate) once: OnceAudit,
    /// Units that the meter counts beyond what its calls explain, or short of it.
    pub(crate) unexplained: u64,
    /// Decisions whose instant lies outside their call.
    pub(crate) stale: u64,
    pub(crate) worst_call: Duration,
    /// Half and 99 of a hundred calls that were decided took no longer.
    pub(crate) p99: Duration,
    /// Stored keys without an expiry, and those that are kept longer than they count; None if the store does not tell.
    pub(crate) lifetimes: Option<(u64, u64)>,
    /// Whether one clock gives all instants, so that none lies before that of an earlier version.
    one_clock: bool,
    backward: Duration,
    lag: Duration,
    timeout: Duration,
}

/// What became of the calls whose key nobody else asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnceAudit {
    pub(crate) calls: u64,
    /// Took more than its one unit.
    pub(crate) twice: u64,
    /// Told not to be sent or to be denied, and took its unit; or was denied at all, of a fresh key.
    pub(crate) false_no: u64,
    /// Told to be allowed, and the store does not have it.
    pub(crate) vanished: u64,
    /// How long before the latest call of all the earliest of those was answered, in µs.
    pub(crate) vanished_at: Option<u64>,
    /// Not known, and took its unit.
    pub(crate) quota_lost: u64,
}

/// What a row lets pass that others don't.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuse {
    /// The store may lose writes: the row bounds them.
    pub(crate) lost: bool,
    /// The store's clock was set off.
    pub(crate) clock: bool,
    /// Calls may take as long as they like.
    pub(crate) slow: bool,
}

impl Audit {
    pub(crate) fn of(scene: &Scene<'_>, history: &History, plan: &Plan) -> Result<Self, Failure> {
        // First, while the states are there that the history left behind.
        let lifetimes = lifetimes(scene, history)?;
        let once = once(scene, history, plan)?;
        let unexplained = meter(scene, history)?;
        let real = plan.is_real_time();
        let took = |call: &Call| Duration::from_micros(call.returned.saturating_sub(call.invoked));
        let mut decided: Vec<Duration> =
            history.calls.iter().filter(|call| matches!(call.answer, Answer::Decided { .. })).map(took).collect();
        decided.sort_unstable();
        let windows = if real { history.windows() } else { Vec::new() };
        Ok(Self {
            replay: history.replay(scene.site.versions()),
            windows,
            once,
            unexplained,
            stale: if real { stale(scene, history) } else { 0 },
            worst_call: history.calls.iter().map(took).max().unwrap_or_default(),
            p99: decided.get(decided.len() * 99 / 100).copied().unwrap_or_default(),
            lifetimes,
            one_clock: scene.probe.has_one_clock()?,
            backward: scene.site.backward(),
            lag: scene.lag(),
            timeout: scene.site.longest_wait(),
        })
    }

    /// The longest that a call may take: the engine's timeout, and what a machine may be late by that was seen to be.
    pub(crate) fn longest_call(&self) -> Duration {
        self.timeout + LATE + self.lag
    }

    /// The figures of every row, each with its bound.
    pub(crate) fn figures(&self, excuse: Excuse) -> Vec<Figure> {
        let mut figures = vec![
            Figure::count("calls", self.replay.calls),
            Figure::count("differences", self.replay.differences).at_most(0),
            Figure::count("unknown", self.replay.unknown),
            Figure::count("not sent", self.replay.not_sent),
            Figure::count("consumed twice", self.once.twice).at_most(0),
            Figure::count("told no and charged", self.once.false_no).at_most(0),
            Figure::count("quota lost", self.once.quota_lost),
        ];
        if !excuse.lost {
            let lost = self.replay.lost.iter().map(|lost| lost.cost).sum();
            figures.push(Figure::count("lost writes", lost).at_most(0));
            figures.push(Figure::count("admitted and gone", self.once.vanished).at_most(0));
            figures.push(Figure::count("meter unexplained", self.unexplained).at_most(0));
        }
        if !excuse.clock {
            figures.push(Figure::count("stale instants", self.stale).at_most(0));
            if self.one_clock && !excuse.lost {
                let backward = Duration::from_micros(self.replay.backward);
                figures.push(Figure::time("instants back", backward).within(self.backward));
            }
            if !excuse.lost && !self.windows.is_empty() {
                figures.push(self.window("window max", |window| window.bound));
            }
        }
        if !excuse.slow {
            figures.push(Figure::time("worst call", self.worst_call).within(self.longest_call()));
        }
        if let Some((immortal, long)) = self.lifetimes {
            figures.push(Figure::count("keys without expiry", immortal).at_most(0));
            if !excuse.clock {
                figures.push(Figure::count("keys kept too long", long).at_most(0));
            }
        }
        figures
    }

    /// The fullest window, beside what this allows.
    pub(crate) fn window(&self, name: &str, bound: impl Fn(&Window) -> u64) -> Figure {
        nearest(name, &self.windows, bound)
    }

    /// Takes the differences from replays of parts of the history.
    pub(crate) fn replay_parts(&mut self, parts: impl IntoIterator<Item = Replay>) {
        (self.replay.differences, self.replay.told) = (0, Vec::new());
        for part in parts {
            self.replay.differences += part.differences;
            self.replay.told.extend(part.told);
        }
    }

    /// What was different, in words.
    pub(crate) fn told(&self) -> &[String] {
        &self.replay.told
    }
}

/// The window that is nearest to its bound, or furthest beyond it; of those the one with the largest bound.
pub(crate) fn nearest(name: &str, windows: &[Window], bound: impl Fn(&Window) -> u64) -> Figure {
    let share = |window: &&Window| {
        let bound = bound(window);
        (u128::from(window.most) * 1_000 / u128::from(bound.max(1)), bound)
    };
    let worst = windows.iter().max_by_key(share);
    Figure::count(name, worst.map_or(0, |window| window.most)).at_most(worst.map_or(0, bound))
}

fn stale(scene: &Scene<'_>, history: &History) -> u64 {
    let outside = |call: &&Call| match call.answer {
        Answer::Decided { at, .. } => {
            let at = at.micros();
            at + SLACK < scene.wall(call.invoked) || at > scene.wall(call.returned) + SLACK
        }
        _ => false,
    };
    u64::try_from(history.calls.iter().filter(outside).count()).unwrap_or(u64::MAX)
}

fn once(scene: &Scene<'_>, history: &History, plan: &Plan) -> Result<OnceAudit, Failure> {
    let keys = plan.once_keys();
    let asked: Vec<(&Key, &Call)> = history
        .calls
        .iter()
        .filter_map(|call| match call.checks.as_slice() {
            [asked] if keys.contains(&asked.key) => Some((history.keys.get(asked.key)?, call)),
            _ => None,
        })
        .collect();
    let limit = Scene::once_limit()?;
    let left = scene.probe.left(asked.iter().map(|(key, _)| *key), limit, None)?;
    let latest = history.calls.iter().map(|call| call.returned).max().unwrap_or_default();
    let mut audit = OnceAudit { calls: u64::try_from(asked.len())?, ..OnceAudit::default() };
    for ((_, call), left) in asked.into_iter().zip(left) {
        let taken = limit.capacity() - left;
        audit.twice += u64::from(taken > 1);
        match call.answer {
            Answer::Decided { allowed: true, .. } if taken == 0 => {
                audit.vanished += 1;
                let age = latest.saturating_sub(call.returned);
                audit.vanished_at = audit.vanished_at.max(Some(age));
            }
            Answer::Decided { allowed: true, .. } => {}
            // Of a key that is fresh, whoever says so.
            Answer::Decided { allowed: false, .. } | Answer::Remembered { .. } => audit.false_no += 1,
            Answer::NotSent => audit.false_no += u64::from(taken > 0),
            Answer::Unknown => audit.quota_lost += u64::from(taken > 0),
        }
    }
    Ok(audit)
}

/// Units that the store counts and no call explains, or that were admitted and the store does not count.
fn meter(scene: &Scene<'_>, history: &History) -> Result<u64, Failure> {
    let (Some(key), Some(limit)) = (history.keys.get(METER_KEY), history.limits.get(METER_LIMIT)) else { return Ok(0) };
    let metered: Limit = METER.parse()?;
    if *limit != metered {
        return Ok(0);
    }
    let left = scene.probe.left([key], metered, None)?;
    let consumed = metered.capacity() - left.first().copied().unwrap_or_default();
    let ledger = history.ledger(METER_KEY);
    let (least, most) = (ledger.admitted, ledger.admitted + ledger.unknown);
    Ok(consumed.saturating_sub(most).max(least.saturating_sub(consumed)))
}

/// Keys without an expiry, and keys that the store keeps longer than they count.
fn lifetimes(scene: &Scene<'_>, history: &History) -> Result<Option<(u64, u64)>, Failure> {
    if scene.site.lack(Means::StoredKeys).is_some() {
        return Ok(None);
    }
    let mut counts: HashMap<&str, Duration> = HashMap::new();
    for call in history.calls.iter().filter(|call| call.op == Op::Take) {
        for asked in &call.checks {
            if let (Some(key), Some(limit)) = (history.keys.get(asked.key), history.limits.get(asked.limit)) {
                let longest = counts.entry(key.as_str()).or_default();
                *longest = (*longest).max(counts_for(limit));
            }
        }
    }
    let stored = scene.ground.stored(scene.scope())?;
    let too_long = |stored: &&Stored| {
        let counts = stored.key.find("rl:{").and_then(|start| counts.get(stored.key.get(start..)?));
        stored.lifetime.zip(counts).is_some_and(|(lifetime, counts)| lifetime > *counts + KEPT)
    };
    let immortal = stored.iter().filter(|stored| stored.lifetime.is_none()).count();
    let long = stored.iter().filter(too_long).count();
    Ok(Some((u64::try_from(immortal)?, u64::try_from(long)?)))
}

/// The longest that a state under this limit counts.
fn counts_for(limit: &Limit) -> Duration {
    let fills = u128::from(limit.capacity()) * limit.period().as_micros() / u128::from(limit.amount().max(1));
    let fills = Duration::from_micros(u64::try_from(fills).unwrap_or(u64::MAX));
    // A sliding counter counts for two windows.
    fills.max(2 * limit.period())
}

/// When the store answered again after it was healed: of each client the first call that began then and was decided, and of those
/// the last. None if a client had no such call.
pub(crate) fn recovered(history: &History, healed: u64) -> Option<Duration> {
    let mut first: HashMap<u32, u64> = HashMap::new();
    for call in history.calls.iter().filter(|call| call.process < PROCESSES) {
        let first = first.entry(call.process).or_insert(u64::MAX);
        if call.invoked >= healed && matches!(call.answer, Answer::Decided { .. }) {
            *first = (*first).min(call.returned);
        }
    }
    let last = first.into_values().max()?;
    (last != u64::MAX).then(|| Duration::from_micros(last.saturating_sub(healed)))
}

/// As a figure, with the bound of 2 s and what the machine was late by.
pub(crate) fn recovery(scene: &Scene<'_>, history: &History, healed: u64) -> Figure {
    let bound = Duration::from_secs(2) + scene.lag();
    match recovered(history, healed) {
        Some(time) => Figure::time("recovered", time).within(bound),
        // Never, as far as the row could see.
        None => Figure::count("clients that did not recover", 1).at_most(0),
    }
}
