//! A row's place: the store, a proxy on the road of each client, and the clients.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Time};

use limiter_core::{Clock as _, Key, Limit, SystemClock};

use crate::case::Failure;
use crate::fault::audit::Audit;
use crate::fault::ground::{Act, Ground, Setting};
use crate::fault::load::Load;
use crate::fault::probe::Probe;
use crate::fault::{Site, Terms};
use crate::history::History;
use crate::monotonic;
use crate::proxy::{Fault, Proxy};
use crate::random::Random;
use crate::workload::{Item, PROCESSES, Plan};

/// A number that no other run has, and a count of the scenes in it: no two share a key.
static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
static SCENES: AtomicU64 = AtomicU64::new(0);

/// The limit of the keys that are asked once.
pub(crate) const ONCE: &str = "3/1h sliding-log";
/// The limit that counts all units of a key, since it never forgets one while a row lasts.
pub(crate) const METER: &str = "1000000000000/366d fixed-window";
/// Their places in the plan of a crowd.
pub(crate) const METER_KEY: usize = 0;
pub(crate) const METER_LIMIT: usize = 0;

/// Rows end their load by themselves; this is for one that hangs.
const LONGEST: Duration = Duration::from_mins(30);

/// Where a row runs.
pub(crate) struct Scene<'s> {
    pub(crate) site: &'s Site,
    pub(crate) terms: Terms,
    pub(crate) ground: Box<dyn Ground>,
    /// One for each client, in their order; none if there is no road.
    pub(crate) roads: Vec<Proxy>,
    /// A client on a road of its own, that nothing disturbs but the store itself.
    pub(crate) probe: Probe,
    pub(crate) random: Random,
    scope: String,
    /// The wall clock less the monotonic one, in µs, when the scene began.
    wall: u64,
    lag: Lag,
}

impl<'s> Scene<'s> {
    /// Starts the store, the proxies and the probe.
    pub(crate) fn open(site: &'s Site, terms: Terms, setting: &Setting) -> Result<Self, Failure> {
        let ground = site.prepare(setting)?;
        let roads = match ground.addr() {
            Some(addr) => (0..PROCESSES).map(|_| Proxy::start(addr)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let probe = Probe::connect(site, &site.url_of(&ground.url(None)))?;
        let scene = SCENES.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            site,
            terms,
            ground,
            roads,
            probe,
            random: Random::new(terms.seed),
            scope: format!("fault-{:x}-{scene}.", *RUN),
            wall: SystemClock.now().micros().saturating_sub(monotonic::micros()),
            lag: Lag::start(),
        })
    }

    pub(crate) fn scope(&self) -> &str {
        &self.scope
    }

    /// A key of this scene.
    pub(crate) fn key(&self, rule: &str, name: &str) -> Key {
        Key::new(&self.scope, rule, [name])
    }

    /// A length of time that grows with the scale.
    pub(crate) const fn time(&self, short: u64, long: u64) -> Duration {
        Duration::from_millis(self.terms.pick(short, long))
    }

    /// Lets the clients ask for a while.
    pub(crate) fn rest(&self, short: u64, long: u64) {
        std::thread::sleep(self.time(short, long));
    }

    /// A plan that ends when the row says so.
    pub(crate) fn plan(&self) -> Plan {
        let longest = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
        Plan::of(self.terms.seed, &self.scope, u32::MAX).stop_after(longest)
    }

    /// The usual clients: a hot key, warm ones under all algorithms, layers, a meter, and keys that are asked once. They
    /// rest a little after each call, so that there is a machine left for what disturbs them.
    pub(crate) fn crowd(&self) -> Plan {
        let mut plan = self.plan();
        let meter = (plan.key("crowd", "meter"), plan.limit(METER), 3);
        let once = plan.limit(ONCE);
        let hot = (plan.key("crowd", "hot"), plan.limit("100/100ms token-bucket burst=60"), 3);
        let outer = (plan.key("crowd", "outer"), plan.limit("60/100ms sliding-log"), 1);
        plan.item(Item::take(6, [meter]));
        plan.item(Item::take(24, [hot]));
        plan.item(Item::peek(3, [hot]));
        for (number, text) in [
            "8/50ms fixed-window",
            "8/50ms sliding-log",
            "8/50ms sliding-counter",
            "8/50ms token-bucket burst=12",
            "8/50ms leaky-bucket queue=12",
        ]
        .into_iter()
        .cycle()
        .take(16)
        .enumerate()
        {
            let warm = (plan.key("crowd", format!("warm-{number}")), plan.limit(text), 2);
            plan.item(Item::take(1, [warm]));
            plan.item(Item::take(1, [outer, warm]));
        }
        let per_task = self.terms.pick(400, 2_000);
        plan.once(25, u32::try_from(per_task).unwrap_or(u32::MAX), once).pace(2)
    }

    /// The URL of each client.
    pub(crate) fn urls(&self) -> Vec<String> {
        let url = |addr| self.site.url_of(&self.ground.url(addr));
        match self.roads.as_slice() {
            [] => (0..PROCESSES).map(|_| url(None)).collect(),
            roads => roads.iter().map(|road| url(Some(road.addr()))).collect(),
        }
    }

    /// Lets the plan's clients begin, in threads.
    pub(crate) fn begin(&self, plan: Plan) -> Result<Load, Failure> {
        Load::threads(self.site, plan, &self.urls())
    }

    /// The same in processes of their own, or in threads where the engine is in this process.
    pub(crate) fn begin_processes(&self, plan: Plan) -> Result<Load, Failure> {
        if self.roads.is_empty() {
            return self.begin(plan);
        }
        Load::processes(self.site, plan, &self.urls())
    }

    /// Sets a fault on all roads.
    pub(crate) fn set(&self, fault: Fault) -> Result<(), Failure> {
        Ok(self.roads.iter().try_for_each(|road| road.set(fault))?)
    }

    pub(crate) fn act(&self, act: Act) -> Result<(), Failure> {
        Ok(self.ground.act(act)?)
    }

    /// Waits until the store answers the probe.
    pub(crate) fn healed(&self) -> Result<Duration, Failure> {
        self.probe.wait_for_an_answer(&self.key("probe", "healed"), ONCE.parse()?)
    }

    /// Holds a history against all that has to hold of every one.
    pub(crate) fn audit(&self, history: &History, plan: &Plan) -> Result<Audit, Failure> {
        Audit::of(self, history, plan)
    }

    /// The history and its audit, once all its calls are made.
    pub(crate) fn finish_all(&self, load: Load) -> Result<(History, Audit), Failure> {
        let plan = load.plan().clone();
        let history = load.wait()?;
        let audit = self.audit(&history, &plan)?;
        Ok((history, audit))
    }

    /// The same of calls that end here.
    pub(crate) fn finish(&self, load: Load) -> Result<(History, Audit), Failure> {
        let plan = load.plan().clone();
        let history = load.finish()?;
        let audit = self.audit(&history, &plan)?;
        Ok((history, audit))
    }

    pub(crate) fn once_limit() -> Result<Limit, Failure> {
        Ok(ONCE.parse()?)
    }

    /// The wall clock at a reading of the monotonic one, in µs.
    pub(crate) const fn wall(&self, monotonic: u64) -> u64 {
        self.wall + monotonic
    }

    /// The most by which this machine was late to wake a thread since the scene began.
    pub(crate) fn lag(&self) -> Duration {
        self.lag.most()
    }
}

/// A thread that does nothing but see how late it is woken: what a bound on time may be missed by on a busy machine.
struct Lag {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Lag {
    fn start() -> Self {
        let (most, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (Arc::clone(&most), Arc::clone(&stop));
        std::thread::spawn(move || {
            const NAP: Duration = Duration::from_millis(5);
            while !stopped.load(Ordering::Relaxed) {
                let began = Time::now();
                std::thread::sleep(NAP);
                let late = began.elapsed().saturating_sub(NAP).as_micros();
                shared.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { most, stop }
    }

    fn most(&self) -> Duration {
        Duration::from_micros(self.most.load(Ordering::Relaxed))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
