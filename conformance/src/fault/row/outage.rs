//! F29: while the store is away, each process counts for itself, and no more than that passes.

use std::time::Duration;

use limiter_core::Limit;

use crate::case::Failure;
use crate::fault::audit::recovery;
use crate::fault::figure::Figure;
use crate::fault::ground::Setting;
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::history::{Answer, History};
use crate::monotonic;
use crate::proxy::Fault;
use crate::workload::{Item, PROCESSES};

/// Nothing comes back while the row lasts: what a process lets pass by itself is this at most.
const TANK: &str = "50/1h sliding-log";

pub(super) fn fallback(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    // Without the crowd: what a fallback decided is no part of the store's history, and can't be replayed with it.
    let mut plan = scene.plan().pace(3);
    let tank = (plan.key("outage", "tank"), plan.limit(TANK), 1);
    plan.item(Item::take(1, [tank]));
    let load = scene.begin(plan)?;
    scene.set(Fault::Refuse)?;
    let gone = monotonic::micros();
    std::thread::sleep(site.call_timeout() + scene.time(800, 30_000));
    let back = monotonic::micros();
    scene.set(Fault::Pass)?;
    scene.healed()?;
    scene.rest(1_500, 4_000);
    let history = load.finish()?;
    let local = TANK.parse::<Limit>()?.capacity();
    let passes = passed(&history, gone, back);
    let (mut most, mut all) = (0, 0);
    for passes in passes {
        most = most.max(passes);
        all += passes;
    }
    let worst = history.calls.iter().map(|call| call.returned.saturating_sub(call.invoked)).max().unwrap_or_default();
    let longest = site.call_timeout() + Duration::from_millis(50) + scene.lag();
    Ok(Measured::default()
        .and(Figure::count("calls", u64::try_from(history.calls.len())?))
        .and(Figure::count("passes of one process", most).at_most(local))
        .and(Figure::count("passes", all).at_most(u64::from(PROCESSES) * local))
        .and(Figure::count("passes of a fallback that works", all).at_least(1))
        .and(Figure::time("worst call", Duration::from_micros(worst)).within(longest))
        .and(recovery(&scene, &history, back)))
}

/// Units that each process let pass while the store was away.
fn passed(history: &History, gone: u64, back: u64) -> Vec<u64> {
    let mut passes = vec![0; usize::try_from(PROCESSES).unwrap_or_default()];
    for call in history.calls.iter().filter(|call| call.invoked >= gone && call.returned <= back) {
        let allowed = matches!(call.answer, Answer::Decided { allowed: true, .. });
        if let (true, Some(passes)) = (allowed, usize::try_from(call.process).ok().and_then(|at| passes.get_mut(at))) {
            *passes += 1;
        }
    }
    passes
}
