//! F16, F17 and F18: a follower takes over from a primary that is dead, and from one that is not.

use std::net::SocketAddr;
use std::time::Duration;

use limiter_core::Op;

use crate::case::Failure;
use crate::fault::audit::{Excuse, nearest, recovered, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Setting};
use crate::fault::probe::Probe;
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::history::{Answer, Call, History};
use crate::monotonic;
use crate::proxy::{Fault, Proxy};

/// How far the follower is behind.
const LAG: Duration = Duration::from_millis(250);
/// What the machine may add to that.
const SLACK: Duration = Duration::from_millis(150);

/// `min-replicas-max-lag`, in seconds.
const MAX_LAG: u64 = 1;

fn follower(scene: &Scene<'_>) -> Result<SocketAddr, Failure> {
    scene.ground.follower().ok_or_else(|| Failure::new("the store has no follower"))
}

/// A client of the follower in place of that of the primary.
fn follow(scene: &mut Scene<'_>) -> Result<(), Failure> {
    let url = scene.site.url_of(&scene.ground.url(scene.ground.follower()));
    scene.probe = Probe::connect(scene.site, &url)?;
    Ok(())
}

pub(super) fn failover(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    take_over(site, terms, &Setting::default().and_follower(), Some(LAG))
}

/// A standby that lags loses what had not reached it; one for which commits wait loses nothing.
pub(super) fn standby(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    let setting = Setting::default();
    measured.join("asynchronous", take_over(site, terms, &setting.clone().and_follower(), Some(LAG))?);
    measured.join("synchronous", take_over(site, terms, &setting.and_synchronous_follower(), None)?);
    Ok(measured)
}

/// The primary is killed, the follower takes over. It is behind by so much, or has all that was acknowledged.
fn take_over(site: &Site, terms: Terms, setting: &Setting, behind: Option<Duration>) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, setting)?;
    if let Some(each_way) = behind {
        let link = scene.ground.link().ok_or_else(|| Failure::new("there is no link to the follower"))?;
        link.set(Fault::Delay { each_way, jitter: Duration::ZERO, seed: terms.seed })?;
    }
    let load = scene.begin(scene.crowd())?;
    scene.rest(700, 8_000);
    scene.act(Act::Kill)?;
    let killed = monotonic::micros();
    // The address moves before the follower may be written to: clients meet a server that refuses.
    let follower = follower(&scene)?;
    for road in &scene.roads {
        road.redirect(follower);
        road.reset()?;
    }
    scene.rest(120, 300);
    scene.act(Act::Promote)?;
    let promoted = monotonic::micros();
    follow(&mut scene)?;
    scene.healed()?;
    scene.rest(700, 5_000);
    let plan = load.plan().clone();
    let mut history = load.finish()?;
    // Which of the two decided what was on its way at the change can't be told.
    let over = recovered(&history, promoted).map(|time| time + Duration::from_micros(promoted - killed));
    let between = |call: &&mut Call| call.returned >= killed && call.invoked < promoted;
    history.calls.iter_mut().filter(between).for_each(|call| {
        if matches!(call.answer, Answer::Decided { .. }) {
            call.answer = Answer::Unknown;
        }
    });
    let mut audit = scene.audit(&history, &plan)?;
    // Versions made twice can't be put in one order: what each of the two decided is replayed by itself.
    let mut before = history.clone();
    before.calls.retain(|call| call.returned < killed || matches!(call.answer, Answer::Unknown));
    audit.replay_parts([before.replay(site.versions()), rest(&history, promoted).replay_rest(site.versions())]);
    let latest = history.calls.iter().map(|call| call.returned).max().unwrap_or_default();
    let oldest = audit.once.vanished_at.map(|age| killed.saturating_sub(latest.saturating_sub(age)));
    let oldest = Duration::from_micros(oldest.unwrap_or_default());
    let lost: u64 = audit.replay.lost.iter().map(|lost| lost.cost).sum();
    let mut measured = Measured::of(&audit, Excuse { lost: behind.is_some(), ..Excuse::default() });
    if let Some(behind) = behind {
        measured = measured
            .and(audit.window("window max", |window| window.bound + window.limit.capacity()))
            .and(Figure::count("acknowledged writes lost", audit.once.vanished))
            .and(Figure::count("units lost by version", lost))
            .and(Figure::time("oldest loss before the end", oldest).within(behind + SLACK + scene.lag()));
    }
    Ok(measured.and(Figure::time("switch-over", over.unwrap_or_default())).and(recovery(&scene, &history, promoted)))
}

pub(super) fn split(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    measured.join("unguarded", halves(site, terms, &Setting::default().and_follower(), None)?);
    let lag = MAX_LAG.to_string();
    let guarded = Setting::with([("min-replicas-to-write", "1"), ("min-replicas-max-lag", lag.as_str())]);
    // Followers answer once a second, the age of that is counted in whole seconds, and it is looked at once a second.
    let ends = Duration::from_secs(MAX_LAG + 2);
    measured.join("min-replicas", halves(site, terms, &guarded.and_follower(), Some(ends))?);
    Ok(measured)
}

/// One process stays with the old primary, the others go over to the follower. With a guard, the old one gives up by itself.
fn halves(site: &Site, terms: Terms, setting: &Setting, guard: Option<Duration>) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, setting)?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(500, 5_000);
    let follower = follower(&scene)?;
    scene.ground.link().ok_or_else(|| Failure::new("there is no link to the follower"))?.set(Fault::BlackHole)?;
    let parted = monotonic::micros();
    // When each client's road was moved: between the two, nobody can tell which of the servers decided.
    let mut moves = vec![(0, 0)];
    for road in scene.roads.iter().skip(1) {
        moves.push(move_to(road, follower)?);
    }
    scene.act(Act::Promote)?;
    let promoted = monotonic::micros();
    for (_, arrived) in moves.iter_mut().skip(1) {
        *arrived = promoted;
    }
    follow(&mut scene)?;
    // Somewhat longer than the guard may take, so that one which does not hold is seen.
    scene.rest(800, 5_000);
    std::thread::sleep(guard.unwrap_or_default());
    if let (Some(road), Some(first)) = (scene.roads.first(), moves.first_mut()) {
        *first = move_to(road, follower)?;
    }
    let healed = monotonic::micros();
    scene.healed()?;
    scene.rest(500, 3_000);
    let plan = load.plan().clone();
    let history = load.finish()?;
    let ended = moves.first().map_or(parted, |(left, _)| *left);
    let apart = |call: &Call| call.process == 0 && call.returned >= parted && call.returned < ended;
    let (old, new) = parts(&history, parted, &moves);
    // Each of the two stands by itself; together they may let pass twice as much, and no more.
    let mut audit = scene.audit(&new, &plan)?;
    let stayed = old.replay(site.versions());
    audit.replay_parts([rest(&new, promoted).replay_rest(site.versions())]);
    let admitted = |call: &&Call| {
        apart(call) && call.op == Op::Take && matches!(call.answer, Answer::Decided { allowed: true, .. })
    };
    let last = history.calls.iter().filter(admitted).map(|call| call.returned).max().unwrap_or(parted);
    let length = Figure::time("the old primary admits for", Duration::from_micros(last.saturating_sub(parted)));
    let length = match guard {
        Some(ends) => length.within(ends + scene.lag()),
        None => length,
    };
    let mut measured = Measured::of(&audit, Excuse { lost: true, slow: true, ..Excuse::default() });
    measured.told.extend(stayed.told.iter().cloned());
    Ok(measured
        .and(Figure::count("differences of the old primary", stayed.differences).at_most(0))
        .and(nearest("window max of both", &history.windows(), |window| 2 * window.bound))
        .and(length)
        .and(Figure::count("admitted by the old primary meanwhile", admitted_units(&history, &admitted)))
        .and(recovery(&scene, &history, healed)))
}

/// What the new primary decided, and what it may have.
fn rest(history: &History, promoted: u64) -> History {
    let mut rest = history.clone();
    rest.calls.retain(|call| call.invoked >= promoted || matches!(call.answer, Answer::Unknown));
    rest
}

/// Moves a road to another server, and tells when that began and when it was done.
fn move_to(road: &Proxy, follower: SocketAddr) -> Result<(u64, u64), Failure> {
    let left = monotonic::micros();
    road.redirect(follower);
    road.reset()?;
    Ok((left, monotonic::micros()))
}

/// What the old primary decided, and what the new one knows. A call of which it can't be told is not known to either.
fn parts(history: &History, parted: u64, moves: &[(u64, u64)]) -> (History, History) {
    let none = || History::new(history.keys.clone(), history.limits.clone());
    let (mut old, mut new) = (none(), none());
    for call in &history.calls {
        let place = usize::try_from(call.process).ok().and_then(|process| moves.get(process));
        let (left, arrived) = place.copied().unwrap_or_default();
        let blurred = Call { answer: Answer::Unknown, ..call.clone() };
        if call.returned < left {
            old.calls.push(call.clone());
        } else if call.invoked < arrived {
            old.calls.push(blurred.clone());
        }
        // Of the process that stays, the new primary has what came before the two were parted.
        let (from, until) = if call.process == 0 { (parted, left) } else { (left, left) };
        if call.returned < from || call.invoked >= arrived {
            new.calls.push(call.clone());
        } else if call.invoked < from || call.returned >= until {
            new.calls.push(blurred);
        }
    }
    (old, new)
}

fn admitted_units(history: &History, admitted: &dyn Fn(&&Call) -> bool) -> u64 {
    let calls = history.calls.iter().filter(|call| admitted(call));
    calls.flat_map(|call| call.checks.iter().map(|asked| asked.cost)).sum()
}
