//! What may pass: an algorithm, an amount, a period, and for buckets a size.

mod text;

use std::fmt;
use std::time::Duration;

use crate::fraction::mul_div_rem;

/// The largest amount, and the largest queue.
pub const MAX_AMOUNT: u64 = 1_000_000_000_000;
/// The largest burst, and the largest cost.
///
/// One more than [`MAX_AMOUNT`]: the worked example `token-bucket-20` of the contract has a burst of
/// 10^12 + 1 and spends it at once.
pub const MAX_BURST: u64 = MAX_AMOUNT + 1;
/// The shortest period: 1 ms.
pub const MIN_PERIOD: Duration = Duration::from_millis(1);
/// The longest period: 366 days.
pub const MAX_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The longest that a bucket may take to fill or to drain, (burst or queue) × period ÷ amount: 2^52 µs, some 142 years.
pub const MAX_HORIZON: Duration = Duration::from_micros(1 << 52);
/// The most units that a sliding log holds, since it keeps an entry for each admission.
pub const MAX_LOG: u64 = 100_000;

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A count for each window of the epoch's grid. Cheap; up to twice the amount around an edge.
    FixedWindow,
    /// Every admission with its instant. Exact over any half-open window; memory grows with the amount.
    SlidingLog,
    /// The current window's count and a weighted share of the previous one's.
    SlidingCounter,
    /// A bucket filled at a steady rate, with room for a burst.
    TokenBucket,
    /// A queue drained at a steady rate: who is admitted is told how long to wait.
    LeakyBucket,
}

impl Algorithm {
    /// All five, in the order of the contract.
    pub const ALL: [Self; 5] =
        [Self::FixedWindow, Self::SlidingLog, Self::SlidingCounter, Self::TokenBucket, Self::LeakyBucket];

    /// The name in a limit's text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed-window",
            Self::SlidingLog => "sliding-log",
            Self::SlidingCounter => "sliding-counter",
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A rate limit: `amount` units in each `period`, counted by an [`Algorithm`].
///
/// A `Limit` that exists is within the bounds of the contract, so no decision has to check them again.
/// It is `Copy`, and holds what the machines would otherwise divide out at every decision.
///
/// ```
/// use std::time::Duration;
/// use limiter_core::Limit;
///
/// let limit = Limit::token_bucket(10, Duration::from_secs(1)).burst(100).build()?;
/// assert_eq!(limit, "10/1s token-bucket burst=100".parse()?);
/// assert_eq!(limit.capacity(), 100);
/// assert_eq!(limit.to_string(), "10/1s token-bucket burst=100");
/// # Ok::<(), limiter_core::LimitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: Algorithm,
    amount: u64,
    period: u64,
    capacity: u64,
    unit: Span,
    horizon: Span,
}

/// A length of time that need not be a whole number of microseconds: `micros + rest ÷ amount`, 0 ≤ rest < amount.
///
/// The derived order is the order in time, as long as both have the same amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    pub(crate) micros: u64,
    pub(crate) rest: u64,
}

impl Limit {
    /// At most `amount` in each window of the epoch's grid that is `period` long.
    pub const fn fixed_window(amount: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(Algorithm::FixedWindow, amount, period)
    }

    /// At most `amount` in any half-open `period`. An amount over [`MAX_LOG`] is refused.
    pub const fn sliding_log(amount: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(Algorithm::SlidingLog, amount, period)
    }

    /// The weighted sum of this window and the one before is at most `amount`.
    pub const fn sliding_counter(amount: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(Algorithm::SlidingCounter, amount, period)
    }

    /// A bucket that gains `amount` tokens in each `period`; it holds [`burst`](LimitBuilder::burst), by default `amount`.
    pub const fn token_bucket(amount: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(Algorithm::TokenBucket, amount, period)
    }

    /// A queue that drains `amount` units in each `period`; it holds [`queue`](LimitBuilder::queue), by default `amount`.
    pub const fn leaky_bucket(amount: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(Algorithm::LeakyBucket, amount, period)
    }

    /// How it counts.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units in each period, 1 … 10^12.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// The period, 1 ms … 366 d, a whole number of microseconds.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The most that a fresh key admits at once: the amount, or a bucket's burst or queue.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) const fn period_micros(&self) -> u64 {
        self.period
    }

    /// How long a full bucket takes to drain, or an empty one to fill.
    pub(crate) const fn horizon(&self) -> Span {
        self.horizon
    }

    /// How long `cost` units take at this rate. Exact; `cost` is at most the capacity.
    pub(crate) fn time_for(&self, cost: u64) -> Span {
        if cost == 1 {
            return self.unit;
        }
        let (micros, rest) = mul_div_rem(cost, self.period, self.amount);
        Span { micros, rest }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limit({self})")
    }
}

/// A [`Limit`] that is still being written; [`build`](LimitBuilder::build) checks it.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LimitBuilder {
    algorithm: Algorithm,
    amount: u64,
    period: Duration,
    burst: Option<u64>,
    queue: Option<u64>,
}

impl LimitBuilder {
    const fn new(algorithm: Algorithm, amount: u64, period: Duration) -> Self {
        Self { algorithm, amount, period, burst: None, queue: None }
    }

    /// The most that a token bucket holds, 1 … 10^12 + 1.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }

    /// The most that a leaky bucket lets wait or be in service, 1 … 10^12.
    pub const fn queue(mut self, queue: u64) -> Self {
        self.queue = Some(queue);
        self
    }

    /// The limit, if it is within the bounds.
    ///
    /// # Errors
    /// [`LimitError`] names the field, its value and the bound that it breaks.
    pub fn build(self) -> Result<Limit, LimitError> {
        let Self { algorithm, amount, period, burst, queue } = self;
        check_whole("amount", amount, MAX_AMOUNT)?;
        if algorithm == Algorithm::SlidingLog && amount > MAX_LOG {
            return Err(LimitError::LogTooLong { amount });
        }
        let micros = period_micros(period)?;
        if burst.is_some() && algorithm != Algorithm::TokenBucket {
            return Err(LimitError::Misplaced { field: "burst", algorithm });
        }
        if queue.is_some() && algorithm != Algorithm::LeakyBucket {
            return Err(LimitError::Misplaced { field: "queue", algorithm });
        }
        if let Some(burst) = burst {
            check_whole("burst", burst, MAX_BURST)?;
        }
        if let Some(queue) = queue {
            check_whole("queue", queue, MAX_AMOUNT)?;
        }
        let capacity = burst.or(queue).unwrap_or(amount);
        let limit = Limit {
            algorithm,
            amount,
            period: micros,
            capacity,
            unit: span(1, micros, amount),
            horizon: span(capacity, micros, amount),
        };
        let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        // Asked of the exact product: a horizon that does not fit into 64 bits is cut in the limit.
        let horizon = (u128::from(capacity) * u128::from(micros)).div_ceil(u128::from(amount));
        if bucket && horizon > MAX_HORIZON.as_micros() {
            let field = if algorithm == Algorithm::LeakyBucket { "queue" } else { "burst" };
            return Err(LimitError::HorizonTooLong { field, capacity, micros: horizon });
        }
        Ok(limit)
    }
}

fn span(units: u64, period: u64, amount: u64) -> Span {
    let (micros, rest) = mul_div_rem(units, period, amount);
    Span { micros, rest }
}

fn check_whole(field: &'static str, value: u64, max: u64) -> Result<(), LimitError> {
    if value == 0 {
        return Err(LimitError::Zero { field });
    }
    if value > max {
        return Err(LimitError::TooLarge { field, value: value.to_string(), max });
    }
    Ok(())
}

fn period_micros(period: Duration) -> Result<u64, LimitError> {
    if !period.subsec_nanos().is_multiple_of(1000) {
        return Err(LimitError::PeriodNotWhole { period });
    }
    if period < MIN_PERIOD || period > MAX_PERIOD {
        return Err(LimitError::PeriodOutOfBounds { period: format!("{period:?}") });
    }
    u64::try_from(period.as_micros()).map_err(|_| LimitError::PeriodOutOfBounds { period: format!("{period:?}") })
}

/// Why a limit can't be built or read. Its text names the field, the value and the bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A field that must be at least 1 is 0.
    #[error("{field} 0 is under its bound of 1")]
    Zero {
        /// The field.
        field: &'static str,
    },
    /// A field is over its bound.
    #[error("{field} {value} is over its bound of {max}")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// Its value, as it was written.
        value: String,
        /// The largest value allowed.
        max: u64,
    },
    /// A sliding log keeps every admission, so its amount has a lower bound of its own.
    #[error("amount {amount} of a sliding-log is over its bound of {MAX_LOG}")]
    LogTooLong {
        /// The amount asked for.
        amount: u64,
    },
    /// The period is under 1 ms or over 366 d.
    #[error("period {period} is out of its bounds, 1ms to 366d")]
    PeriodOutOfBounds {
        /// The period asked for.
        period: String,
    },
    /// The period is not a whole number of microseconds.
    #[error("period {period:?} is not a whole number of microseconds")]
    PeriodNotWhole {
        /// The period asked for.
        period: Duration,
    },
    /// A bucket would take more than 2^52 µs to fill or drain.
    #[error(
        "{field} {capacity} takes {micros} µs to refill at this rate, over its bound of {} µs (2^52)",
        MAX_HORIZON.as_micros()
    )]
    HorizonTooLong {
        /// `burst` or `queue`.
        field: &'static str,
        /// The burst or queue.
        capacity: u64,
        /// Its horizon in µs, rounded up.
        micros: u128,
    },
    /// A burst or queue with an algorithm that has none.
    #[error("{field} does not go with {algorithm}: burst is for token-bucket, queue for leaky-bucket")]
    Misplaced {
        /// The field.
        field: &'static str,
        /// The limit's algorithm.
        algorithm: Algorithm,
    },
    /// A number that is not a whole number in decimal digits.
    #[error("{field} `{value}` is not a whole number")]
    NotWhole {
        /// The field.
        field: &'static str,
        /// The text found.
        value: String,
    },
    /// A period without a unit that is known.
    #[error("period `{value}` has no unit of us, ms, s, m, min, h, d")]
    Unit {
        /// The text found.
        value: String,
    },
    /// An algorithm that is not one of the five.
    #[error(
        "unknown algorithm `{value}`: fixed-window, sliding-log, sliding-counter, token-bucket and leaky-bucket are known"
    )]
    Algorithm {
        /// The text found.
        value: String,
    },
    /// An option that is not known, or is there twice.
    #[error("unexpected `{value}`: burst=N or queue=N may follow the algorithm, once")]
    Option {
        /// The text found.
        value: String,
    },
    /// The text is not of the form at all.
    #[error("`{text}` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]")]
    Form {
        /// The whole text.
        text: String,
    },
}
