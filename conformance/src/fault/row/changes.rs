//! F26 and F27: callers that go away, and limits that change under load.

use std::time::{Duration, Instant as Time};

use limiter_core::{Limit, Op, Outcome};

use crate::case::Failure;
use crate::fault::audit::Excuse;
use crate::fault::figure::Figure;
use crate::fault::ground::Setting;
use crate::fault::probe::PATIENCE;
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::workload::Item;

/// Half of the callers go away while their call is on its way.
pub(super) fn cancelled(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd().cancelled(50))?;
    scene.rest(1_200, 15_000);
    let (_, audit) = scene.finish(load)?;
    // A call that its caller gave up was made as a whole, or not at all: a unit that is taken is one of those.
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("given up", audit.replay.unknown))
        .and(Figure::count("phantom units", audit.unexplained).at_most(0)))
}

/// One key under one limit and then another, at random: up, down, and other algorithms.
pub(super) fn limits(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let texts = [
        "200/200ms token-bucket burst=100",
        "20/200ms token-bucket burst=5",
        "500/500ms leaky-bucket queue=400",
        "50/200ms sliding-log",
        "10/500ms fixed-window",
        "80/100ms sliding-counter",
    ];
    let mut plan = scene.crowd();
    let key = plan.key("changes", "limit");
    for text in texts {
        let limit = plan.limit(text);
        plan.item(Item::take(6, [(key, limit, 2)]));
    }
    let load = scene.begin(plan)?;
    scene.rest(1_200, 15_000);
    let (history, audit) = scene.finish(load)?;
    // From now on only one limit asks: each lets something pass again within the time that it takes to fill by itself.
    let (mut longest, mut broken) = (Duration::ZERO, 0);
    let asked = history.keys.get(key).ok_or_else(|| Failure::new("the key is gone"))?;
    for text in texts {
        let limit: Limit = text.parse()?;
        let locked = opens(&scene, asked, limit)?;
        let refills = 2 * limit.period() + limit.period() * u32::try_from(limit.capacity() / limit.amount())?;
        broken += u64::from(locked > refills + scene.lag());
        longest = longest.max(locked);
    }
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::time("longest lock-out", longest))
        .and(Figure::count("lock-outs beyond a refill", broken).at_most(0)))
}

/// How long it takes until a unit passes.
fn opens(scene: &Scene<'_>, key: &limiter_core::Key, limit: Limit) -> Result<Duration, Failure> {
    let began = Time::now();
    loop {
        match scene.probe.ask(Op::Take, key, limit, 1)? {
            Outcome::Allowed(_) => return Ok(began.elapsed()),
            _ if began.elapsed() > PATIENCE => return Err(Failure::new(format!("{key} never opens under {limit}"))),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
