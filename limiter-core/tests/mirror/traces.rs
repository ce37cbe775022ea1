//! Random traces, of a seed: batches that hit edges, bounds and each other.

use std::sync::Arc;

use limiter_core::{Batch, Check, Instant, Key, Limit, Op, Outcome, Request};

/// Small, fast and the same everywhere: splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// 0 … bound, small ones and those near the bound more often.
    fn skewed(&mut self, bound: u64) -> u64 {
        match self.below(6) {
            0 => 0,
            1 | 2 => self.below(4).min(bound),
            3 => bound - self.below(3).min(bound),
            4 => self.below(bound + 1) >> self.below(40),
            _ => self.below(bound + 1),
        }
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(u64::try_from(from.len()).unwrap());
        &from[usize::try_from(index).unwrap()]
    }
}

/// Limits of all five algorithms; within a row they follow each other on one key, as when a configuration changes.
const LIMITS: [&[&str]; 20] = [
    &["1/1ms fixed-window", "3/7ms fixed-window"],
    &["100/1m fixed-window", "7/13s fixed-window", "1000/1h fixed-window"],
    &["1000000000000/366d fixed-window", "999999999989/365d fixed-window"],
    &["1/1ms sliding-log", "2/3ms sliding-log"],
    &["5/1s sliding-log", "50/10s sliding-log", "3/500ms sliding-log"],
    &["100000/1m sliding-log", "40/1m sliding-log"],
    &["200/1s sliding-log", "100000/366d sliding-log"],
    &["1/1ms sliding-counter", "3/2ms sliding-counter"],
    &["100/1m sliding-counter", "7/13s sliding-counter"],
    &["1000000000000/366d sliding-counter", "999999999989/365d sliding-counter"],
    &["999999999989/100d sliding-counter", "1000000000000/1ms sliding-counter"],
    &["10/1s token-bucket burst=100", "7/13s token-bucket", "10/1s token-bucket burst=3"],
    &["1/366d token-bucket burst=142", "3/366d token-bucket burst=400", "1000000000000/1ms token-bucket"],
    &["999999999989/366d token-bucket burst=1000000000001", "1000000/1s token-bucket burst=1"],
    &["3/1ms token-bucket burst=50", "999999999989/1ms token-bucket burst=1000000000001"],
    &["5/1s leaky-bucket queue=20", "7/13s leaky-bucket queue=2"],
    &["1000000000000/366d leaky-bucket", "7/366d leaky-bucket queue=900"],
    // The algorithm changes too.
    &["10/1s sliding-log", "10/1s token-bucket", "10/1s fixed-window", "10/1s sliding-counter"],
    &["30/1m leaky-bucket queue=9", "30/1m sliding-log", "30/1m token-bucket"],
    &["12/20ms sliding-log", "12/20ms sliding-counter"],
];

/// A lone clock and a few keys.
pub(crate) struct Trace {
    random: Random,
    /// How many batches it has.
    pub(crate) length: u32,
    /// The most equal requests that follow each other, and the most requests that are thought up for one batch.
    equal: u64,
    width: u64,
    now: u64,
    keys: Vec<(Key, Vec<Limit>)>,
    /// What came before: requests, to ask them again; and instants, to refund what was taken at them.
    requests: Vec<Request>,
    taken: Vec<u64>,
    /// The edges that the last answers told.
    edges: Vec<u64>,
}

/// Leaves room for the versions, which grow from the instant and are exact below 2^53.
const LATEST: u64 = (1 << 53) - 10_000_000;

impl Trace {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let now = *random.pick(&[0, 1, 86_400_000_000, 1_764_559_423_123_456, LATEST - 3_000_000, LATEST >> 1]);
        let keys = (0..=random.below(4))
            .map(|number| {
                let row = random.pick(&LIMITS);
                let limits = row.iter().map(|limit| limit.parse().unwrap()).collect();
                (Key::new("t", "mirror", [number.to_string()]), limits)
            })
            .collect();
        // Long traces of single checks, in which logs grow; and short ones of wide batches with long folds.
        let (length, equal, width) = if random.one_in(2) { (150, 3, 2) } else { (25, 300, 12) };
        Self { random, length, equal, width, now, keys, requests: Vec::new(), taken: Vec::new(), edges: Vec::new() }
    }

    pub(crate) fn batch(&mut self) -> Arc<Batch> {
        self.tick();
        let mut requests = Vec::new();
        let length = if self.random.one_in(3) { 1 } else { 1 + self.random.below(self.width) };
        for _ in 0..length {
            let Some(request) = self.request() else { continue };
            let equal = match self.random.below(8) {
                0 => self.random.below(self.equal),
                1 | 2 => self.random.below(self.equal.min(9)),
                _ => 0,
            };
            requests.extend((0..=equal).map(|_| request.clone()));
            if self.random.one_in(4)
                && let Some(earlier) = requests.first().cloned()
            {
                requests.push(earlier);
            }
            self.requests.push(request);
        }
        self.taken.push(self.now);
        Arc::new(Batch { requests, at: Some(Instant::from_micros(self.now).unwrap()) })
    }

    /// Moves the clock: often not at all, or to an edge that an answer told, or one µs before; seldom back.
    fn tick(&mut self) {
        let period = self.keys[0].1[0].period();
        let period = u64::try_from(period.as_micros()).unwrap();
        self.now = match self.random.below(16) {
            0..=2 => self.now,
            3 => self.now + 1,
            4 | 5 => self.now + self.random.below(period / 8 + 2),
            6 | 7 => self.now + self.random.below(2 * period + 2),
            8..=11 if !self.edges.is_empty() => *self.random.pick(&self.edges) - self.random.below(2),
            12 => self.now - self.now % period + period,
            13 if self.random.one_in(4) => self.now.saturating_sub(self.random.below(3 * period)),
            14 if self.random.one_in(30) => self.random.below(LATEST),
            _ => self.now + self.random.below(period / 64 + 2),
        };
        self.now = self.now.min(LATEST);
    }

    fn request(&mut self) -> Option<Request> {
        if !self.requests.is_empty() && self.random.one_in(3) {
            let at = self.requests.len() - 1 - usize::try_from(self.random.below(3)).unwrap() % self.requests.len();
            return self.requests.get(at).cloned();
        }
        let op = match self.random.below(20) {
            0..=13 => Op::Take,
            14 | 15 => Op::Peek,
            16..=18 => {
                let taken = if self.taken.is_empty() || self.random.one_in(8) {
                    self.random.below(LATEST)
                } else {
                    *self.random.pick(&self.taken)
                };
                let taken = if self.random.one_in(3) { self.now } else { taken };
                Op::Refund { taken: Instant::from_micros(taken).unwrap() }
            }
            _ => Op::Reset,
        };
        let mut checks = Vec::new();
        let several = self.random.one_in(3);
        for index in 0..self.keys.len() {
            if (several || checks.is_empty()) && !self.random.one_in(3) {
                let (key, limits) = self.keys[index].clone();
                let limit = if self.random.one_in(6) { *self.random.pick(&limits) } else { limits[0] };
                let cost = self.random.skewed(limit.capacity());
                checks.push(Check::new(key, limit, cost));
            }
        }
        Request::new(op, checks).ok()
    }

    /// Remembers when what was refused passes, and when what was charged is gone.
    pub(crate) fn learn(&mut self, request: &Request, outcome: &Outcome) {
        let Ok(decisions) = outcome.decisions(request) else { return };
        if self.edges.len() > 64 {
            self.edges.clear();
        }
        for decision in decisions.layers() {
            for wait in [decision.retry_after.unwrap_or_default(), decision.reset_after] {
                self.edges.push((self.now + u64::try_from(wait.as_micros()).unwrap()).max(1));
            }
        }
    }
}
