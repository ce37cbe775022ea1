//! F22: the clock that decides is set, forward and back.

use std::time::Duration;

use limiter_core::{Check, Key, Limit, Op, Request};

use crate::case::Failure;
use crate::fault::audit::Excuse;
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Setting};
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::history::{Answer, History};
use crate::workload::Item;

const HOUR: i64 = 3_600_000_000;
const STEPS: i64 = 10;

/// What is asked one by one, so that what each step admits is known to the unit.
const TANK: &str = "20/10m sliding-log";
/// What is asked all the time; it gains a unit in 2 ms.
const STREAM: &str = "500/1s token-bucket burst=20";

pub(super) fn steps(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default().and_clock())?;
    let measured = back_and_back(&scene)?;
    let by_hour = hours(&scene);
    scene.act(Act::Clock(0))?;
    by_hour.map(|figures| figures.into_iter().fold(measured, Measured::and))
}

/// Back by a step, ten times, while clients ask. Nothing more passes, and keys open again when the clock is where it was.
fn back_and_back(scene: &Scene<'_>) -> Result<Measured, Failure> {
    let step = i64::try_from(scene.terms.pick(60_000, 1_000_000))?;
    let mut plan = scene.crowd();
    let (stream, limit) = (plan.key("clock", "stream"), plan.limit(STREAM));
    plan.item(Item::take(12, [(stream, limit, 1)]));
    let load = scene.begin(plan)?;
    scene.rest(300, 2_000);
    for nth in 1..=STEPS {
        scene.act(Act::Clock(-nth * step))?;
        scene.rest(30, 300);
    }
    // Until the clock shows again what it showed before the first step.
    std::thread::sleep(Duration::from_micros(u64::try_from(STEPS * step)?));
    scene.rest(400, 2_000);
    let (history, audit) = scene.finish(load)?;
    let bound = Duration::from_micros(u64::try_from(STEPS * step)?) + Duration::from_millis(100);
    Ok(Measured::of(&audit, Excuse { clock: true, ..Excuse::default() })
        .and(audit.window("window max", |window| window.bound))
        .and(Figure::time("longest lock-out", longest_gap(&history, stream)).within(bound + scene.lag())))
}

/// The longest time in which nothing passed of a key.
fn longest_gap(history: &History, key: usize) -> Duration {
    let mut passed: Vec<u64> = history
        .calls
        .iter()
        .filter(|call| call.checks.iter().any(|asked| asked.key == key))
        .filter(|call| matches!(call.answer, Answer::Decided { allowed: true, .. }))
        .map(|call| call.returned)
        .collect();
    passed.sort_unstable();
    let gaps = passed.iter().zip(passed.iter().skip(1)).map(|(a, b)| b - a);
    Duration::from_micros(gaps.max().unwrap_or(u64::MAX))
}

/// Forward by an hour and back by one. Each jump forward may free what was taken, once; each one back frees nothing.
fn hours(scene: &Scene<'_>) -> Result<Vec<Figure>, Failure> {
    let limit: Limit = TANK.parse()?;
    let (capacity, key) = (limit.capacity(), scene.key("clock", "tank"));
    scene.act(Act::Clock(0))?;
    let passed = scene.probe.take(&key, limit, capacity + 5)?;
    scene.act(Act::Clock(HOUR))?;
    let forward = scene.probe.take(&key, limit, capacity + 5)?;
    scene.act(Act::Clock(0))?;
    let back = scene.probe.take(&key, limit, capacity + 5)?;
    // It is told when it may come again, on the clock that stepped back, and that is so to a second.
    let wait = i64::try_from(retry_after(scene, &key, limit)?.as_micros())?;
    scene.act(Act::Clock(wait - 1_000_000))?;
    let early = scene.probe.take(&key, limit, 1)?;
    scene.act(Act::Clock(wait))?;
    let due = scene.probe.take(&key, limit, 1)?;
    let (rest, mut extra) = (scene.probe.take(&key, limit, capacity + 5)?, 0);
    for _ in 0..3 {
        // Back and forth within a window frees nothing either.
        scene.act(Act::Clock(wait - HOUR))?;
        extra += scene.probe.take(&key, limit, 3)?;
        scene.act(Act::Clock(wait - 1_000_000))?;
        extra += scene.probe.take(&key, limit, 3)?;
    }
    Ok(vec![
        Figure::count("admitted before", passed).exactly(capacity),
        Figure::count("extra by a step of an hour", forward).at_most(capacity),
        Figure::count("extra by the step back", back).at_most(0),
        Figure::count("extra before the wait is over", early).at_most(0),
        Figure::count("admitted when it is over", due).exactly(1),
        Figure::count("admitted besides", rest).at_most(capacity - 1),
        Figure::count("extra back and forth", extra).at_most(0),
    ])
}

fn retry_after(scene: &Scene<'_>, key: &Key, limit: Limit) -> Result<Duration, Failure> {
    let request = Request::new(Op::Take, [Check::new(key.clone(), limit, 1)])?;
    let outcomes = scene.probe.submit(vec![request.clone()], None)?;
    let outcome = outcomes.first().ok_or_else(|| Failure::new("no outcome"))?;
    let decisions = outcome.decisions(&request)?;
    let wait = decisions.layers().first().and_then(|layer| layer.retry_after);
    wait.ok_or_else(|| Failure::new("an exhausted key is not denied after a step back"))
}
