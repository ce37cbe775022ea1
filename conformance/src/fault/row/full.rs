//! F24 and F25: a store that is full. Without eviction it refuses; with eviction, a debt may be forgotten.

use std::time::{Duration, Instant as Time};

use limiter_core::{Check, Key, Limit, Op, Outcome, Request};

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Setting};
use crate::fault::probe::PATIENCE;
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Scale, Site, Terms};
use crate::history::{Answer, Call, admitted_between};
use crate::monotonic;

const POLICIES: [&str; 8] = [
    "noeviction",
    "allkeys-lru",
    "volatile-ttl",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
];
/// How many of them a short run goes through.
const FEW: usize = 3;

/// Exhausted before the spray.
const VICTIM: &str = "20/1h sliding-log";
const BATCH: u64 = 256;

/// How long it may take until each session knows what one knows.
const SETTLED: Duration = Duration::from_millis(200);

/// Nothing can be written for a while: the disk or the database is full, or the server is read-only.
pub(super) fn refuses(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default().and_small())?;
    let load = scene.begin(scene.crowd())?;
    scene.rest(300, 2_000);
    scene.act(Act::RefuseWrites)?;
    let limit = Scene::once_limit()?;
    let mut nth = 0_u64;
    let mut written = |scene: &Scene<'_>| {
        nth += 1;
        let outcome = scene.probe.ask(Op::Take, &scene.key("full", &nth.to_string()), limit, 1)?;
        Ok::<_, Failure>(matches!(outcome, Outcome::Allowed(_)))
    };
    // A server tells its sessions one after the other.
    wait("refuse", || written(&scene).map(|written| !written))?;
    std::thread::sleep(SETTLED + scene.lag());
    let from = monotonic::micros();
    scene.rest(600, 8_000);
    let until = monotonic::micros();
    scene.act(Act::TakeWrites)?;
    let healed = monotonic::micros();
    wait("take", || written(&scene))?;
    scene.rest(500, 4_000);
    let (history, audit) = scene.finish(load)?;
    let meanwhile = |call: &&Call| call.invoked >= from && call.returned <= until;
    let refused = history.calls.iter().filter(meanwhile).filter(|call| matches!(call.answer, Answer::NotSent)).count();
    let peeks = |call: &&Call| call.op == Op::Peek && matches!(call.answer, Answer::Decided { .. });
    let questions = history.calls.iter().filter(meanwhile).filter(peeks).count();
    // What is answered without writing was never gone: a client is well again when it may take.
    let mut taken = history.clone();
    taken.calls.retain(|call| matches!(call.answer, Answer::Decided { allowed: true, .. }) && call.op == Op::Take);
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("admitted meanwhile", admitted_between(&history, from, until)).at_most(0))
        .and(Figure::count("refused", u64::try_from(refused)?).at_least(1))
        .and(Figure::count("questions answered meanwhile", u64::try_from(questions)?))
        .and(recovery(&scene, &taken, healed)))
}

/// Asks until it is so.
fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let began = Time::now();
    while !is_so()? {
        if began.elapsed() > PATIENCE {
            return Err(Failure::new(format!("the store does not {what} writes after {PATIENCE:?}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(super) fn sprayed(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let policies = if terms.scale == Scale::Short { FEW } else { POLICIES.len() };
    let mut measured = Measured::default();
    for policy in POLICIES.into_iter().take(policies) {
        measured.join(policy, one(site, terms, policy)?);
    }
    Ok(measured)
}

fn one(site: &Site, terms: Terms, policy: &str) -> Result<Measured, Failure> {
    let (room, keys) = (terms.pick(3, 48), terms.pick(20_000, 1_000_000));
    let room = format!("{room}mb");
    let setting = Setting::with([("maxmemory", room.as_str()), ("maxmemory-policy", policy)]);
    let scene = Scene::open(site, terms, &setting)?;
    let (victim, limit): (_, Limit) = (scene.key("full", "victim"), VICTIM.parse()?);
    let before = scene.probe.take(&victim, limit, limit.capacity() + 5)?;
    let (mut admitted, mut refused) = (0_u64, 0);
    // Its keys are to live longer than the victim, so that the shortest life is no shelter.
    let spray: Limit = "10/7d token-bucket".parse()?;
    for batch in 0..keys / BATCH {
        let requests: Result<Vec<Request>, _> = (0..BATCH)
            .map(|nth| {
                let key = Key::new(scene.scope(), "spray", [(batch * BATCH + nth).to_string()]);
                Request::new(Op::Take, [Check::new(key, spray, 1)])
            })
            .collect();
        for outcome in scene.probe.submit(requests?, None)? {
            match outcome {
                Outcome::Allowed(_) => admitted += 1,
                Outcome::Denied(_) => {}
                Outcome::NotSent(_) | Outcome::Unknown(_) => refused += 1,
            }
        }
    }
    let extra = scene.probe.take(&victim, limit, limit.capacity() + 5)?;
    // What a store without room refuses was not applied; what one that makes room forgets is one capacity at most.
    let evicts = policy != "noeviction";
    let bound = if evicts { limit.capacity() } else { 0 };
    let stored = u64::try_from(scene.ground.stored(scene.scope())?.len())?;
    let gone = (admitted + 1).saturating_sub(stored);
    let refused = Figure::count("refused", refused);
    let refused = if evicts { refused.at_most(0) } else { refused.at_least(1) };
    Ok(Measured::default()
        .and(Figure::count("admitted before", before).exactly(limit.capacity()))
        .and(Figure::count("keys sprayed", keys))
        .and(refused)
        .and(Figure::count("keys evicted", gone))
        .and(Figure::count("extra", extra).at_most(bound)))
}
