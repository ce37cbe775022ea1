//! What the laws are tried on: random limits, and random traces that seek out their edges.

use std::time::Duration;

use limiter_core::{
    Algorithm, Cell, Check, Decision, Instant, Key, Limit, MAX_AMOUNT, MAX_BURST, MAX_LOG, MAX_PERIOD, Op, Request,
    decide,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Cases of a property, unless `PROPTEST_CASES` says otherwise.
pub(crate) fn cases(usually: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { usually };
    ProptestConfig { cases, ..default }
}

/// Any limit: small and round ones, primes (7 per 13 s), and those at the bounds.
pub(crate) fn limits() -> impl Strategy<Value = Limit> {
    select(&Algorithm::ALL[..]).prop_flat_map(limits_of)
}

/// Any limit of this algorithm.
pub(crate) fn limits_of(algorithm: Algorithm) -> impl Strategy<Value = Limit> {
    (amounts(), periods(), amounts(), any::<bool>())
        .prop_filter_map("out of bounds", move |(amount, period, capacity, sized)| {
            limit(algorithm, amount, period, sized.then_some(capacity))
        })
}

/// The limit with `capacity` for its burst or queue, if it is within the bounds. A log's amount is brought into its own.
pub(crate) fn limit(algorithm: Algorithm, amount: u64, period: Duration, capacity: Option<u64>) -> Option<Limit> {
    let amount = amount.min(MAX_AMOUNT);
    match algorithm {
        Algorithm::FixedWindow => Limit::fixed_window(amount, period),
        Algorithm::SlidingLog => Limit::sliding_log((amount - 1) % MAX_LOG + 1, period),
        Algorithm::SlidingCounter => Limit::sliding_counter(amount, period),
        Algorithm::TokenBucket => Limit::token_bucket(amount, period).burst(capacity.unwrap_or(amount)),
        Algorithm::LeakyBucket => Limit::leaky_bucket(amount, period).queue(capacity.unwrap_or(amount).min(MAX_AMOUNT)),
    }
    .build()
    .ok()
}

fn amounts() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=12_u64,
        2 => 1..=MAX_LOG,
        1 => 1..=MAX_BURST,
        1 => select(vec![MAX_LOG, MAX_AMOUNT - 1, MAX_AMOUNT, MAX_BURST]),
    ]
}

fn periods() -> impl Strategy<Value = Duration> {
    let longest = u64::try_from(MAX_PERIOD.as_micros()).unwrap();
    prop_oneof![
        4 => select(vec![1_000_000, 7_000_000, 13_000_000, 60_000_000]),
        2 => select(vec![1_000, 1_001, 86_399_999_999, longest - 1, longest]),
        2 => 1_000..=longest,
    ]
    .prop_map(Duration::from_micros)
}

/// One step of a trace, told relative to where the trace then is: so it can aim at an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) wait: Wait,
    pub(crate) cost: Cost,
    pub(crate) op: Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Take,
    Peek,
    /// Gives back what the last admitted take took, all of it or a part.
    Refund,
    Reset,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    None,
    Micro,
    /// What the last decision told, or 1 µs less.
    Retry,
    AlmostRetry,
    Reset,
    AlmostReset,
    /// To the next edge of the epoch's grid, or 1 µs less.
    Edge,
    AlmostEdge,
    /// So many 255ths of the period.
    Part(u8),
    /// The clock goes back by so many 128ths of the period.
    Back(u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Units(u64),
    /// What remained after the last decision, or one more.
    Remaining,
    OneMore,
    Capacity,
    OverCapacity,
    /// So many 255ths of the capacity.
    Part(u8),
}

fn waits(back: bool) -> impl Strategy<Value = Wait> {
    let edges = vec![Wait::Retry, Wait::AlmostRetry, Wait::Reset, Wait::AlmostReset, Wait::Edge, Wait::AlmostEdge];
    prop_oneof![
        2 => select(vec![Wait::None, Wait::Micro]),
        4 => select(edges),
        3 => any::<u8>().prop_map(Wait::Part),
        u32::from(back) => any::<u8>().prop_map(Wait::Back),
    ]
}

pub(crate) fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![
        4 => (0..=3_u64).prop_map(Cost::Units),
        3 => select(vec![Cost::Remaining, Cost::OneMore, Cost::Capacity, Cost::OverCapacity]),
        3 => any::<u8>().prop_map(Cost::Part),
    ]
}

/// Traces of takes. `back`: the clock goes back now and then.
pub(crate) fn takes(back: bool) -> impl Strategy<Value = Trace> {
    let step = (waits(back), costs()).prop_map(|(wait, cost)| Step { wait, cost, op: Ask::Take });
    traces(step)
}

/// Traces of all operations. `back`: the clock goes back now and then.
pub(crate) fn operations(back: bool) -> impl Strategy<Value = Trace> {
    let op = prop_oneof![
        8 => Just(Ask::Take),
        1 => Just(Ask::Peek),
        2 => Just(Ask::Refund),
        1 => Just(Ask::Reset),
    ];
    traces((waits(back), costs(), op).prop_map(|(wait, cost, op)| Step { wait, cost, op }))
}

fn traces(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Trace> {
    let start =
        prop_oneof![Just(0), Just(1_764_559_423_123_456), Just(Instant::MAX.micros()), 0..=Instant::MAX.micros(),];
    (limits(), start, prop::collection::vec(step, 1..24)).prop_map(|(limit, start, steps)| Trace {
        limit,
        start,
        steps,
    })
}

/// A limit, and what is asked under it.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) limit: Limit,
    pub(crate) start: u64,
    pub(crate) steps: Vec<Step>,
}

impl Trace {
    pub(crate) fn walk(&self) -> Walk {
        Walk::new(self.limit, self.start)
    }
}

/// A key as the core sees it, on its way along a trace.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) limit: Limit,
    pub(crate) cell: Cell,
    pub(crate) now: u64,
    /// The last decision.
    pub(crate) last: Option<Decision>,
    /// Cost and instant of the last admitted take, until it is given back.
    pub(crate) taken: Option<(u64, Instant)>,
}

impl Walk {
    pub(crate) fn new(limit: Limit, now: u64) -> Self {
        Self { limit, cell: Cell::default(), now, last: None, taken: None }
    }

    pub(crate) fn at(&self) -> Instant {
        Instant::from_micros(self.now).unwrap()
    }

    pub(crate) fn period(&self) -> u64 {
        micros(self.limit.period())
    }

    /// Moves to the step's instant, and tells the cost it asks.
    pub(crate) fn go(&mut self, step: Step) -> u64 {
        let period = self.period();
        let retry = self.last.and_then(|last| last.retry_after).map_or(0, micros);
        let reset = self.last.map_or(0, |last| micros(last.reset_after));
        let forward = match step.wait {
            Wait::None | Wait::Back(_) => 0,
            Wait::Micro => 1,
            Wait::Retry => retry,
            Wait::AlmostRetry => retry.saturating_sub(1),
            Wait::Reset => reset,
            Wait::AlmostReset => reset.saturating_sub(1),
            Wait::Edge => period - self.now % period,
            Wait::AlmostEdge => period - self.now % period - 1,
            Wait::Part(part) => period / 255 * u64::from(part),
        };
        let back = if let Wait::Back(part) = step.wait { period / 128 * u64::from(part) + 1 } else { 0 };
        self.now = (self.now + forward).min(Instant::MAX.micros()).saturating_sub(back);
        let (capacity, remaining) = (self.limit.capacity(), self.last.map_or(0, |last| last.remaining));
        match step.cost {
            Cost::Units(units) => units,
            Cost::Remaining => remaining,
            Cost::OneMore => remaining + 1,
            Cost::Capacity => capacity,
            Cost::OverCapacity => capacity + 1,
            Cost::Part(part) => capacity / 255 * u64::from(part) + u64::from(part) % capacity,
        }
    }

    /// Moves to the step's instant and takes its cost; none if that could never pass.
    pub(crate) fn step(&mut self, step: Step) -> Option<(u64, Decision)> {
        let cost = self.go(step);
        self.take(cost).map(|decision| (cost, decision))
    }

    pub(crate) fn take(&mut self, cost: u64) -> Option<Decision> {
        let decision = self.ask(Op::Take, cost)?;
        if decision.allowed {
            self.taken = Some((cost, decision.at));
        }
        self.last = Some(decision);
        Some(decision)
    }

    /// Asks at `self.now`; none if the request is refused for its cost.
    pub(crate) fn ask(&mut self, op: Op, cost: u64) -> Option<Decision> {
        let key = Key::new("", "laws", ["key"]);
        let request = Request::new(op, [Check::new(key, self.limit, cost)]).ok()?;
        let record = decide(&request, self.at(), &mut self.cell);
        Some(record.decisions(&request).unwrap().layers()[0])
    }

    pub(crate) fn refund(&mut self, cost: u64, taken: Instant) -> Decision {
        self.ask(Op::Refund { taken }, cost).unwrap()
    }

    /// The decision for a cost at another instant, on a copy of the key. None past the last instant.
    pub(crate) fn decision_at(&self, now: u64, cost: u64) -> Option<Decision> {
        let now = Instant::from_micros(now).ok()?.micros();
        Self { now, ..self.clone() }.ask(Op::Peek, cost)
    }

    pub(crate) fn admits(&self, now: u64, cost: u64) -> Option<bool> {
        self.decision_at(now, cost).map(|decision| decision.allowed)
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
