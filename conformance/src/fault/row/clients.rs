//! F08, F10 and F11: what becomes of the others when one client is cut off, stands still, or is killed.

use std::time::Duration;

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Means, Setting};
use crate::fault::load::worker;
use crate::fault::row::Measured;
use crate::fault::scene::{METER_KEY, Scene};
use crate::fault::{Site, Terms};
use crate::history::{Answer, Call};
use crate::monotonic;
use crate::proxy::Fault;
use crate::workload::{PROCESSES, Plan};

pub(super) fn partitioned(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin_processes(scene.crowd())?;
    scene.rest(300, 2_000);
    let cut_off = scene.roads.first().ok_or_else(|| Failure::new("there is no road"))?;
    cut_off.set(Fault::BlackHole)?;
    std::thread::sleep(site.call_timeout() * 2 + scene.time(0, 8_000));
    cut_off.set(Fault::Pass)?;
    scene.rest(500, 3_000);
    let (history, audit) = scene.finish(load)?;
    let failed = |process: u32| {
        let calls = history.calls.iter().filter(|call| call.process == process);
        calls.filter(|call| !matches!(call.answer, Answer::Decided { .. })).count()
    };
    let others: usize = (1..PROCESSES).map(failed).sum();
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("failures of the process cut off", u64::try_from(failed(0))?).at_least(1))
        .and(Figure::count("failures of the others", u64::try_from(others)?).at_most(0)))
}

/// One process stands still, in the middle of whatever it does. Where clients can hold locks, one does.
pub(super) fn still(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    measured.join("a process stopped", stopped(site, terms)?);
    if site.lack(Means::RowLocks).is_none() {
        measured.join("rows held", rows_held(site, terms)?);
    }
    Ok(measured)
}

fn stopped(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin_processes(scene.crowd())?;
    scene.rest(300, 2_000);
    let stops = terms.pick(6, 60);
    for nth in 0..stops {
        load.stand_still(0, true)?;
        let still = Duration::from_millis(20 + scene.random.below(60));
        // The last time for longer than a call may take.
        std::thread::sleep(if nth + 1 < stops { still } else { site.call_timeout() * 3 / 2 });
        load.stand_still(0, false)?;
        std::thread::sleep(Duration::from_micros(20_000 + scene.random.below(60_000)));
    }
    scene.rest(300, 2_000);
    let (history, audit) = scene.finish(load)?;
    let others = || history.calls.iter().filter(|call| call.process != 0);
    let failed = others().filter(|call| !matches!(call.answer, Answer::Decided { .. })).count();
    let longest = others().map(|call| call.returned.saturating_sub(call.invoked)).max().unwrap_or_default();
    Ok(Measured::of(&audit, Excuse { slow: true, ..Excuse::default() })
        .and(Figure::count("stops", stops))
        .and(Figure::count("failures of the others", u64::try_from(failed)?).at_most(0))
        .and(Figure::time("longest stall of the others", Duration::from_micros(longest)).within(audit.longest_call())))
}

/// A session holds all rows and stands still: who wants one of them is told so in time, and who does not notices nothing.
fn rows_held(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let plan = scene.crowd();
    let fresh = plan.once_keys();
    let load = scene.begin(plan)?;
    // So that the hot key has its row.
    scene.rest(400, 2_000);
    scene.act(Act::HoldRows)?;
    let held = monotonic::micros();
    std::thread::sleep(site.call_timeout() + scene.time(0, 8_000));
    let until = monotonic::micros();
    scene.act(Act::LetRowsGo)?;
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(500, 3_000);
    let (history, audit) = scene.finish(load)?;
    let within = || history.calls.iter().filter(|call| call.invoked >= held && call.returned <= until);
    let decided = |call: &&Call| matches!(call.answer, Answer::Decided { .. });
    let of_fresh = within().filter(|call| call.checks.iter().all(|asked| fresh.contains(&asked.key)));
    let of_held = |call: &&Call| {
        call.checks.iter().any(|asked| asked.key == METER_KEY)
            && matches!(call.answer, Answer::Decided { allowed: true, .. })
    };
    let longest = within().map(|call| call.returned - call.invoked).max().unwrap_or_default();
    let turned_away = within().filter(|call| matches!(call.answer, Answer::NotSent)).count();
    Ok(Measured::of(&audit, Excuse::default())
        .and(
            Figure::count("admitted of a row that is held", u64::try_from(within().filter(of_held).count())?)
                .at_most(0),
        )
        .and(Figure::count("told that a row is held", u64::try_from(turned_away)?).at_least(1))
        .and(Figure::count("answers about other rows", u64::try_from(of_fresh.filter(decided).count())?).at_least(1))
        .and(Figure::time("longest stall", Duration::from_micros(longest)).within(audit.longest_call()))
        .and(recovery(&scene, &history, healed)))
}

/// Two processes ask all the time. A third one begins, and is killed somewhere, again and again.
pub(super) fn killed(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let kills = u32::try_from(terms.pick(8, 200))?;
    // A kill may meet a process between two calls. Then there are more, until one has met a call.
    let most = kills + 8;
    let plan: Plan = scene.crowd().processes(2 + most);
    let urls = scene.urls();
    let (steady, victim) = urls.split_at(2);
    let victim = victim.first().ok_or_else(|| Failure::new("there is no road"))?;
    let load = crate::fault::load::Load::processes(site, plan.clone(), steady)?;
    let folder = tempfile::tempdir()?;
    let (mut calls, mut killed, mut in_flight) = (Vec::new(), 0, 0);
    for kill in 0..most {
        if kill >= kills && in_flight > 0 {
            break;
        }
        let mut process = worker(site, &plan, 2 + kill, victim, folder.path(), true)?;
        process.ready()?;
        process.go()?;
        std::thread::sleep(Duration::from_micros(20_000 + scene.random.below(120_000)));
        let mut own = process.kill()?;
        killed += 1;
        in_flight += own.iter().filter(|call| matches!(call.answer, Answer::Unknown)).count();
        calls.append(&mut own);
    }
    scene.rest(200, 1_000);
    let mut history = load.finish()?;
    let survivors = history.calls.iter().filter(|call| !matches!(call.answer, Answer::Decided { .. })).count();
    history.calls.append(&mut calls);
    let audit = scene.audit(&history, &plan)?;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("kills", killed))
        .and(Figure::count("calls in flight at a kill", u64::try_from(in_flight)?).at_least(1))
        .and(Figure::count("failures of the others", u64::try_from(survivors)?).at_most(0)))
}
