//! F03 to F07: what can happen between a client and its store.

use std::time::{Duration, Instant as Time};

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::Setting;
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::history::{Answer, History};
use crate::monotonic;
use crate::proxy::{Fault, Then};

pub(super) fn delay(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    // A question and its answer are delayed once each.
    let half = Duration::from_millis(25);
    let load = scene.begin(scene.crowd())?;
    scene.rest(200, 2_000);
    scene.set(Fault::Delay { each_way: half, jitter: half, seed: terms.seed })?;
    scene.rest(900, 10_000);
    scene.set(Fault::Pass)?;
    scene.rest(200, 1_000);
    let (_, audit) = scene.finish(load)?;
    let failed = audit.replay.unknown + audit.replay.not_sent;
    let p99 = Figure::time("p99", audit.p99).within(site.call_timeout());
    // A call of several round trips may be too late on a busy machine; few are.
    let failed = Figure::count("without an answer", failed).at_most(audit.replay.calls / 50);
    Ok(Measured::of(&audit, Excuse::default()).and(failed).and(p99))
}

pub(super) fn black_hole(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(300, 2_000);
    scene.set(Fault::BlackHole)?;
    let fell = monotonic::micros();
    // Longer than any call may take, so that each meets it.
    let random = Duration::from_millis(scene.random.below(terms.pick(200, 5_000)));
    std::thread::sleep(site.call_timeout() * 2 + scene.time(0, 5_000) + random);
    scene.set(Fault::Pass)?;
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(700, 3_000);
    let (history, audit) = scene.finish(load)?;
    let passes = without_answer(&history, fell, healed);
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("passed meanwhile", decided_within(&history, fell, healed)).at_most(0))
        .and(Figure::count("would pass under fail-open", passes).at_least(1))
        .and(recovery(&scene, &history, healed)))
}

/// Calls that began and ended in a stretch of time, and were decided.
fn decided_within(history: &History, from: u64, to: u64) -> u64 {
    let within = history.calls.iter().filter(|call| call.invoked >= from && call.returned <= to);
    let decided = within.filter(|call| matches!(call.answer, Answer::Decided { .. }));
    u64::try_from(decided.count()).unwrap_or(u64::MAX)
}

/// Calls that ended in a stretch of time without an answer.
fn without_answer(history: &History, from: u64, to: u64) -> u64 {
    let within = history.calls.iter().filter(|call| call.returned >= from && call.returned <= to);
    let failed = within.filter(|call| !matches!(call.answer, Answer::Decided { .. }));
    u64::try_from(failed.count()).unwrap_or(u64::MAX)
}

pub(super) fn reset(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    let (mut resets, began) = (0, Time::now());
    while began.elapsed() < scene.time(1_200, 20_000) {
        std::thread::sleep(Duration::from_millis(200));
        scene.roads.iter().try_for_each(crate::proxy::Proxy::reset)?;
        resets += 1;
    }
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(400, 2_000);
    let (history, audit) = scene.finish(load)?;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("resets", resets))
        .and(recovery(&scene, &history, healed)))
}

pub(super) fn drop_reply(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(200, 1_000);
    let dropped = |scene: &Scene<'_>| -> u64 {
        let lost = |road: &crate::proxy::Proxy| road.traffic().from_store.saturating_sub(road.traffic().to_clients);
        scene.roads.iter().map(lost).sum()
    };
    let began = Time::now();
    while began.elapsed() < scene.time(800, 15_000) {
        scene.set(Fault::DropReply(Then::Reset))?;
        std::thread::sleep(Duration::from_millis(20 + scene.random.below(40)));
        scene.set(Fault::Pass)?;
        std::thread::sleep(Duration::from_millis(60 + scene.random.below(80)));
    }
    // And once so that clients wait until their patience ends: a client that sends again does so then.
    scene.set(Fault::DropReply(Then::Silence))?;
    std::thread::sleep(site.call_timeout() + Duration::from_millis(150));
    scene.set(Fault::Pass)?;
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(400, 2_000);
    let (history, audit) = scene.finish(load)?;
    let figures = Measured::of(&audit, Excuse::default());
    Ok(figures
        .and(Figure::count("bytes of replies dropped", dropped(&scene)).at_least(1))
        .and(recovery(&scene, &history, healed)))
}

pub(super) fn cut(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    let (mut cuts, began) = (0, Time::now());
    while began.elapsed() < scene.time(1_200, 20_000) {
        // In the middle of the first reply, or of one of the next.
        let after = 1 + scene.random.below(if cuts % 2 == 0 { 30 } else { 2_000 });
        scene.set(Fault::Cut { after })?;
        std::thread::sleep(Duration::from_millis(20 + scene.random.below(40)));
        scene.set(Fault::Pass)?;
        std::thread::sleep(Duration::from_millis(60 + scene.random.below(80)));
        cuts += 1;
    }
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(400, 2_000);
    let (history, audit) = scene.finish(load)?;
    // A reply that reached the wrong call is one of another key: a difference, or a refusal of a key that is fresh.
    let crossed = audit.replay.differences + audit.once.false_no;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("cuts", cuts))
        .and(Figure::count("wrong-key answers", crossed).at_most(0))
        .and(recovery(&scene, &history, healed)))
}
