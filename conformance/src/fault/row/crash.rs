//! F12: a store that is killed and started again loses no more than it says.

use std::time::Duration;

use limiter_core::Limit;

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Setting};
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::site::{Life, Loses};
use crate::fault::{Site, Terms};
use crate::monotonic;
use crate::workload::Item;

/// Exhausted before the crash: what it admits afterwards is in excess.
const TANK: &str = "100/1h sliding-log";

pub(super) fn restart(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    for life in site.all_lives() {
        measured.join(&life.name, one(site, terms, life)?);
    }
    if measured.figures.is_empty() {
        return Err(Failure::new("the site tells no way to run a store that may be killed"));
    }
    Ok(measured)
}

fn one(site: &Site, terms: Terms, life: &Life) -> Result<Measured, Failure> {
    let options = life.options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let scene = Scene::open(site, terms, &Setting::with(options))?;
    let mut plan = scene.crowd();
    let (tank, limit) = (plan.key("crash", "tank"), plan.limit(TANK));
    plan.item(Item::take(12, [(tank, limit, 1)]));
    let load = scene.begin(plan)?;
    scene.rest(400, 5_000);
    scene.act(Act::Kill)?;
    let killed = monotonic::micros();
    scene.rest(100, 1_000);
    scene.act(Act::Restart)?;
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(500, 4_000);
    let (history, audit) = scene.finish(load)?;
    let excuse = Excuse { lost: life.loses != Loses::Nothing, ..Excuse::default() };
    let capacity = TANK.parse::<Limit>()?.capacity();
    let admitted = history.ledger(tank).admitted;
    let extra = admitted.saturating_sub(capacity);
    // Of all that is admitted after the crash, no more than was lost is in excess, whatever that was.
    let bound = if excuse.lost { capacity } else { 0 };
    let oldest = |age: u64| {
        let latest = history.calls.iter().map(|call| call.returned).max().unwrap_or_default();
        Duration::from_micros(killed.saturating_sub(latest.saturating_sub(age)))
    };
    let age = Figure::time("oldest loss before the crash", audit.once.vanished_at.map_or(Duration::ZERO, oldest));
    let mut measured = Measured::of(&audit, excuse)
        .and(Figure::count("extra", extra).at_most(bound))
        .and(Figure::count("acknowledged writes lost", audit.once.vanished))
        .and(recovery(&scene, &history, healed));
    if let Loses::Last(tail) = life.loses {
        measured = measured.and(age.within(tail + scene.lag()));
    }
    Ok(measured)
}
