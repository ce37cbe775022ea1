//! F23: the clocks of the clients' machines are half a second off, to both sides.

use std::ffi::OsString;
use std::time::Duration;

use limiter_core::Limit;

use crate::case::Failure;
use crate::fault::audit::Excuse;
use crate::fault::figure::Figure;
use crate::fault::ground::{Setting, faker};
use crate::fault::load::Load;
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::history::{Answer, History};
use crate::workload::Item;

const OFF: i64 = 500_000;
/// It gains a unit in 20 ms, and clients ask more often, on a slow disk too.
const STREAM: &str = "50/1s token-bucket burst=20";
/// By how much less or more a clock may be seen to be off: a call takes its time.
const SEEN: Duration = Duration::from_millis(150);

pub(super) fn clocks(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    for (name, off) in [("even", 0), ("half a second off", OFF)] {
        measured.join(name, apart(site, terms, off)?);
    }
    Ok(measured)
}

/// The first client's clock is behind, the second's ahead, the third's right.
fn apart(site: &Site, terms: Terms, off: i64) -> Result<Measured, Failure> {
    let scene = Scene::open(site, terms, &Setting::default())?;
    let mut plan = scene.plan().pace(2);
    let (stream, text) = (plan.key("skew", "stream"), plan.limit(STREAM));
    plan.item(Item::take(1, [(stream, text, 1)]));
    let envs = [-off, off, 0].into_iter().map(clock).collect::<Result<Vec<_>, _>>()?;
    let load = Load::processes_in(site, plan, &scene.urls(), &envs)?;
    scene.rest(2_000, 20_000);
    let (history, audit) = scene.finish(load)?;
    let limit: Limit = STREAM.parse()?;
    let admitted = history.ledger(stream).admitted;
    let first = history.calls.iter().map(|call| call.invoked).min().unwrap_or_default();
    let last = history.calls.iter().map(|call| call.returned).max().unwrap_or_default();
    let spread = 2 * off.unsigned_abs();
    // What a clock of its own lets pass, and once what the rate is worth in the time that the clocks are apart.
    let bound = limit.capacity() + gained(&limit, last - first + spread);
    let (behind, ahead) = seen(&scene, &history);
    let off = Duration::from_micros(off.unsigned_abs());
    // Behind shows only until it has met a state of the clock ahead, on which it decides from then on.
    let ahead = Figure::time("the clock ahead is ahead by", ahead);
    let ahead = match off.checked_sub(SEEN) {
        Some(seen) => ahead.at_least(u64::try_from(seen.as_millis())?),
        None => ahead.within(SEEN + scene.lag()),
    };
    Ok(Measured::of(&audit, Excuse { clock: true, ..Excuse::default() })
        .and(Figure::count("admitted", admitted).at_most(bound))
        .and(Figure::count("admitted by a limit that is in use", admitted).at_least(limit.capacity() + limit.amount()))
        .and(ahead)
        .and(Figure::time("an instant lies behind its call by", behind).within(off + SEEN + scene.lag())))
}

/// What is gained in so many µs, and a unit for the rounding.
fn gained(limit: &Limit, micros: u64) -> u64 {
    let gained = u128::from(limit.amount()) * u128::from(micros) / limit.period().as_micros().max(1);
    u64::try_from(gained).unwrap_or(u64::MAX).saturating_add(1)
}

/// The environment of a process whose wall clock is off, and its other clocks are not.
fn clock(off: i64) -> Result<Vec<(OsString, OsString)>, Failure> {
    let sign = if off < 0 { '-' } else { '+' };
    let time = Duration::from_micros(off.unsigned_abs());
    let set = format!("{sign}{}.{:06}", time.as_secs(), time.subsec_micros());
    let pairs = [("LD_PRELOAD", faker()?), ("FAKETIME", set.as_str()), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    Ok(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
}

/// By how much an instant lies before the call that it was decided in, and after it, at most.
fn seen(scene: &Scene<'_>, history: &History) -> (Duration, Duration) {
    let (mut behind, mut ahead) = (0, 0);
    for call in &history.calls {
        if let Answer::Decided { at, .. } = call.answer {
            behind = behind.max(scene.wall(call.invoked).saturating_sub(at.micros()));
            ahead = ahead.max(at.micros().saturating_sub(scene.wall(call.returned)));
        }
    }
    (Duration::from_micros(behind), Duration::from_micros(ahead))
}
