//! F19 and F20: members of a store that die, stall, and hand over to each other.

use std::time::{Duration, Instant as Time};

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovered, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Setting};
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::history::{History, admitted_between};
use crate::monotonic;

/// How long there may be no answer when one of three is lost: until calls to it are given up, the others have elected one of
/// themselves, and clients have found that one.
const UNAVAILABLE: Duration = Duration::from_secs(5);

pub(super) fn lost(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default().and_members())?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(400, 3_000);
    let mut gone = Vec::new();
    for (act, name) in [(Act::KillLeader, "without the leader"), (Act::KillFollower, "without a follower")] {
        scene.act(act)?;
        let at = monotonic::micros();
        scene.healed()?;
        // Longer than a call, so that each client has begun one that it ends.
        std::thread::sleep(site.call_timeout() + scene.time(500, 5_000));
        gone.push((name, at));
        scene.act(Act::Restart)?;
        scene.rest(500, 3_000);
    }
    scene.act(Act::PauseMost)?;
    let stopped = monotonic::micros();
    std::thread::sleep(site.call_timeout() * 2 + scene.time(0, 6_000));
    let until = monotonic::micros();
    scene.act(Act::Resume)?;
    let healed = monotonic::micros();
    scene.healed()?;
    std::thread::sleep(site.call_timeout() + scene.time(500, 3_000));
    let (history, audit) = scene.finish(load)?;
    let mut measured = Measured::of(&audit, Excuse::default());
    gone.push(("with a quorum again", healed));
    for (name, at) in gone {
        let name = format!("no answer {name} for");
        measured = measured.and(match recovered(&history, at) {
            Some(time) => Figure::time(name, time).within(UNAVAILABLE + scene.lag()),
            None => Figure::count(name, 1).at_most(0),
        });
    }
    Ok(measured
        .and(Figure::count("admitted without a quorum", admitted_between(&history, stopped, until)).at_most(0))
        .and(Figure::count("calls without a quorum", begun_between(&history, stopped, until)).at_least(1)))
}

fn begun_between(history: &History, from: u64, until: u64) -> u64 {
    let begun = history.calls.iter().filter(|call| call.invoked >= from && call.returned <= until);
    u64::try_from(begun.count()).unwrap_or(u64::MAX)
}

pub(super) fn leaders(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default().and_members())?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(300, 2_000);
    let (mut changes, began) = (0, Time::now());
    while began.elapsed() < scene.time(4_000, 60_000) {
        // A leader may lose its office before it has handed it over; the next one does it then.
        changes += u64::from(scene.act(Act::MoveLeader).is_ok());
        scene.rest(500, 2_000);
    }
    let healed = monotonic::micros();
    scene.healed()?;
    std::thread::sleep(site.call_timeout() + scene.time(200, 2_000));
    let (history, audit) = scene.finish(load)?;
    let stored = scene.ground.stored(scene.scope())?;
    let immortal = stored.iter().filter(|stored| stored.lifetime.is_none()).count();
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("changes of the leader", changes).at_least(3))
        .and(Figure::count("keys stored", u64::try_from(stored.len())?).at_least(1))
        .and(Figure::count("keys without a lease", u64::try_from(immortal)?).at_most(0))
        .and(recovery(&scene, &history, healed)))
}
