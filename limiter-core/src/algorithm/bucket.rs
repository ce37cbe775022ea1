//! Token bucket and leaky bucket: one meter, two ways to tell.
//!
//! The meter stores one instant, the theoretical arrival time (TAT) of GCRA: when everything admitted so
//! far has drained, or the bucket is full again. It lies `debt` ahead of now; a cost passes if the debt
//! with it stays within the horizon. The TAT is whole microseconds and a rest in 1/amount µs, so that
//! 7 per 13 s is 7/13 per second for ever.
//!
//! ```text
//!    now          TAT             now + horizon
//!     │◄── debt ──►│◄──── room ────►│
//!  ───┴────────────┴────────────────┴──────► time
//! ```

use super::Answer;
use crate::decision::Decision;
use crate::fraction::mul_add_div_ceil;
use crate::instant::Instant;
use crate::limit::{Algorithm, Limit, Span};

/// The meter's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The TAT's whole microseconds since the epoch.
    pub tat: u64,
    /// What of the TAT is left, in 1/amount µs.
    pub rest: u64,
    /// The last instant at which the state was written, in µs since the epoch; it never goes back.
    ///
    /// The debt was within the horizon then. A debt past the horizon from here thus tells that the limit
    /// has changed, and not that the clock went back.
    pub seen: u64,
}

impl Bucket {
    /// The TAT as this limit counts it.
    ///
    /// Only a limit that was changed since the last write makes a difference: the debt is cut to what the
    /// new limit takes to refill, counted from that write: were it counted from now, a long debt would stay full for as
    /// long as nobody is admitted. A rest that the new amount can't have is rounded up.
    #[inline]
    fn tat(self, limit: &Limit) -> Span {
        let tat = if self.rest < limit.amount() {
            Span { micros: self.tat, rest: self.rest }
        } else {
            Span { micros: self.tat + 1, rest: 0 }
        };
        let horizon = limit.horizon();
        let latest = Span { micros: self.seen + horizon.micros, rest: horizon.rest };
        tat.min(latest)
    }

    /// How long until everything admitted so far has drained.
    #[inline]
    fn debt(self, limit: &Limit, now: Instant) -> Span {
        let tat = self.tat(limit);
        match tat.micros.checked_sub(now.micros()) {
            Some(micros) => Span { micros, rest: tat.rest },
            None => Span::default(),
        }
    }

    #[inline]
    pub(crate) fn reset_at(self) -> u64 {
        ceil(Span { micros: self.tat, rest: self.rest })
    }

    #[inline]
    pub(crate) fn admits(self, limit: &Limit, now: Instant, cost: u64) -> bool {
        cost == 0 || plus(self.debt(limit, now), limit.time_for(cost), limit) <= limit.horizon()
    }

    #[inline]
    pub(crate) fn take(&mut self, limit: &Limit, now: Instant, cost: u64) {
        let debt = plus(self.debt(limit, now), limit.time_for(cost), limit);
        self.owe(debt, now);
    }

    /// Gives `cost` units back, never above full. A meter has no windows, so it is all the same when they were taken.
    pub(crate) fn refund(&mut self, limit: &Limit, now: Instant, cost: u64) {
        let debt = self.debt(limit, now);
        // A bucket that is full has nothing to get back; a write would move its TAT on to now.
        if debt > Span::default() {
            self.owe(minus(debt, limit.time_for(cost.min(limit.capacity())), limit), now);
        }
    }

    #[inline]
    fn owe(&mut self, debt: Span, now: Instant) {
        *self = Self { tat: now.micros() + debt.micros, rest: debt.rest, seen: self.seen.max(now.micros()) };
    }

    #[inline]
    pub(crate) fn decision(self, limit: &Limit, now: Instant, cost: u64, charged: bool) -> Decision {
        let before = self.debt(limit, now);
        let with = plus(before, limit.time_for(cost), limit);
        let allowed = cost == 0 || with <= limit.horizon();
        let after = if charged { with } else { before };
        let used = mul_add_div_ceil(after.micros, limit.amount(), after.rest, limit.period_micros());
        // A refused cost passes once the debt has shrunk by what it is too much.
        let excess = if allowed { Span::default() } else { minus(with, limit.horizon(), limit) };
        let waits = charged && limit.algorithm() == Algorithm::LeakyBucket;
        let answer = Answer {
            allowed,
            remaining: limit.capacity().saturating_sub(used),
            retry_at: now.micros() + ceil(excess),
            reset_at: now.micros() + ceil(after),
            delay: if waits { ceil(before) } else { 0 },
        };
        answer.decision(limit, now)
    }
}

#[inline]
fn ceil(span: Span) -> u64 {
    span.micros + u64::from(span.rest > 0)
}

/// a + b; the rests are both below the amount, so one carry is enough.
#[inline]
fn plus(a: Span, b: Span, limit: &Limit) -> Span {
    let rest = a.rest + b.rest;
    let carry = u64::from(rest >= limit.amount());
    Span { micros: a.micros + b.micros + carry, rest: rest - carry * limit.amount() }
}

/// a − b, or nothing where b is more.
#[inline]
fn minus(a: Span, b: Span, limit: &Limit) -> Span {
    if a <= b {
        return Span::default();
    }
    let borrow = u64::from(a.rest < b.rest);
    Span { micros: a.micros - b.micros - borrow, rest: a.rest + borrow * limit.amount() - b.rest }
}
