//! F21: all at one key.

use crate::case::Failure;
use crate::fault::audit::Excuse;
use crate::fault::figure::Figure;
use crate::fault::ground::Setting;
use crate::fault::load::Load;
use crate::fault::row::Measured;
use crate::fault::scene::{METER, Scene};
use crate::fault::{Site, Terms};
use crate::history::Answer;
use crate::workload::{Item, TASKS};

/// Each with eight tasks, which makes 64.
const CLIENTS: u32 = 8;
/// The most round trips that a call may take on average. A client competes with seven others, not with itself: twice that.
const TRIPS: u64 = 16;

pub(super) fn one_key(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let mut plan = scene.plan().processes(CLIENTS).pace(1);
    // The meter: whatever becomes of a call, its units are counted or they are not.
    let key = (plan.key("crowd", "meter"), plan.limit(METER), 3);
    plan.item(Item::take(1, [key]));
    let urls: Vec<String> = scene.urls().into_iter().cycle().take(usize::try_from(CLIENTS)?).collect();
    let load = Load::threads(site, plan, &urls)?;
    scene.rest(1_500, 20_000);
    let (history, audit) = scene.finish(load)?;
    let trips: u64 = scene.roads.iter().map(|road| road.traffic().round_trips).sum();
    let calls = u64::try_from(history.calls.len())?;
    let decided = history.calls.iter().filter(|call| matches!(call.answer, Answer::Decided { .. })).count();
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("tasks", u64::from(CLIENTS * TASKS)))
        .and(Figure::share("answered", u64::try_from(decided)?, calls).at_least(ANSWERED))
        .and(Figure::count("round trips", trips).at_most(TRIPS * calls)))
}

/// How many of a thousand calls have to be answered: of the others each client is told that the key is contended for, or that its time
/// was over.
const ANSWERED: u64 = 900;
