//! The deny cache refuses what the engine would refuse, and nothing else: any trace, asked with and without it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use limiter::layer::DenyCache;
use limiter::{Algorithm, Backend, Batch, Check, Decisions, Instant, Key, Limit, Memory, Op, Outcome, Request, Source};
use proptest::prelude::*;
use tokio::time;

use crate::engine::{Engine, TokioClock, check, limit, paused, request, submit, take};

const MAX_AGE: Duration = Duration::from_hours(1);

/// Two limits of each algorithm, small enough that most is refused: a key takes either.
const LIMITS: [[&str; 2]; 5] = [
    ["3/10s fixed-window", "5/7s fixed-window"],
    ["3/10s sliding-log", "6/13s sliding-log"],
    ["3/10s sliding-counter", "5/7s sliding-counter"],
    ["7/13s token-bucket burst=3", "2/10s token-bucket"],
    ["3/10s leaky-bucket", "7/13s leaky-bucket queue=5"],
];

/// A key that is asked, the limit it has at present, and units.
type Term = (usize, u64);

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Take(Vec<Term>),
    Peek(Term),
    /// Gives back what the take of that number took.
    Refund(usize),
    Reset(usize),
    /// The key has its other limit from now on.
    Change(usize),
    /// Several takes in one batch.
    Batch(Vec<Vec<Term>>),
    /// Another node takes, past this layer.
    Elsewhere(Term),
}

fn term() -> impl Strategy<Value = Term> {
    (0..LIMITS.len(), 1_u64..=3)
}

fn layered() -> impl Strategy<Value = Vec<Term>> {
    prop_oneof![4 => prop::collection::vec(term(), 1), 1 => prop::collection::vec(term(), 2..4)].prop_map(
        |mut terms| {
            terms.sort_unstable();
            terms.dedup_by_key(|(key, _)| *key);
            terms
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop_oneof![Just(1), 1..1_000_000_u64, 1_000_000..20_000_000_u64].prop_map(Step::Pass),
        12 => layered().prop_map(Step::Take),
        1 => term().prop_map(Step::Peek),
        1 => any::<usize>().prop_map(Step::Refund),
        1 => (0..LIMITS.len()).prop_map(Step::Reset),
        1 => (0..LIMITS.len()).prop_map(Step::Change),
        2 => prop::collection::vec(layered(), 1..5).prop_map(Step::Batch),
        1 => term().prop_map(Step::Elsewhere),
    ];
    prop::collection::vec(step, 1..120)
}

/// An engine that is asked through the cache, and one that is asked itself.
struct Pair {
    engine: Arc<Engine>,
    cached: DenyCache,
    plain: Memory<TokioClock>,
    /// Which of its limits each key has.
    present: [usize; LIMITS.len()],
    /// Keys that others took of, so that what is remembered is older than the state.
    elsewhere: [bool; LIMITS.len()],
    /// Takes that passed: when, and what.
    taken: Vec<(Instant, Vec<Check>)>,
}

impl Pair {
    fn new() -> Self {
        let engine = Engine::new();
        let cached = DenyCache::builder().max_age(MAX_AGE).wrap(Arc::<Engine>::clone(&engine));
        let plain = Memory::builder().clock(TokioClock::start()).build();
        let (present, elsewhere) = ([0; LIMITS.len()], [false; LIMITS.len()]);
        Self { engine, cached, plain, present, elsewhere, taken: Vec::new() }
    }

    fn check(&self, (key, cost): Term) -> Check {
        check(&key.to_string(), LIMITS[key][self.present[key]], cost.min(self.capacity(key)))
    }

    fn capacity(&self, key: usize) -> u64 {
        limit(LIMITS[key][self.present[key]]).capacity()
    }

    fn checks(&self, terms: &[Term]) -> Vec<Check> {
        terms.iter().map(|term| self.check(*term)).collect()
    }

    /// Asks both, and holds the answers together.
    async fn ask(&mut self, requests: Vec<Request>) {
        let batch = Arc::new(Batch { requests, at: None });
        let (cached, plain) =
            (self.cached.submit(Arc::clone(&batch)).await, self.plain.submit(Arc::clone(&batch)).await);
        assert_eq!(cached.len(), batch.requests.len());
        for ((request, cached), plain) in batch.requests.iter().zip(cached).zip(plain) {
            let (cached, plain) = (cached.decisions(request).unwrap(), plain.decisions(request).unwrap());
            self.compare(request, &cached, &plain);
            if cached.allowed && request.op() == Op::Take {
                self.taken.push((cached.at, request.checks().to_vec()));
            }
        }
    }

    fn compare(&mut self, request: &Request, cached: &Decisions, plain: &Decisions) {
        let told = || format!("{request:?}:\n  cached {cached:?}\n  plain  {plain:?}");
        assert_eq!(cached.allowed, plain.allowed, "{}", told());
        assert_eq!(cached.at, plain.at, "{}", told());
        if cached.source == Source::Store {
            assert_eq!(cached, plain, "{}", told());
            return;
        }
        assert_eq!((cached.source, request.op()), (Source::Cache, Op::Take));
        assert!(cached.retry_after <= plain.retry_after && cached.retry_after.is_some(), "{}", told());
        for ((check, one), other) in request.checks().iter().zip(cached.layers()).zip(plain.layers()) {
            let overtaken = self.elsewhere[key_index(&check.key)];
            let log = check.limit.algorithm() == Algorithm::SlidingLog;
            match one.source {
                Source::Unasked => {}
                _ if overtaken => assert!(!one.allowed && !other.allowed && one.retry_after <= other.retry_after),
                _ => {
                    let mut due = *other;
                    due.source = Source::Cache;
                    if log {
                        due.remaining = due.remaining.min(one.remaining);
                    }
                    assert_eq!(*one, due, "{}", told());
                }
            }
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Pass(micros) => time::advance(Duration::from_micros(micros)).await,
            Step::Take(terms) => self.ask(vec![request(Op::Take, self.checks(&terms))]).await,
            Step::Batch(takes) => {
                self.ask(takes.iter().map(|terms| request(Op::Take, self.checks(terms))).collect()).await;
            }
            Step::Peek(term) => self.ask(vec![request(Op::Peek, [self.check(term)])]).await,
            Step::Refund(take) if !self.taken.is_empty() => {
                let (taken, checks) = self.taken.swap_remove(take % self.taken.len());
                // As a node does that was told a new limit: it gives back what it took under the old one.
                self.ask(vec![request(Op::Refund { taken }, checks)]).await;
            }
            Step::Refund(_) => {}
            Step::Reset(key) => self.ask(vec![request(Op::Reset, [self.check((key, 0))])]).await,
            Step::Change(key) => self.present[key] = 1 - self.present[key],
            Step::Elsewhere(term) => {
                let take = request(Op::Take, [self.check(term)]);
                let [here, there] = [self.engine.memory.decide(&take, None), self.plain.decide(&take, None)];
                assert_eq!(here.decisions(&take).unwrap(), there.decisions(&take).unwrap());
                self.elsewhere[term.0] = true;
            }
        }
    }
}

fn key_index(key: &Key) -> usize {
    key.rule().parse().unwrap()
}

proptest! {
    /// In one process the answers are the engine's, with and without the cache; and whatever others take, no verdict differs.
    #[test]
    fn it_answers_as_the_engine_does(steps in steps()) {
        paused().block_on(async {
            let mut pair = Pair::new();
            for step in steps {
                pair.step(step).await;
            }
        });
    }

    /// However long the road is, nothing is refused that the store would admit at that moment, and who waits as long as he is told
    /// finds the door open.
    #[test]
    fn it_never_refuses_longer_than_the_store(
        kind in 0..LIMITS.len(), to in 0..400_u64, back in 0..400_u64, waits in prop::collection::vec(1..3_000_u64, 1..30),
    ) {
        paused().block_on(async {
            let engine = Engine::new();
            let cached = DenyCache::builder().max_age(MAX_AGE).wrap(Arc::<Engine>::clone(&engine));
            let text = LIMITS[kind][0];
            let ask = take("0", text);
            let peek = |engine: &Engine| engine.memory.decide(&request(Op::Peek, [check("0", text, 1)]), None).decisions(&ask);
            engine.road(Duration::from_millis(to), Duration::from_millis(back));
            for wait in waits {
                time::advance(Duration::from_millis(wait)).await;
                let outcome = submit(&cached, &ask).await;
                let told = outcome.decisions(&ask).unwrap();
                if told.source == Source::Cache {
                    let now = peek(&engine).unwrap();
                    assert!(!now.allowed, "refused, and the store would admit: {told:?}");
                    assert!(told.retry_after >= now.retry_after, "{told:?} is too short for {now:?}");
                }
            }
        });
    }
}

#[test]
fn a_closed_door_costs_the_store_one_call() {
    paused().block_on(async {
        let engine = Engine::new();
        let cached = DenyCache::new(Arc::<Engine>::clone(&engine));
        let ask = take("0", "1/10s fixed-window");
        for _ in 0..1_000 {
            let _ = submit(&cached, &ask).await;
        }
        assert_eq!((engine.calls(), cached.hits(), cached.misses()), (2, 998, 2));
    });
}

#[test]
fn what_others_opened_is_seen_after_the_maximum_age() {
    paused().block_on(async {
        let engine = Engine::new();
        let cached = DenyCache::builder().max_age(Duration::from_secs(2)).wrap(Arc::<Engine>::clone(&engine));
        let ask = take("0", "1/1h sliding-log");
        for _ in 0..2 {
            let _ = submit(&cached, &ask).await;
        }
        let reset = engine.memory.decide(&request(Op::Reset, [check("0", "1/1h sliding-log", 0)]), None);
        assert!(reset.record().is_ok());
        time::advance(Duration::from_millis(1_999)).await;
        assert!(matches!(submit(&cached, &ask).await, Outcome::Denied(_)));
        time::advance(Duration::from_millis(1)).await;
        assert!(matches!(submit(&cached, &ask).await, Outcome::Allowed(_)));
    });
}

#[test]
fn it_stays_within_its_bound_however_many_keys_come() {
    paused().block_on(async {
        let engine = Engine::new();
        let cached = DenyCache::builder().max_keys(1_000).wrap(Arc::<Engine>::clone(&engine));
        let hourly: Limit = limit("1/1h fixed-window");
        for n in 0..20_000 {
            let ask = Request::take(Key::new("t", "api", [n.to_string()]), hourly, 1).unwrap();
            for _ in 0..2 {
                let _ = submit(&cached, &ask).await;
            }
        }
        assert!(cached.len() <= 1_100, "{} keys", cached.len());
    });
}

#[test]
fn a_failure_is_not_remembered() {
    use crate::engine::Manner;
    use limiter::ErrorKind;

    paused().block_on(async {
        let engine = Engine::new();
        let cached = DenyCache::new(Arc::<Engine>::clone(&engine));
        let ask = take("0", "1/1h fixed-window");
        for kind in [ErrorKind::NotSent, ErrorKind::Unknown { in_flight: true }] {
            engine.behave(Manner::Fail(kind));
            assert_eq!(submit(&cached, &ask).await.record().unwrap_err().kind(), kind);
        }
        engine.behave(Manner::Decide);
        assert!(matches!(submit(&cached, &ask).await, Outcome::Allowed(_)));
        assert!(cached.is_empty());
    });
}

#[test]
fn each_limit_of_a_request_is_remembered_by_itself() {
    paused().block_on(async {
        let engine = Engine::new();
        let cached = DenyCache::new(Arc::<Engine>::clone(&engine));
        let both = request(Op::Take, [check("a", "2/1h fixed-window", 1), check("b", "1/1h sliding-log", 1)]);
        assert!(matches!(submit(&cached, &both).await, Outcome::Allowed(_)));
        assert!(matches!(submit(&cached, &both).await, Outcome::Denied(_)));
        let told = submit(&cached, &both).await.decisions(&both).unwrap();
        let sources: HashMap<bool, Source> = told.layers().iter().map(|layer| (layer.allowed, layer.source)).collect();
        assert_eq!(sources, HashMap::from([(true, Source::Unasked), (false, Source::Cache)]));
        // The one that does not refuse was not charged, and is asked as ever.
        let alone = submit(&cached, &take("a", "2/1h fixed-window")).await;
        assert!(matches!(alone, Outcome::Allowed(_)));
        assert_eq!(engine.calls(), 3);
    });
}
