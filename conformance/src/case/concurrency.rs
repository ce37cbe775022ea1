//! Many clients at once, checked by their recorded history: 3 processes of 8 tasks each.

use limiter_core::{Algorithm, ClockSource, Limit, Op, Request, Scope};

use super::{Failure, case_list, ensure};
use crate::history::{History, Replay, Steady};
use crate::trial::{Trial, at};
use crate::workload::{Item, PROCESSES, Plan, TASKS};

case_list! { Concurrency:
    one_instant "all ask one key at one given instant: exactly the limit passes",
    one_instant_mixed_costs "the same with costs of 1 to 5, and what is left is what was not admitted",
    last_unit "all ask for the last unit of a key: one of them gets it",
    cold_start "all ask many keys that nobody has used yet",
    window_edge "all ask at the last instants of a window and the first of the next",
    layers_in_opposite_orders "the same layers in opposite orders: no deadlock, and no layer is charged for a refusal",
    history_fixed_window "a hot key, 16 warm keys and layers, at the engine's own time, replayed",
    history_sliding_log "the same under sliding logs",
    history_sliding_counter "the same under sliding counters",
    history_token_bucket "the same under token buckets",
    history_leaky_bucket "the same under leaky buckets",
    history_layers "layers of all five algorithms",
    history_refunds "takes of which some are given back",
    history_batches "the same in batches",
    several_processes [Processes] "the clients are processes of their own",
    steady_demand_at_given_instants "a steady demand of twice the limit, at given instants, gets all of it",
    steady_demand "under steady demand the limit is reached, not only respected",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

/// How far an instant may lie before that of an earlier version, in µs, where one clock decides: a clock that is slewed,
/// or read on two processors.
const BACKWARD: u64 = 2_000;

/// Checks a history of a store without faults: exact, nothing unknown, and its windows within their bounds.
pub(super) async fn check_history(trial: &Trial, history: &History) -> Result<Replay, Failure> {
    let replay = history.replay(trial.subject().versions());
    trial.counters.differed(replay.differences);
    ensure!(replay.is_exact(), "{replay}");
    ensure!(replay.not_sent + replay.unknown == 0, "calls without an answer, of a store without faults: {replay}");
    Ok(replay)
}

/// As [`check_history`], for a plan at the engine's own time.
async fn check_real_time(trial: &Trial, plan: &Plan) -> Result<History, Failure> {
    debug_assert!(plan.is_real_time(), "a plan at given instants has no windows in real time");
    let history = plan.run(trial).await?;
    let replay = check_history(trial, &history).await?;
    let capabilities = trial.capabilities().await?;
    if capabilities.clock == ClockSource::Store || capabilities.scope == Scope::Process {
        ensure!(
            replay.backward <= BACKWARD,
            "an instant lies {} µs before that of an earlier version: the clock is read too early",
            replay.backward
        );
    }
    for window in history.windows() {
        ensure!(
            window.most <= window.bound,
            "{} units of one key passed within a period of {}, and {} may",
            window.most,
            window.limit,
            window.bound
        );
    }
    Ok(history)
}

fn subjects() -> [&'static str; 5] {
    [
        "100/1h fixed-window",
        "100/1h sliding-log",
        "100/1h sliding-counter",
        "100/1h token-bucket",
        "100/1h leaky-bucket",
    ]
}

/// What a key has left at the instant of the case.
async fn left(trial: &Trial, history: &History, key: usize, limit: usize, now: u64) -> Result<u64, Failure> {
    let (Some(key), Some(limit)) = (history.keys.get(key), history.limits.get(limit)) else {
        return Err(Failure::new("a key or limit that the history has not"));
    };
    let check = limiter_core::Check::new(key.clone(), *limit, 0);
    let decisions = trial.ask(&trial.client().await?, Request::new(Op::Peek, [check])?, Some(at(now)?)).await?;
    Ok(decisions.layers().first().map_or(0, |layer| layer.remaining))
}

async fn one_instant(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial).at([T]).calls_per_task(50);
    for text in subjects() {
        let (key, limit) = (plan.key("hot", text), plan.limit(text));
        plan.item(Item::take(1, [(key, limit, 1)]));
    }
    let history = plan.run(trial).await?;
    check_history(trial, &history).await?;
    for (key, text) in subjects().into_iter().enumerate() {
        let admitted = history.ledger(key).admitted;
        trial.counters.reached(admitted, 100);
        ensure!(admitted == 100, "{text}: {admitted} admitted at one instant");
    }
    Ok(())
}

async fn one_instant_mixed_costs(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial).at([T]).calls_per_task(40);
    for text in subjects() {
        let (key, limit) = (plan.key("mixed", text), plan.limit(text));
        plan.item(Item::take(4, [(key, limit, 5)]));
        plan.item(Item::peek(1, [(key, limit, 5)]));
    }
    let history = plan.run(trial).await?;
    check_history(trial, &history).await?;
    for (key, text) in subjects().into_iter().enumerate() {
        let ledger = history.ledger(key);
        let consumed = 100 - left(trial, &history, key, key, T).await?;
        ensure!(ledger.explains(consumed, 1), "{text}: {consumed} units consumed, of {ledger:?}");
    }
    Ok(())
}

async fn last_unit(trial: &Trial) -> Result<(), Failure> {
    for round in 0..10_u32 {
        let mut plan = Plan::new(trial).at([T]).calls_per_task(1);
        let text = subjects().into_iter().cycle().nth(usize::try_from(round)?).unwrap_or_default();
        let (key, limit) = (plan.key("last", round.to_string()), plan.limit(text));
        plan.item(Item::take(1, [(key, limit, 1)]));
        let hot = trial.key("last", [round.to_string()]);
        let first = trial.ask(&trial.client().await?, Request::take(hot, text.parse()?, 99)?, Some(at(T)?)).await?;
        ensure!(first.allowed, "{text}: 99 of a fresh 100 were not allowed");
        let mut history = plan.run(trial).await?;
        let admitted = history.ledger(key).admitted;
        trial.counters.reached(admitted, 1);
        ensure!(admitted == 1, "{text}: {admitted} clients got the last unit");
        history.calls.clear();
    }
    Ok(())
}

async fn cold_start(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial).at([T]).calls_per_task(40);
    for number in 0..100_u32 {
        let algorithm = Algorithm::ALL.into_iter().cycle().nth(usize::try_from(number)?).map_or("", Algorithm::name);
        let (key, limit) = (plan.key("cold", number.to_string()), plan.limit(format!("2/1h {algorithm}")));
        plan.item(Item::take(1, [(key, limit, 1)]));
    }
    let history = plan.run(trial).await?;
    check_history(trial, &history).await?;
    for key in 0..100 {
        let asked = history.calls.iter().filter(|call| call.checks.iter().any(|asked| asked.key == key)).count();
        let due = u64::try_from(asked)?.min(2);
        let admitted = history.ledger(key).admitted;
        trial.counters.reached(admitted, due);
        ensure!(admitted == due, "{admitted} of {asked} calls of a new key admitted, and not {due}");
    }
    Ok(())
}

async fn window_edge(trial: &Trial) -> Result<(), Failure> {
    let edge = 1_764_559_423_000_000;
    let mut plan = Plan::new(trial).at([edge - 2, edge - 1, edge, edge + 1]).calls_per_task(40);
    for algorithm in Algorithm::ALL {
        let (key, limit) = (plan.key("edge", algorithm.name()), plan.limit(format!("50/1s {algorithm}")));
        plan.item(Item::take(1, [(key, limit, 2)]));
    }
    let history = plan.run(trial).await?;
    check_history(trial, &history).await?;
    Ok(())
}

async fn layers_in_opposite_orders(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial).at([T]).calls_per_task(40);
    let outer = (plan.key("opposite", "outer"), plan.limit("300/1h sliding-log"), 1);
    let inner =
        [0, 1, 2].map(|number| (plan.key("opposite", format!("inner-{number}")), plan.limit("40/1h token-bucket"), 1));
    for inner in inner {
        plan.item(Item::take(2, [outer, inner]));
        plan.item(Item::take(2, [inner, outer]));
    }
    let history = plan.run(trial).await?;
    check_history(trial, &history).await?;
    let inner: u64 = inner.iter().map(|(key, _, _)| history.ledger(*key).admitted).sum();
    trial.counters.reached(inner, 120);
    ensure!(inner == 120, "{inner} units admitted by three inner limits of 40");
    let charged = 300 - left(trial, &history, outer.0, outer.1, T).await?;
    ensure!(charged == inner, "the outer limit was charged {charged} for {inner} that were admitted");
    Ok(())
}

/// A hot key, 16 warm ones and a layered set, all under one algorithm.
fn mixed(trial: &Trial, algorithm: Algorithm) -> Plan {
    let mut plan = Plan::new(trial);
    let (hot, warm, outer) = match algorithm {
        Algorithm::TokenBucket => {
            ("300/50ms token-bucket burst=200", "20/50ms token-bucket burst=30", "400/50ms token-bucket")
        }
        Algorithm::LeakyBucket => {
            ("300/50ms leaky-bucket queue=200", "20/50ms leaky-bucket queue=30", "400/50ms leaky-bucket")
        }
        Algorithm::FixedWindow => ("300/50ms fixed-window", "20/50ms fixed-window", "400/50ms fixed-window"),
        Algorithm::SlidingLog => ("300/50ms sliding-log", "20/50ms sliding-log", "400/50ms sliding-log"),
        Algorithm::SlidingCounter => {
            ("300/50ms sliding-counter", "20/50ms sliding-counter", "400/50ms sliding-counter")
        }
    };
    let hot = (plan.key("mixed", "hot"), plan.limit(hot), 3);
    let warm = plan.limit(warm);
    let outer = (plan.key("mixed", "outer"), plan.limit(outer), 1);
    plan.item(Item::take(16, [hot]));
    plan.item(Item::peek(2, [hot]));
    for number in 0..16 {
        let warm = (plan.key("mixed", format!("warm-{number}")), warm, 2);
        plan.item(Item::take(1, [warm]));
        plan.item(Item::take(1, [outer, warm]));
    }
    plan.item(Item::take(4, [hot, outer]));
    plan
}

async fn history_of(trial: &Trial, algorithm: Algorithm) -> Result<(), Failure> {
    check_real_time(trial, &mixed(trial, algorithm)).await.map(drop)
}

async fn history_fixed_window(trial: &Trial) -> Result<(), Failure> {
    history_of(trial, Algorithm::FixedWindow).await
}

async fn history_sliding_log(trial: &Trial) -> Result<(), Failure> {
    history_of(trial, Algorithm::SlidingLog).await
}

async fn history_sliding_counter(trial: &Trial) -> Result<(), Failure> {
    history_of(trial, Algorithm::SlidingCounter).await
}

async fn history_token_bucket(trial: &Trial) -> Result<(), Failure> {
    history_of(trial, Algorithm::TokenBucket).await
}

async fn history_leaky_bucket(trial: &Trial) -> Result<(), Failure> {
    history_of(trial, Algorithm::LeakyBucket).await
}

async fn history_layers(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial);
    let texts = [
        "500/100ms fixed-window",
        "300/100ms sliding-counter",
        "150/50ms token-bucket burst=200",
        "100/50ms sliding-log",
        "100/50ms leaky-bucket queue=80",
    ];
    let limits = texts.map(|text| plan.limit(text));
    let global = (plan.key("layers", "global"), limits[0], 1);
    for tenant in 0..2 {
        let tenant_check = (plan.key("layers", format!("tenant-{tenant}")), limits[1], 1);
        for user in 0..3 {
            let name = format!("{tenant}-{user}");
            let user = (plan.key("layers", format!("user-{name}")), limits[2], 2);
            let endpoint = (plan.key("layers", format!("endpoint-{name}")), limits[3], 2);
            let queue = (plan.key("layers", format!("queue-{name}")), limits[4], 1);
            plan.item(Item::take(4, [global, tenant_check, user, endpoint]));
            plan.item(Item::take(2, [queue, endpoint, user, tenant_check, global]));
            plan.item(Item::peek(1, [global, queue]));
        }
    }
    check_real_time(trial, &plan).await.map(drop)
}

async fn history_refunds(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial).refunds(30);
    for text in [
        "200/1h fixed-window",
        "200/1h sliding-log",
        "200/1h sliding-counter",
        "200/100ms token-bucket",
        "200/100ms leaky-bucket",
    ] {
        let check = (plan.key("refunds", text), plan.limit(text), 3);
        plan.item(Item::take(3, [check]));
        plan.item(Item::peek(1, [check]));
    }
    check_real_time(trial, &plan).await.map(drop)
}

async fn history_batches(trial: &Trial) -> Result<(), Failure> {
    let plan = mixed(trial, Algorithm::TokenBucket).batches_of(16);
    check_real_time(trial, &plan).await.map(drop)
}

async fn several_processes(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial).at([T]).calls_per_task(20);
    let check = (plan.key("processes", "hot"), plan.limit("100/1h sliding-log"), 1);
    plan.item(Item::take(1, [check]));
    let history = plan.run(trial).await?;
    check_history(trial, &history).await?;
    for process in 0..PROCESSES {
        let calls = history.calls.iter().filter(|call| call.process == process).count();
        ensure!(u32::try_from(calls)? == 20 * TASKS, "process {process} made {calls} calls");
    }
    let admitted = history.ledger(check.0).admitted;
    trial.counters.reached(admitted, 100);
    ensure!(admitted == 100, "{admitted} of 100 admitted to {PROCESSES} processes together");
    Ok(())
}

/// Of a bucket that refuses at an instant, every unit that it has gained until then is spent. So what is due is known exactly.
async fn steady_demand(trial: &Trial) -> Result<(), Failure> {
    let mut plan = Plan::new(trial).calls_per_task(u32::MAX).stop_after(900);
    // So little that any store is asked for more, and a second's worth held, so that no demand is too late once the first is met.
    let texts = ["30/1s token-bucket", "30/1s leaky-bucket"];
    for text in texts {
        let check = (plan.key("steady", text), plan.limit(text), 1);
        plan.item(Item::take(1, [check]));
    }
    let history = check_real_time(trial, &plan).await?;
    for (key, text) in texts.into_iter().enumerate() {
        let Some(Steady { admitted, due }) = history.steady(key, &text.parse()?) else {
            return Err(Failure::new(format!("{text}: {} calls did not exhaust it", history.calls.len())));
        };
        trial.counters.reached(admitted, due);
        ensure!(admitted == due, "{text}: {admitted} of {} calls admitted, where {due} were due", history.calls.len());
    }
    Ok(())
}

/// 100 calls a second for 10 s, under 50 a second.
async fn steady_demand_at_given_instants(trial: &Trial) -> Result<(), Failure> {
    const START: u64 = 1_764_559_423_000_000;
    for (algorithm, due) in [
        (Algorithm::FixedWindow, 500),
        (Algorithm::SlidingLog, 500),
        // The last call of a window comes 10 ms before its end, when half a unit of the one before still counts: 49 fit.
        (Algorithm::SlidingCounter, 50 + 9 * 49),
        (Algorithm::TokenBucket, 549),
        (Algorithm::LeakyBucket, 549),
    ] {
        let limit: Limit = format!("50/1s {algorithm}").parse()?;
        let key = trial.key("given", [algorithm.name()]);
        let mut twin = trial.twin().await?;
        let mut admitted = 0;
        for call in 0..1_000 {
            admitted += u64::from(twin.take(&key, limit, 1, Some(at(START + call * 10_000)?)).await?.allowed);
        }
        trial.counters.reached(admitted, due);
        ensure!(admitted == due, "{limit}: {admitted} of 1000 calls admitted, where {due} were due");
    }
    Ok(())
}
