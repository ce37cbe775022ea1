//! What holds for any mix of requests: the layer changes which call a request is in, and nothing else.

use std::collections::HashMap;
use std::sync::Arc;

use limiter::layer::GroupCommit;
use limiter::{Backend, Batch, Check, Instant, Key, Memory, Op, Outcome, Record, Request};
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::task;

use crate::engine::{Recorder, settle};

/// What happens at a caller's side.
#[derive(Clone, Debug)]
enum Step {
    /// A new caller with these requests.
    Ask(Vec<Request>),
    /// The caller of that number goes, if it has not been answered.
    Go(usize),
    /// The engine ends a call.
    End,
    /// All run that can.
    Settle,
}

fn request() -> impl Strategy<Value = Request> {
    let limits =
        ["9/1s token-bucket burst=4", "5/20ms fixed-window", "6/30ms sliding-log", "4/25ms leaky-bucket queue=3"];
    let op = prop_oneof![
        6 => Just(Op::Take),
        1 => Just(Op::Peek),
        1 => (0..50u64).prop_map(|ms| Op::Refund { taken: Instant::from_micros(1_000_000_000 + ms * 1_000).unwrap() }),
        1 => Just(Op::Reset),
    ];
    // Few keys and costs, so that equal requests and shared keys are frequent. A key's limit goes by its number.
    (op, proptest::sample::subsequence(vec![0, 1, 2, 3], 1..=2), 0..3u64).prop_map(move |(op, keys, cost)| {
        let checks = keys.into_iter().map(|key: usize| {
            let limit = limits[key].parse().unwrap();
            Check::new(Key::new(["s", "t"][key % 2], "law", [key.to_string()]), limit, cost)
        });
        Request::new(op, checks).unwrap()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => proptest::collection::vec(request(), 1..2).prop_map(Step::Ask),
        1 => proptest::collection::vec(request(), 2..5).prop_map(Step::Ask),
        2 => (0..60usize).prop_map(Step::Go),
        2 => Just(Step::End),
        2 => Just(Step::Settle),
    ];
    proptest::collection::vec(step, 1..60)
}

/// One who asked: what, and the answers if it stayed for them.
type Caller = (Vec<Request>, Option<Vec<Outcome>>);

/// Runs the steps, then lets every call end.
fn run(
    steps: &[Step],
    lanes: usize,
    in_flight: usize,
    max_batch: usize,
) -> (Vec<Vec<(Request, Outcome)>>, Vec<Caller>) {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let engine = Recorder::gated(0);
        let layer = GroupCommit::builder().lanes(lanes).in_flight(in_flight).max_batch(max_batch);
        let layer = Arc::new(layer.wrap(engine.clone()));
        let mut tasks = Vec::new();
        for step in steps {
            match step {
                Step::Ask(requests) => {
                    let (layer, requests) = (Arc::clone(&layer), requests.clone());
                    let batch = Arc::new(Batch { requests: requests.clone(), at: None });
                    tasks.push((requests, task::spawn(async move { layer.submit(batch).await })));
                }
                Step::Go(number) => {
                    if let Some((_, caller)) = tasks.get(*number) {
                        caller.abort();
                    }
                }
                Step::End => engine.let_in(1),
                Step::Settle => settle().await,
            }
        }
        engine.let_in(1_000);
        let mut callers = Vec::new();
        for (requests, task) in tasks {
            callers.push((requests, task.await.ok()));
        }
        // Calls whose callers have all gone end, too.
        settle().await;
        assert!(engine.calls().iter().all(|call| eighths(call) <= 8 * max_batch));
        assert!(engine.most() <= lanes * in_flight);
        assert_eq!((engine.begun().len(), layer.queued()), (engine.calls().len(), 0));
        (engine.calls(), callers)
    })
}

/// How much of a call's room its requests take: one that repeats the one before it counts as an eighth.
fn eighths(call: &[(Request, Outcome)]) -> usize {
    let repeats = call.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
    8 * call.len() - 7 * repeats
}

fn record(outcome: &Outcome) -> Record {
    outcome.record().unwrap().clone()
}

fn share_a_key(one: &Request, other: &Request) -> bool {
    one.checks().iter().any(|check| other.checks().iter().any(|also| also.key == check.key))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_decisions_are_those_of_one_by_one(
        steps in steps(),
        lanes in 1..4usize,
        in_flight in 1..4usize,
        max_batch in 1..9usize,
    ) {
        let (calls, callers) = run(&steps, lanes, in_flight, max_batch);
        // Asked one by one, in the order in which the engine saw them, another engine decides the same.
        let other = Memory::new();
        let mut seen: Vec<(Request, Record)> = Vec::new();
        for (request, outcome) in calls.into_iter().flatten() {
            let record = record(&outcome);
            let again = other.decide(&request, Some(record.at));
            let again = again.record().unwrap();
            // All but the versions: after a reset a key's goes on from those of others in its shard, which chance picks.
            prop_assert_eq!((record.allowed, record.at), (again.allowed, again.at));
            let views = |record: &Record| record.layers().iter().map(|layer| layer.view).collect::<Vec<_>>();
            prop_assert_eq!(views(&record), views(again));
            seen.push((request, record));
        }
        // Each caller that stayed was told what became of its own request, and each request was applied once: what is left over
        // is of callers that went.
        let mut gone = Vec::new();
        for (requests, outcomes) in callers {
            let Some(outcomes) = outcomes else {
                gone.extend(requests);
                continue;
            };
            prop_assert_eq!(requests.len(), outcomes.len());
            for (request, outcome) in requests.into_iter().zip(&outcomes) {
                let told = (request, record(outcome));
                let place = seen.iter().position(|seen| *seen == told);
                prop_assert!(place.is_some(), "told what was not decided: {:?}", told);
                seen.swap_remove(place.unwrap());
            }
        }
        for (request, _) in seen {
            let place = gone.iter().position(|gone| *gone == request);
            prop_assert!(place.is_some(), "applied, but nobody asked: {:?}", request);
            gone.swap_remove(place.unwrap());
        }
    }

    #[test]
    fn equal_requests_meet_and_others_of_a_key_keep_their_order(
        asked in proptest::collection::vec(request(), 1..40),
        max_batch in 1..40usize,
    ) {
        let steps: Vec<Step> = asked.iter().map(|request| Step::Ask(vec![request.clone()])).collect();
        let (calls, _) = run(&steps, 1, 1, max_batch);
        for call in &calls {
            for (last, (request, _)) in call.iter().enumerate() {
                let Some(first) = call[..last].iter().rposition(|(earlier, _)| earlier == request) else { continue };
                let between = &call[first + 1..last];
                prop_assert!(
                    between.is_empty() || between.iter().any(|(other, _)| share_a_key(request, other)),
                    "equal requests are apart for no reason"
                );
            }
        }
        // The n-th of equal requests is the n-th that was asked: they are one another's like.
        let mut places: HashMap<String, std::collections::VecDeque<usize>> = HashMap::new();
        for (place, request) in asked.iter().enumerate() {
            places.entry(format!("{request:?}")).or_default().push_back(place);
        }
        let seen: Vec<(usize, Request)> = calls
            .into_iter()
            .flatten()
            .map(|(request, _)| (places.get_mut(&format!("{request:?}")).unwrap().pop_front().unwrap(), request))
            .collect();
        prop_assert_eq!(seen.len(), asked.len());
        for (index, (place, request)) in seen.iter().enumerate() {
            for (earlier_place, earlier) in &seen[..index] {
                prop_assert!(
                    earlier_place < place || !share_a_key(earlier, request),
                    "two requests of one key have changed places"
                );
            }
        }
    }
}
