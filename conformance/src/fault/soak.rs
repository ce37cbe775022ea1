//! One long load with a fault now and then: whether anything leaks, and whether all units are accounted for in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use limiter_core::{Backend, Batch, Check, Key, Limit, Op, Outcome, Request};

use crate::case::Failure;
use crate::fault::figure::Figure;
use crate::fault::ground::Setting;
use crate::fault::row::random::Trouble;
use crate::fault::row::{Measured, apart};
use crate::fault::scene::{METER, Scene};
use crate::fault::{RowReport, Scale, Site, Terms};
use crate::random::Random;
use crate::workload::TASKS;

/// Until the drivers' buffers and the allocator have what they need.
const WARM: Duration = Duration::from_mins(2);
/// How much this process may grow after that, in MiB, beside a tenth.
const GROWTH: u64 = 8;

/// What the tasks count.
#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    admitted: AtomicU64,
    unknown: AtomicU64,
    stop: AtomicBool,
}

/// Runs for about so long. The figures are this process' memory after 2 minutes (or a fifth of the time, if that is less) and
/// at the end, and the units that the store counts beside those that were admitted.
///
/// It blocks, and may be called with or without an asynchronous runtime around.
pub fn run(site: &Site, seed: u64, time: Duration) -> RowReport {
    let began = Instant::now();
    let measured = apart(|| soak(site, seed, time));
    RowReport::of(("soak", "one long load with a fault now and then"), site, measured, began.elapsed())
}

fn soak(site: &Site, seed: u64, time: Duration) -> Result<Measured, Failure> {
    // Before anything else: where nobody can tell, nothing need be run.
    resident()?;
    let scene = Scene::open(site, Terms::new(seed, Scale::Short), &Setting::default())?;
    let (meter, limit): (_, Limit) = (scene.key("soak", "meter"), METER.parse()?);
    let counts = Arc::new(Counts::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut tasks = Vec::new();
    for (client, url) in (0_u64..).zip(scene.urls()) {
        let engine = runtime.block_on(site.connect(url))?;
        for task in 0..u64::from(TASKS) {
            let random = Random::part(seed, client * u64::from(TASKS) + task);
            let caller = ask(Arc::clone(&engine), scene.scope().to_owned(), meter.clone(), random, Arc::clone(&counts));
            tasks.push(runtime.spawn(caller));
        }
    }
    let began = Instant::now();
    let warm = WARM.min(time / 5);
    let (mut random, mut troubles, mut early) = (scene.random.clone(), 0, None);
    while began.elapsed() < time {
        if began.elapsed() >= warm && early.is_none() {
            early = Some(resident()?);
        }
        std::thread::sleep(Duration::from_millis(300 + random.below(1_500)));
        if !scene.roads.is_empty() {
            let trouble = Trouble::draw(site, &mut random);
            trouble.happen(&scene, Duration::from_millis(20 + random.below(800)))?;
            troubles += 1;
        }
    }
    let late = resident()?;
    scene.healed()?;
    counts.stop.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        for task in tasks {
            task.await??;
        }
        Ok::<_, Failure>(())
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    let left = scene.probe.left([&meter], limit, None)?;
    let consumed = limit.capacity() - left.first().copied().unwrap_or_default();
    let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
    let (admitted, unknown) = (of(&counts.admitted), of(&counts.unknown));
    let early = early.unwrap_or(late);
    Ok(Measured::default()
        .and(Figure::count("calls", of(&counts.calls)))
        .and(Figure::count("faults", troubles))
        .and(Figure::count("units admitted", admitted))
        .and(Figure::count("units unknown", unknown))
        .and(Figure::count("units consumed, at least what was admitted", consumed).at_least(admitted))
        .and(Figure::count("units consumed", consumed).at_most(admitted + unknown))
        .and(Figure::count("MiB resident when warm", early))
        .and(Figure::count("MiB resident at the end", late).at_most(early + early / 10 + GROWTH)))
}

/// One task: units of the meter, of a hot key, and of keys that nobody asked before.
async fn ask(
    engine: Arc<dyn Backend>,
    scope: String,
    meter: Key,
    mut random: Random,
    counts: Arc<Counts>,
) -> Result<(), Failure> {
    let (metered, hot_limit): (Limit, Limit) = (METER.parse()?, "500/100ms token-bucket".parse()?);
    let fresh: Limit = "5/500ms sliding-log".parse()?;
    let hot = Key::new(&scope, "soak", ["hot"]);
    while !counts.stop.load(Ordering::SeqCst) {
        let (is_meter, check) = match random.below(4) {
            0 => (true, Check::new(meter.clone(), metered, 1)),
            1 => (false, Check::new(Key::new(&scope, "soak", [random.next().to_string()]), fresh, 1)),
            _ => (false, Check::new(hot.clone(), hot_limit, 1)),
        };
        let outcomes = engine.submit(Arc::new(Batch::of(Request::new(Op::Take, [check])?))).await;
        counts.calls.fetch_add(1, Ordering::SeqCst);
        match outcomes.first() {
            Some(Outcome::Allowed(_)) if is_meter => counts.admitted.fetch_add(1, Ordering::SeqCst),
            Some(Outcome::Unknown(_)) if is_meter => counts.unknown.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// The memory that this process has, in MiB.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| Failure::new(format!("nobody tells how much memory this process has: {error}")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.map(|kib| kib / 1024).ok_or_else(|| Failure::new("no VmRSS in /proc/self/status"))
}
