//! The contract a second time: slow, in big rationals, and in other shapes than the core's.
//!
//! | machine | the core keeps | the oracle keeps |
//! | --- | --- | --- |
//! | windows, counter | one state that rolls | units of every window there ever was |
//! | log | prefix sums, searched | a list, filtered |
//! | buckets | one instant (GCRA's TAT) and a rest | tokens, a fraction, refilled over time |
//!
//! Only `admits` is written out per machine. What remains and when to come back are *searched* with it, from their
//! definitions in the contract: the largest cost that is admitted, the first instant at which it is.
//!
//! Two things the contract's page leaves open, and its worked examples settle: for a clock that went back, a sliding
//! counter's previous window weighs fully; and it is an admission that drops the log's expired entries, so that after a denial they
//! would count again for a clock that went back.

use std::collections::BTreeMap;

use limiter_core::{Algorithm, Limit};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};

/// One key under one limit.
#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    limit: Limit,
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    /// Units taken, by the number of their window on the epoch's grid.
    Windows(BTreeMap<u64, u64>),
    /// Units taken, with their instants.
    Log(Vec<(u64, u64)>),
    /// Tokens held at an instant; none if the bucket was never used.
    Tokens(Option<(BigRational, u64)>),
}

/// A decision's fields, waits in µs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
    pub(crate) retry_after: Option<u64>,
    pub(crate) reset_after: u64,
    pub(crate) delay: u64,
}

impl Oracle {
    pub(crate) fn fresh(limit: Limit) -> Self {
        let kept = match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingCounter => Kept::Windows(BTreeMap::new()),
            Algorithm::SlidingLog => Kept::Log(Vec::new()),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Kept::Tokens(None),
        };
        Self { limit, kept }
    }

    fn period(&self) -> u64 {
        u64::try_from(self.limit.period().as_micros()).unwrap()
    }

    /// Whether `cost` is admitted at `now`.
    pub(crate) fn admits(&self, now: u64, cost: u64) -> bool {
        cost == 0 || whole(cost) <= self.room(now)
    }

    /// What fits at `now`, as a fraction.
    fn room(&self, now: u64) -> BigRational {
        let amount = whole(self.limit.amount());
        match &self.kept {
            Kept::Windows(units) => {
                let window = self.window(now);
                let taken = |window: u64| whole(units.get(&window).copied().unwrap_or(0));
                let mut estimate = taken(window);
                if self.limit.algorithm() == Algorithm::SlidingCounter && window > 0 {
                    let elapsed = whole(now.saturating_sub(window * self.period()));
                    let share = (whole(self.period()) - elapsed) / whole(self.period());
                    estimate += taken(window - 1) * share;
                }
                amount - estimate
            }
            Kept::Log(entries) => {
                let counts = entries.iter().filter(|(at, _)| self.counts(*at, now));
                amount - counts.map(|(_, cost)| whole(*cost)).sum::<BigRational>()
            }
            Kept::Tokens(_) => self.tokens(now),
        }
    }

    /// The window that is in force: the one of `now`, unless the clock went back after a later one was used.
    fn window(&self, now: u64) -> u64 {
        let Kept::Windows(units) = &self.kept else { return 0 };
        let newest = units.keys().next_back().copied().unwrap_or(0);
        newest.max(now / self.period())
    }

    fn counts(&self, at: u64, now: u64) -> bool {
        at + self.period() > now
    }

    /// Tokens held at `now`: below zero if the clock went back to before they were gained.
    fn tokens(&self, now: u64) -> BigRational {
        let full = whole(self.limit.capacity());
        let Kept::Tokens(Some((tokens, at))) = &self.kept else { return full };
        let elapsed = whole(now) - whole(*at);
        full.min(tokens + elapsed * whole(self.limit.amount()) / whole(self.period()))
    }

    /// The decision on a cost that is not taken.
    pub(crate) fn peek(&self, now: u64, cost: u64) -> Answer {
        let allowed = self.admits(now, cost);
        Answer {
            allowed,
            remaining: self.remaining(now),
            retry_after: (!allowed).then(|| first(|wait| self.admits(now + wait, cost))),
            reset_after: self.reset_after(now),
            delay: 0,
        }
    }

    /// The decision on a cost that is taken if it is admitted; none if it could never be.
    pub(crate) fn take(&mut self, now: u64, cost: u64) -> Option<Answer> {
        if cost > self.limit.capacity() {
            return None;
        }
        let before = self.clone();
        if cost == 0 || !self.admits(now, cost) {
            return Some(before.peek(now, cost));
        }
        self.charge(now, cost);
        let delay = if self.limit.algorithm() == Algorithm::LeakyBucket { before.drained_after(now) } else { 0 };
        Some(Answer {
            allowed: true,
            remaining: self.remaining(now),
            retry_after: None,
            reset_after: self.reset_after(now),
            delay,
        })
    }

    fn charge(&mut self, now: u64, cost: u64) {
        let (window, left, period) = (self.window(now), self.tokens(now), self.period());
        match &mut self.kept {
            Kept::Windows(units) => *units.entry(window).or_default() += cost,
            Kept::Log(entries) => {
                let newest = entries.last().map_or(0, |(at, _)| *at);
                entries.retain(|(at, _)| at + period > now);
                entries.push((now.max(newest), cost));
            }
            Kept::Tokens(tokens) => *tokens = Some((left - whole(cost), now)),
        }
    }

    /// Gives back `cost` units taken at `taken`.
    pub(crate) fn refund(&mut self, now: u64, cost: u64, taken: u64) {
        let (window, held, period) = (self.window(now), self.tokens(now), self.period());
        let full = whole(self.limit.capacity());
        match &mut self.kept {
            Kept::Windows(units) if taken / period == window => {
                units.entry(window).and_modify(|units| *units = units.saturating_sub(cost));
            }
            Kept::Log(entries) if taken + period > now => {
                let mut owed = cost;
                for (at, units) in entries.iter_mut() {
                    if *at >= taken && *at + period > now {
                        let given = owed.min(*units);
                        *units -= given;
                        owed -= given;
                    }
                }
                entries.retain(|(_, units)| *units > 0);
            }
            Kept::Tokens(tokens) if held < full => *tokens = Some((full.min(held + whole(cost)), now)),
            // The window or the log has rolled on, or the bucket is full.
            Kept::Windows(_) | Kept::Log(_) | Kept::Tokens(_) => {}
        }
    }

    /// The largest cost that is admitted at `now`.
    fn remaining(&self, now: u64) -> u64 {
        let (mut fits, mut most) = (0, self.limit.capacity());
        while fits < most {
            let middle = fits + (most - fits).div_ceil(2);
            if self.admits(now, middle) {
                fits = middle;
            } else {
                most = middle - 1;
            }
        }
        fits
    }

    /// A key is as good as never used once all that a fresh one admits is admitted again.
    fn reset_after(&self, now: u64) -> u64 {
        first(|wait| self.admits(now + wait, self.limit.capacity()))
    }

    /// How long until a leaky bucket has let out all that is in it, in whole µs.
    fn drained_after(&self, now: u64) -> u64 {
        let level = whole(self.limit.capacity()) - self.tokens(now);
        let time = level * whole(self.period()) / whole(self.limit.amount());
        time.ceil().to_integer().to_u64().unwrap()
    }
}

fn whole(number: u64) -> BigRational {
    if number == 0 { BigRational::zero() } else { BigRational::from_integer(BigInt::from(number)) }
}

/// The smallest number for which `holds`, which once true stays true.
fn first(holds: impl Fn(u64) -> bool) -> u64 {
    if holds(0) {
        return 0;
    }
    let (mut not, mut yes) = (0, 1);
    while !holds(yes) {
        (not, yes) = (yes, yes * 2);
    }
    while yes - not > 1 {
        let middle = not + (yes - not) / 2;
        if holds(middle) {
            yes = middle;
        } else {
            not = middle;
        }
    }
    yes
}
