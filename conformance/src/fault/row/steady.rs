//! F01 and F02: nothing fails, and everything is exact.

use std::time::Instant as Time;

use limiter_core::Algorithm;

use crate::case::Failure;
use crate::fault::audit::Excuse;
use crate::fault::figure::Figure;
use crate::fault::ground::Setting;
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::history::Steady;
use crate::workload::Item;

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

/// A bucket that is always asked for more than it has, however slow the machine, and holds what it gains in a second.
const STEADY: &str = "20/1s token-bucket";

pub(super) fn no_fault(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let mut plan = scene.crowd().pace(0);
    let (key, limit) = (plan.key("steady", "bucket"), plan.limit(STEADY));
    plan.item(Item::take(24, [(key, limit, 1)]));
    let load = scene.begin_processes(plan)?;
    let began = Time::now();
    scene.rest(1_200, 20_000);
    let (history, audit) = scene.finish(load)?;
    let millis = u64::try_from(began.elapsed().as_millis())?.max(1);
    let Some(Steady { admitted, due }) = history.steady(key, &STEADY.parse()?) else {
        return Err(Failure::new(format!("{} calls did not exhaust {STEADY}", history.calls.len())));
    };
    let failed = audit.replay.unknown + audit.replay.not_sent;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("without an answer", failed).at_most(0))
        .and(Figure::count("calls/s", audit.replay.calls * 1_000 / millis))
        .and(Figure::share("reached of what was due", admitted, due).at_least(990)))
}

pub(super) fn one_instant(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let mut plan = scene.plan().at([T]).calls_per_task(u32::try_from(terms.pick(50, 1_000))?);
    for algorithm in Algorithm::ALL {
        let check = (plan.key("instant", algorithm.name()), plan.limit(format!("100/1h {algorithm}")), 1);
        plan.item(Item::take(1, [check]));
    }
    let load = scene.begin_processes(plan)?;
    let (history, audit) = scene.finish_all(load)?;
    let admitted = (0..Algorithm::ALL.len()).map(|key| history.ledger(key).admitted).sum();
    let failed = audit.replay.unknown + audit.replay.not_sent;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("without an answer", failed).at_most(0))
        .and(Figure::count("admitted", admitted).exactly(100 * u64::try_from(Algorithm::ALL.len())?)))
}
