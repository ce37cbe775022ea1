//! Numbers drawn from a target's bytes. Where there are no more, all are 0.

use std::time::Duration;

use limiter_core::{Algorithm, Instant, Limit, LimitBuilder, MAX_AMOUNT, MAX_BURST, MAX_LOG, MAX_PERIOD, MIN_PERIOD};

pub(crate) struct Draw<'a>(pub(crate) &'a [u8]);

impl<'a> Draw<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.number(1).to_le_bytes()[0]
    }

    /// A number of that many bytes, the least first.
    pub(crate) fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// From 0 to `bound`: a small one, one close to the bound, or any.
    pub(crate) fn up_to(&mut self, bound: u64) -> u64 {
        match self.byte() % 4 {
            0 => self.number(1).min(bound),
            1 => self.number(4).min(bound),
            2 => bound.saturating_sub(self.number(1)),
            _ => self.number(8) % (bound + 1),
        }
    }

    /// Any instant, or one close to `known`.
    pub(crate) fn instant(&mut self, known: Instant) -> Instant {
        let micros = match self.byte() % 4 {
            0 => known.micros(),
            1 => known.micros() + self.number(5),
            2 => known.micros().saturating_sub(self.number(5)),
            _ => self.up_to(Instant::MAX.micros()),
        };
        Instant::EPOCH.saturating_add(Duration::from_micros(micros))
    }

    /// A limit within the bounds, unless its bucket has too long a horizon.
    pub(crate) fn limit(&mut self) -> Option<Limit> {
        let algorithm = Algorithm::ALL[usize::from(self.byte()) % Algorithm::ALL.len()];
        let most = if algorithm == Algorithm::SlidingLog { MAX_LOG } else { MAX_AMOUNT };
        let amount = 1 + self.up_to(most - 1);
        let shortest = micros(MIN_PERIOD);
        let period = Duration::from_micros(shortest + self.up_to(micros(MAX_PERIOD) - shortest));
        let build: fn(u64, Duration) -> LimitBuilder = match algorithm {
            Algorithm::FixedWindow => Limit::fixed_window,
            Algorithm::SlidingLog => Limit::sliding_log,
            Algorithm::SlidingCounter => Limit::sliding_counter,
            Algorithm::TokenBucket => |amount, period| Limit::token_bucket(amount, period),
            Algorithm::LeakyBucket => |amount, period| Limit::leaky_bucket(amount, period),
        };
        let mut limit = build(amount, period);
        match algorithm {
            Algorithm::TokenBucket => limit = limit.burst(1 + self.up_to(MAX_BURST - 1)),
            Algorithm::LeakyBucket => limit = limit.queue(1 + self.up_to(MAX_AMOUNT - 1)),
            _ => {}
        }
        limit.build().ok()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
