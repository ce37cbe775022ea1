//! F09, F13, F14 and F15: what a store does to its clients while it lives.

use std::time::{Duration, Instant as Time};

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Setting};
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::monotonic;

pub(super) fn pause(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(300, 2_000);
    scene.act(Act::Pause)?;
    // Longer than a call: what is queued in the store is decided when nobody waits for it any more.
    let random = Duration::from_millis(scene.random.below(terms.pick(200, 3_000)));
    std::thread::sleep(site.call_timeout() * 3 / 2 + scene.time(0, 4_000) + random);
    scene.act(Act::Resume)?;
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(500, 3_000);
    let (history, audit) = scene.finish(load)?;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("stale admissions", audit.stale).at_most(0))
        .and(recovery(&scene, &history, healed)))
}

pub(super) fn forget_scripts(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    let (mut flushes, began) = (0, Time::now());
    while began.elapsed() < scene.time(1_200, 20_000) {
        std::thread::sleep(Duration::from_millis(100));
        scene.act(Act::ForgetScripts)?;
        flushes += 1;
    }
    scene.rest(200, 1_000);
    let trips: u64 = scene.roads.iter().map(|road| road.traffic().round_trips).sum();
    let (_, audit) = scene.finish(load)?;
    let failed = audit.replay.unknown + audit.replay.not_sent;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("flushes", flushes))
        .and(Figure::count("errors", failed).at_most(0))
        .and(Figure::count("round trips", trips)))
}

pub(super) fn drop_clients(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    let (mut kills, began) = (0, Time::now());
    while began.elapsed() < scene.time(1_200, 20_000) {
        std::thread::sleep(Duration::from_millis(50 + scene.random.below(150)));
        scene.act(Act::DropClients)?;
        kills += 1;
    }
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(400, 2_000);
    let (history, audit) = scene.finish(load)?;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("kills of all clients", kills))
        .and(recovery(&scene, &history, healed)))
}

pub(super) fn hang(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(300, 2_000);
    let random = Duration::from_millis(scene.random.below(terms.pick(200, 2_000)));
    let time = site.call_timeout() * 3 / 2 + scene.time(0, 2_000) + random;
    scene.act(Act::Hang(time))?;
    std::thread::sleep(time);
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(500, 3_000);
    let (history, audit) = scene.finish(load)?;
    Ok(Measured::of(&audit, Excuse::default()).and(recovery(&scene, &history, healed)))
}
