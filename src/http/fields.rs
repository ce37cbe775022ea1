//! The response fields that tell a client its limits, each once.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::{Extensions, HeaderMap};
use limiter_core::{Algorithm, Limit};

use crate::policy::{Answer, RuleAnswer};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_LATENCY: HeaderName = HeaderName::from_static("x-ratelimit-latency-ms");

/// The largest integer of a structured field: 15 digits.
const LARGEST: u64 = 999_999_999_999_999;

/// What `X-RateLimit-Reset` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// Seconds from now, rounded up.
    #[default]
    Seconds,
    /// Seconds since the Unix epoch, rounded up, as GitHub has it.
    Epoch,
}

/// Which response fields a layer writes.
///
/// By default the IETF's `RateLimit-Policy` and `RateLimit` (draft 11: structured fields, an item for each rule, the tightest
/// first) and the three `X-RateLimit-*` for the tightest rule. `Retry-After` comes with every refusal for a time.
///
/// Each field is there **once**, also where layers are nested or the service wrote it itself: lists are joined, and of the single
/// values the tighter stays.
#[derive(Clone, Debug)]
#[must_use]
pub struct Fields {
    ietf: bool,
    x: Option<Reset>,
    latency: bool,
    jitter: Duration,
}

impl Default for Fields {
    fn default() -> Self {
        Self { ietf: true, x: Some(Reset::default()), latency: false, jitter: Duration::ZERO }
    }
}

impl Fields {
    /// None but `Retry-After`: strangers need not know how much is left to whom.
    pub fn none() -> Self {
        Self { ietf: false, x: None, ..Self::default() }
    }

    /// `RateLimit-Policy` and `RateLimit`.
    pub fn ietf(mut self, written: bool) -> Self {
        self.ietf = written;
        self
    }

    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, or none of them.
    pub fn x_rate_limit(mut self, reset: Option<Reset>) -> Self {
        self.x = reset;
        self
    }

    /// `X-RateLimit-Latency-Ms`: how long the decision took, in milliseconds with three decimals.
    pub fn latency(mut self, written: bool) -> Self {
        self.latency = written;
        self
    }

    /// At most this much is added to `Retry-After`, at random and in whole seconds, so that all who were refused in one window do
    /// not come back in the same second.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }

    /// Seconds until a retry makes sense: rounded up, and never 0.
    pub(super) fn retry_after(&self, wait: Duration) -> u64 {
        let most = self.jitter.as_secs();
        let spread = if most == 0 { 0 } else { random() % most.saturating_add(1) };
        seconds(wait).max(1).saturating_add(spread)
    }

    /// Writes them over what is there already.
    pub(super) fn write(&self, headers: &mut HeaderMap, extensions: &mut Extensions, answer: &Answer, took: Duration) {
        if self.latency {
            let micros = took.as_micros();
            insert(headers, X_LATENCY, format!("{}.{:03}", micros / 1_000, micros % 1_000));
        }
        // Where nobody decided there is no number to tell.
        let Some(tightest) = answer.tightest() else { return };
        let inner: Option<Tightness> = extensions.get().copied();
        let ours = Tightness::of(tightest);
        let is_ours = inner.is_none_or(|inner| ours < inner);
        if is_ours {
            extensions.insert(ours);
        }
        if let Some(reset) = self.x {
            let told = headers.get(X_REMAINING).and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
            // Told by a layer of ours, or by the service itself.
            let stays = if inner.is_some() { !is_ours } else { told.is_some_and(|told| told < ours.remaining) };
            if !stays || told.is_none() {
                insert(headers, X_LIMIT, tightest.decision.limit);
                insert(headers, X_REMAINING, tightest.decision.remaining);
                insert(headers, X_RESET, reset_field(reset, reset_after(tightest)));
            }
        }
        if self.ietf {
            let mut rules: Vec<&RuleAnswer> = answer.rules.iter().collect();
            rules.sort_by_key(|rule| Tightness::of(rule));
            join(headers, POLICY, &rules, is_ours, policy_item);
            join(headers, STATE, &rules, is_ours, state_item);
        }
    }

    pub(super) fn write_retry_after(&self, headers: &mut HeaderMap, wait: Duration) {
        insert(headers, RETRY_AFTER, self.retry_after(wait));
    }
}

/// What makes one limit tighter than another: it refuses, then the longer wait, then how little is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tightness {
    allows: bool,
    sooner: std::cmp::Reverse<Duration>,
    remaining: u64,
}

impl Tightness {
    fn of(rule: &RuleAnswer) -> Self {
        Self {
            allows: rule.decision.allowed,
            sooner: std::cmp::Reverse(rule.decision.retry_after.unwrap_or_default()),
            remaining: rule.decision.remaining,
        }
    }
}

/// How long what is told holds: until the same request would pass, or until all is back.
fn reset_after(rule: &RuleAnswer) -> Duration {
    rule.decision.retry_after.unwrap_or(rule.decision.reset_after)
}

fn reset_field(reset: Reset, after: Duration) -> u64 {
    match reset {
        Reset::Seconds => seconds(after),
        Reset::Epoch => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            seconds(now.saturating_add(after))
        }
    }
}

/// `"daily";q=10000;w=86400`
fn policy_item(rule: &RuleAnswer) -> String {
    let mut item = format!("{};q={}", string(&rule.rule), rule.decision.limit.min(LARGEST));
    // A window under a second can't be told.
    if let Some(window) = window(&rule.limit) {
        let _infallible = write!(item, ";w={window}");
    }
    item
}

/// `"daily";r=9999;t=3600`
fn state_item(rule: &RuleAnswer) -> String {
    let (left, after) = (rule.decision.remaining.min(LARGEST), seconds(reset_after(rule)).min(LARGEST));
    format!("{};r={left};t={after}", string(&rule.rule))
}

/// The seconds in which the whole quota comes anew: the period, or what a bucket takes to fill, rounded up.
fn window(limit: &Limit) -> Option<u64> {
    let period = limit.period().as_micros();
    let micros = match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            (u128::from(limit.capacity()) * period).div_ceil(u128::from(limit.amount()))
        }
        _ => period,
    };
    (micros >= 1_000_000).then(|| u64::try_from(micros.div_ceil(1_000_000)).unwrap_or(LARGEST).min(LARGEST))
}

/// A structured field's string. A rule's name has none of these; a name by another way might.
fn string(text: &str) -> String {
    let mut string = String::with_capacity(text.len() + 2);
    string.push('"');
    for character in text.chars().filter(|character| matches!(character, ' '..='~')) {
        if matches!(character, '"' | '\\') {
            string.push('\\');
        }
        string.push(character);
    }
    string.push('"');
    string
}

/// Joins the items of all lines and ours to one line. A rule that is told already is not told again: the inner layer saw it later.
fn join(
    headers: &mut HeaderMap,
    name: HeaderName,
    rules: &[&RuleAnswer],
    first: bool,
    item: fn(&RuleAnswer) -> String,
) {
    let told: Vec<String> = headers
        .get_all(&name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .map(|line| line.trim().to_owned())
        .collect();
    let told = told.join(", ");
    let ours: Vec<String> = rules
        .iter()
        .filter(|rule| !told.contains(&format!("{};", string(&rule.rule))))
        .map(|rule| item(rule))
        .collect();
    let ours = ours.join(", ");
    let (front, back) = if first { (ours, told) } else { (told, ours) };
    let separator = if front.is_empty() || back.is_empty() { "" } else { ", " };
    insert(headers, name, format!("{front}{separator}{back}"));
}

/// Sets a field to a value of digits and plain characters. What is none is left out, not a panic.
#[expect(clippy::needless_pass_by_value, reason = "numbers and texts that were made for it")]
pub(super) fn insert(headers: &mut HeaderMap, name: HeaderName, value: impl ToString) {
    if let Ok(value) = HeaderValue::try_from(value.to_string()) {
        headers.insert(name, value);
    }
}

/// Whole seconds, rounded up.
pub(super) fn seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// A number that is different each time. Nothing but a spread hangs on it.
fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}
