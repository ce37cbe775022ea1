//! A batch as the functions' arguments, and their result as outcomes. The form is told at the head of `take.sql` and `step.sql`.

use limiter_core::fold::{Decided, Plan, cost_span, terms};
use limiter_core::{
    Algorithm, Batch, Bucket, FixedWindow, Instant, Layer, Limit, LogView, Op, Outcome, Request, SlidingCounter, View,
};

/// No stored number is larger: instants are below 2^53, and a TAT at most a horizon of 2^52 beyond.
const LARGEST: u64 = 1 << 54;

/// Which function decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// `one.sql`.
    One,
    /// `take.sql`.
    Take,
    /// `step.sql`.
    Step,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) keys: Vec<String>,
    pub(crate) argument: Vec<i64>,
    plan: Plan,
    /// For `one.sql` and `take.sql`, whose keys are in another order than the steps: the step of each.
    order: Vec<usize>,
}

impl Call {
    pub(crate) fn of(batch: &Batch) -> Self {
        let plan = Plan::of(batch);
        if is_simple(batch, &plan) { Self::take(batch, plan) } else { Self::step(batch, plan) }
    }

    /// A simple batch: one step for each key.
    fn take(batch: &Batch, plan: Plan) -> Self {
        let key = |step: &usize| plan.steps().get(*step).and_then(|step| plan.keys().get(step.numbers().first()?.0));
        let mut order: Vec<usize> = (0..plan.steps().len()).collect();
        order.sort_unstable_by_key(key);
        let keys = order.iter().filter_map(key).map(|key| key.as_str().to_owned()).collect();
        let mut argument = vec![instant(batch), count(plan.limits().len())];
        put_limits(&mut argument, plan.limits());
        let steps = || order.iter().filter_map(|step| plan.steps().get(*step));
        let checks = || steps().filter_map(|step| batch.requests.get(step.request())?.checks().first());
        argument.extend(steps().filter_map(|step| Some(count(step.numbers().first()?.1 + 1))));
        argument.extend(checks().map(|check| whole(check.cost)));
        argument.extend(checks().map(|check| whole(cost_span(check).0)));
        argument.extend(checks().map(|check| whole(cost_span(check).1)));
        argument.extend(steps().map(|step| i64::from(step.count())));
        let function = if order.len() == 1 { Function::One } else { Function::Take };
        Self { function, keys, argument, plan, order }
    }

    fn step(batch: &Batch, plan: Plan) -> Self {
        let groups = groups(batch, &plan);
        let mut order: Vec<usize> = (0..plan.keys().len()).collect();
        order.sort_unstable_by_key(|key| (groups.get(*key), plan.keys().get(*key)));
        // The place of each key, from 1.
        let mut places = vec![0; order.len()];
        for (place, key) in order.iter().enumerate() {
            if let Some(slot) = places.get_mut(*key) {
                *slot = count(place + 1);
            }
        }
        let keys = order.iter().filter_map(|key| plan.keys().get(*key)).map(|key| key.as_str().to_owned()).collect();
        let up_to = |last: Group| count(groups.iter().filter(|group| **group <= last).count());
        let mut argument = vec![
            instant(batch),
            count(plan.limits().len()),
            count(plan.steps().len()),
            up_to(Group::Written),
            up_to(Group::HeldStill),
        ];
        put_limits(&mut argument, plan.limits());
        for step in plan.steps() {
            let Some(request) = batch.requests.get(step.request()) else { continue };
            let (op, taken) = match request.op() {
                Op::Take => (0, 0),
                Op::Refund { taken } => (2, whole(taken.micros())),
                Op::Reset => (3, 0),
                _ => (1, 0),
            };
            argument.extend([op, i64::from(step.count()), count(request.checks().len()), taken]);
            for (check, (key, limit)) in request.checks().iter().zip(step.numbers()) {
                let (long, part) = cost_span(check);
                let place = places.get(*key).copied().unwrap_or_default();
                argument.extend([place, count(limit + 1), whole(check.cost), whole(long), whole(part)]);
            }
        }
        Self { function: Function::Step, keys, argument, plan, order: Vec::new() }
    }

    /// The outcomes, one for each request of the batch. None if the result has not the form.
    pub(crate) fn outcomes(&self, batch: &Batch, result: &[i64]) -> Option<Vec<Outcome>> {
        let (now, rest) = result.split_first()?;
        let now = Instant::from_micros(u64::try_from(*now).ok()?).ok()?;
        if batch.at.is_some_and(|at| at != now) {
            return None;
        }
        let decided = match self.function {
            Function::One | Function::Take => self.taken(batch, rest)?,
            Function::Step => self.stepped(batch, rest)?,
        };
        self.plan.outcomes(batch, now, decided)
    }

    fn taken(&self, batch: &Batch, result: &[i64]) -> Option<Vec<Decided>> {
        let size = self.order.len();
        if result.len() != 5 * size {
            return None;
        }
        let mut decided = Vec::new();
        decided.resize_with(size, || None);
        for (place, step) in self.order.iter().enumerate() {
            let request = batch.requests.get(self.plan.steps().get(*step)?.request())?;
            let number = |column: usize| result.get(column * size + place).copied();
            let numbers = [number(1)?, number(2)?, number(3)?, number(4)?];
            let layer = layer(&request.checks().first()?.limit, numbers)?;
            *decided.get_mut(*step)? = Some(Decided::new(u32::try_from(number(0)?).ok()?, [layer]));
        }
        decided.into_iter().collect()
    }

    fn stepped(&self, batch: &Batch, result: &[i64]) -> Option<Vec<Decided>> {
        let mut rest = result;
        let steps = self.plan.steps().iter().map(|step| {
            let (allowed, after) = rest.split_first()?;
            rest = after;
            let checks = batch.requests.get(step.request())?.checks().iter();
            let layers = checks.map(|check| {
                let (numbers, after) = rest.split_first_chunk::<4>()?;
                rest = after;
                layer(&check.limit, *numbers)
            });
            let layers: Vec<Layer> = layers.collect::<Option<_>>()?;
            Some(Decided::new(u32::try_from(*allowed).ok()?, layers))
        });
        let decided: Vec<Decided> = steps.collect::<Option<_>>()?;
        rest.is_empty().then_some(decided)
    }
}

/// Whether all are takes of one check that costs something, of keys that differ, by limits that are no logs.
fn is_simple(batch: &Batch, plan: &Plan) -> bool {
    let simple = |request: &Request| match request.checks() {
        [check] => request.op() == Op::Take && check.cost > 0 && check.limit.algorithm() != Algorithm::SlidingLog,
        _ => false,
    };
    plan.steps().len() == plan.keys().len() && batch.requests.iter().all(simple)
}

/// What the server has to do with a key's row before it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Make it if it is not there, and lock it.
    Written,
    /// Lock it if it is there: a log is read in parts.
    HeldStill,
    /// Nothing: it is read at once.
    Asked,
}

fn groups(batch: &Batch, plan: &Plan) -> Vec<Group> {
    let mut groups = vec![Group::Asked; plan.keys().len()];
    for step in plan.steps() {
        let Some(request) = batch.requests.get(step.request()) else { continue };
        for (check, (key, _)) in request.checks().iter().zip(step.numbers()) {
            let group = match request.op() {
                Op::Take | Op::Refund { .. } if check.cost > 0 => Group::Written,
                Op::Reset => Group::Written,
                _ if check.limit.algorithm() == Algorithm::SlidingLog => Group::HeldStill,
                _ => Group::Asked,
            };
            if let Some(slot) = groups.get_mut(*key) {
                *slot = group.min(*slot);
            }
        }
    }
    groups
}

fn put_limits(argument: &mut Vec<i64>, limits: &[Limit]) {
    for limit in limits {
        let (shape, numbers) = terms(limit);
        argument.push(i64::from(shape));
        argument.extend(numbers.map(whole));
    }
}

fn instant(batch: &Batch) -> i64 {
    batch.at.map_or(-1, |at| whole(at.micros()))
}

/// All numbers that are sent are below 2^53.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A batch of 2^63 checks does not fit into memory.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a check was decided on. None if no state can have these numbers.
fn layer(limit: &Limit, [x, y, z, version]: [i64; 4]) -> Option<Layer> {
    let sound = |number: i64| u64::try_from(number).ok().filter(|number| *number <= LARGEST);
    let view = match limit.algorithm() {
        Algorithm::FixedWindow => View::FixedWindow(FixedWindow { start: sound(x)?, count: sound(y)? }),
        Algorithm::SlidingLog => {
            // Told is the entry that has to expire, or -1.
            let opens_at = if z == -1 { 0 } else { sound(z)? + u64::try_from(limit.period().as_micros()).ok()? };
            View::SlidingLog(LogView { live: sound(x)?, newest: sound(y)?, opens_at })
        }
        Algorithm::SlidingCounter => {
            View::SlidingCounter(SlidingCounter { start: sound(x)?, current: sound(y)?, previous: sound(z)? })
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            View::Bucket(Bucket { tat: sound(x)?, rest: sound(y)?, seen: sound(z)? })
        }
    };
    Some(Layer { view, version: sound(version)? })
}
