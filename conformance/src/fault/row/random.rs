//! F30: one fault after the other, drawn from the seed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant as Time};

use crate::case::Failure;
use crate::fault::audit::{Excuse, recovery};
use crate::fault::figure::Figure;
use crate::fault::ground::{Act, Means, Setting};
use crate::fault::row::Measured;
use crate::fault::scene::Scene;
use crate::fault::{Site, Terms};
use crate::monotonic;
use crate::proxy::{Fault, Proxy, Then};
use crate::random::Random;

/// One thing that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// On all roads, or on one.
    Road(Fault, Option<u64>),
    Reset,
    Pause,
    ForgetScripts,
    DropClients,
    Hang,
}

impl Trouble {
    /// The next one of those that the site can have.
    pub(crate) fn draw(site: &Site, random: &mut Random) -> Self {
        loop {
            let one = (random.below(3) == 0).then(|| random.next());
            let (trouble, needs) = match random.below(11) {
                0 => (Self::Road(delay(random), one), None),
                1 => (Self::Road(Fault::Stall, one), None),
                2 => (Self::Road(Fault::BlackHole, one), None),
                3 => (Self::Road(Fault::Cut { after: 1 + random.below(2_000) }, one), None),
                4 => (Self::Road(Fault::DropReply(Then::Reset), one), None),
                5 => (Self::Road(Fault::DropReply(Then::Silence), one), None),
                6 => (Self::Road(Fault::Refuse, one), None),
                7 => (Self::Pause, Some(Means::Pause)),
                8 => (Self::ForgetScripts, Some(Means::Scripts)),
                9 => (Self::DropClients, Some(Means::DropClients)),
                10 if random.below(2) == 0 => (Self::Hang, Some(Means::Hang)),
                _ => (Self::Reset, None),
            };
            if needs.is_none_or(|means| site.lack(means).is_none()) {
                return trouble;
            }
        }
    }

    /// Makes it, waits, and heals it.
    pub(crate) fn happen(self, scene: &Scene<'_>, time: Duration) -> Result<(), Failure> {
        match self {
            Self::Road(fault, one) => {
                let all = u64::try_from(scene.roads.len()).unwrap_or(1).max(1);
                let on = |index: u64| one.is_none_or(|one| one % all == index);
                let roads: Vec<&Proxy> =
                    (0..).zip(&scene.roads).filter(|(index, _)| on(*index)).map(|(_, road)| road).collect();
                roads.iter().try_for_each(|road| road.set(fault))?;
                std::thread::sleep(time);
                roads.iter().try_for_each(|road| road.set(Fault::Pass))?;
            }
            Self::Reset => scene.roads.iter().try_for_each(Proxy::reset)?,
            Self::Pause => {
                scene.act(Act::Pause)?;
                std::thread::sleep(time);
                scene.act(Act::Resume)?;
            }
            Self::ForgetScripts => scene.act(Act::ForgetScripts)?,
            Self::DropClients => scene.act(Act::DropClients)?,
            Self::Hang => {
                scene.act(Act::Hang(time))?;
                std::thread::sleep(time);
            }
        }
        Ok(())
    }

    const fn kind(self) -> u8 {
        match self {
            Self::Road(Fault::Delay { .. }, _) => 0,
            Self::Road(Fault::Stall, _) => 1,
            Self::Road(Fault::BlackHole, _) => 2,
            Self::Road(Fault::Cut { .. }, _) => 3,
            Self::Road(Fault::DropReply(Then::Reset), _) => 4,
            Self::Road(Fault::DropReply(Then::Silence), _) => 5,
            Self::Road(..) => 6,
            Self::Reset => 7,
            Self::Pause => 8,
            Self::ForgetScripts => 9,
            Self::DropClients => 10,
            Self::Hang => 11,
        }
    }
}

fn delay(random: &mut Random) -> Fault {
    let each_way = Duration::from_millis(1 + random.below(60));
    Fault::Delay { each_way, jitter: each_way / 2, seed: random.next() }
}

pub(super) fn plan(site: &Site, terms: Terms) -> Result<Measured, Failure> {
    let mut scene = Scene::open(site, terms, &Setting::default())?;
    let load = scene.begin(scene.crowd())?;
    let (mut troubles, mut kinds, began) = (0, BTreeSet::new(), Time::now());
    let mut random = scene.random.clone();
    while began.elapsed() < scene.time(3_000, 60_000) {
        let trouble = Trouble::draw(site, &mut random);
        trouble.happen(&scene, Duration::from_millis(20 + random.below(terms.pick(250, 1_500))))?;
        troubles += 1;
        kinds.insert(trouble.kind());
        std::thread::sleep(Duration::from_millis(20 + random.below(150)));
    }
    let healed = monotonic::micros();
    scene.healed()?;
    scene.random = random;
    scene.rest(700, 3_000);
    let (history, audit) = scene.finish(load)?;
    Ok(Measured::of(&audit, Excuse::default())
        .and(Figure::count("faults", troubles))
        .and(Figure::count("kinds of them", u64::try_from(kinds.len())?))
        .and(recovery(&scene, &history, healed)))
}
