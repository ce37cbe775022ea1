//! F28: an outer layer is never charged for a request that an inner one refused, whatever fails meanwhile.

use std::time::{Duration, Instant as Time};

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Means, Setting};
use crate::fault::load::worker;
use crate::fault::row::Measured;
use crate::fault::scene::{METER, Scene};
use crate::fault::{Site, Terms};
use crate::monotonic;
use crate::proxy::{Fault, Proxy, Then};
use crate::workload::{Item, Plan};

/// Soon exhausted, and full again only when the row is over.
const INNER: &str = "60/1h sliding-log";
const INNERS: u32 = 12;

pub(super) fn leaks(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let mut plan = scene.plan().pace(2).processes(4);
    let outer = (plan.key("leaks", "outer"), plan.limit(METER), 1);
    let inner = plan.limit(INNER);
    for number in 0..INNERS {
        let inner = (plan.key("leaks", format!("inner-{number}")), inner, 1);
        plan.item(Item::take(1, [outer, inner]));
        plan.item(Item::take(1, [inner, outer]));
    }
    let load = scene.begin(plan.clone())?;
    let mut lost = Vec::new();
    let began = Time::now();
    while began.elapsed() < scene.time(1_200, 20_000) {
        std::thread::sleep(Duration::from_millis(30 + scene.random.below(60)));
        if scene.random.below(2) == 0 {
            scene.roads.iter().try_for_each(Proxy::reset)?;
        } else {
            scene.set(Fault::DropReply(Then::Reset))?;
            std::thread::sleep(Duration::from_millis(10 + scene.random.below(30)));
            scene.set(Fault::Pass)?;
        }
    }
    if site.lack(Means::Processes).is_none() {
        lost = kill_one(&mut scene, &plan)?;
    }
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(400, 2_000);
    let mut history = load.finish()?;
    history.calls.append(&mut lost);
    let audit = scene.audit(&history, &plan)?;
    let (outer_limit, inner_limit) = (METER.parse()?, INNER.parse::<limiter_core::Limit>()?);
    let keys: Vec<_> = (0..INNERS).map(|number| scene.key("leaks", &format!("inner-{number}"))).collect();
    let charged: u64 = {
        let left = scene.probe.left([&scene.key("leaks", "outer")], outer_limit, None)?;
        outer_limit.capacity() - left.first().copied().unwrap_or_default()
    };
    let passed: u64 =
        scene.probe.left(&keys, inner_limit, None)?.into_iter().map(|left| inner_limit.capacity() - left).sum();
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("charged to the inner layers", passed))
        .and(Figure::count("leaked units", charged.abs_diff(passed)).at_most(0))
        .and(recovery(&scene, &history, healed)))
}

/// A process of the same plan that is killed where it stands.
fn kill_one(scene: &mut Scene<'_>, plan: &Plan) -> Result<Vec<crate::history::Call>, Failure> {
    let folder = tempfile::tempdir()?;
    let urls = scene.urls();
    let url = urls.first().ok_or_else(|| Failure::new("there is no road"))?;
    let mut process = worker(scene.site, plan, 3, url, folder.path(), true)?;
    process.ready()?;
    process.go()?;
    std::thread::sleep(Duration::from_millis(20 + scene.random.below(40)));
    process.kill()
}
