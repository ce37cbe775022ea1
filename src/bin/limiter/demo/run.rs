//! The traffic, and the nodes that serve it: real threads, on a clock that is simulated.

use std::sync::{Arc, Barrier};
use std::thread;

use limiter::{Backend, Batch, Instant, Key, Limit, Request};
use serde::Serialize;
use tokio::runtime::Handle;

use crate::exit::{Exit, Failure};
use crate::store;

/// 2026-01-01 00:00:00 UTC: any instant would do, but the same each time.
const START: u64 = 1_767_225_600_000_000;
/// Instants in each period at which requests come.
const TICKS: u64 = 60;
/// The most requests in one call of a store.
const MAX_BATCH: u64 = 256;

/// The traffic.
pub(super) struct Plan {
    pub(super) limit: Limit,
    pub(super) nodes: u64,
    pub(super) periods: u64,
    /// Requests in each period.
    requests: u64,
}

/// What was counted in one run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outcome {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// What a store did not decide.
    pub(super) undecided: u64,
    /// Requests allowed in each period, by each node.
    pub(super) by_period: Vec<Vec<u64>>,
    /// Why something was not decided.
    #[serde(skip)]
    pub(super) reason: Option<String>,
}

/// What one node counted.
#[derive(Default)]
struct Counted {
    by_period: Vec<u64>,
    denied: u64,
    undecided: u64,
    reason: Option<String>,
}

impl Plan {
    pub(super) fn new(limit: Limit, nodes: u16, periods: u32, requests: u32) -> Self {
        Self { limit, nodes: nodes.into(), periods: periods.into(), requests: requests.into() }
    }

    /// How many requests there are in all.
    pub(super) fn asked(&self) -> u64 {
        self.requests * self.periods
    }

    /// What the limit's rate grants in all periods.
    pub(super) fn granted(&self) -> u64 {
        self.limit.amount() * self.periods
    }

    /// How many requests a node is asked in all.
    pub(super) fn asked_of(&self, node: u64) -> u64 {
        self.share(node, 0, self.asked())
    }

    /// How many of the requests numbered `from..to` the balancer gives to a node: it deals them out in turn.
    fn share(&self, node: u64, from: u64, to: u64) -> u64 {
        let upto = |end: u64| (end + self.nodes - 1 - node) / self.nodes;
        upto(to) - upto(from)
    }

    fn period(&self) -> u64 {
        u64::try_from(self.limit.period().as_micros()).unwrap_or(u64::MAX)
    }

    /// The instants at which requests come, in order: each with its period, and the numbers of its requests.
    fn ticks(&self) -> impl Iterator<Item = (u64, Instant, u64, u64)> {
        // On the epoch's grid, so that a period of the run is a window of the limit.
        let start = START - START % self.period();
        (0..self.periods * TICKS).filter_map(move |tick| {
            let at = Instant::from_micros(start + tick * self.period() / TICKS).ok()?;
            Some((tick / TICKS, at, tick * self.requests / TICKS, (tick + 1) * self.requests / TICKS))
        })
    }

    /// Serves the traffic: node n asks the nth engine. All may be the same one.
    pub(super) fn run(&self, engines: &[Arc<dyn Backend>]) -> Result<Outcome, Failure> {
        let key = Key::new(store::own_scope("demo"), "api", ["client"]);
        let request = Request::take(key, self.limit, 1).map_err(Failure::usage)?;
        let (runtime, barrier) = (Handle::current(), Barrier::new(engines.len()));
        let counted: Vec<thread::Result<Counted>> = thread::scope(|scope| {
            let nodes: Vec<_> = (0..)
                .zip(engines)
                .map(|(node, engine)| {
                    let (request, runtime, barrier) = (&request, &runtime, &barrier);
                    scope.spawn(move || self.serve(node, engine.as_ref(), request, runtime, barrier))
                })
                .collect();
            nodes.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let mut outcome = Outcome { by_period: (0..self.periods).map(|_| Vec::new()).collect(), ..Outcome::default() };
        for node in counted {
            let node = node.map_err(|_| Failure::new(Exit::Failed, "a node's thread broke down"))?;
            outcome.allowed += node.by_period.iter().sum::<u64>();
            outcome.denied += node.denied;
            outcome.undecided += node.undecided;
            outcome.reason = outcome.reason.or(node.reason);
            for (period, allowed) in outcome.by_period.iter_mut().zip(node.by_period) {
                period.push(allowed);
            }
        }
        Ok(outcome)
    }

    /// One node's thread.
    fn serve(
        &self,
        node: u64,
        engine: &dyn Backend,
        request: &Request,
        runtime: &Handle,
        barrier: &Barrier,
    ) -> Counted {
        let mut counted = Counted::default();
        for (period, at, from, to) in self.ticks() {
            // The clock goes on when all nodes are done. So whoever comes first at an instant, the totals are the same.
            barrier.wait();
            let mut allowed = 0;
            let mut left = self.share(node, from, to);
            while left > 0 {
                let size = left.min(MAX_BATCH);
                left -= size;
                let requests = (0..size).map(|_| request.clone()).collect();
                let batch = Arc::new(Batch { requests, at: Some(at) });
                for outcome in runtime.block_on(engine.submit(batch)) {
                    match outcome.decisions(request) {
                        Ok(decisions) if decisions.allowed => allowed += 1,
                        Ok(_) => counted.denied += 1,
                        Err(error) => {
                            counted.undecided += 1;
                            counted.reason.get_or_insert_with(|| error.to_string());
                        }
                    }
                }
            }
            match counted.by_period.get_mut(usize::try_from(period).unwrap_or(usize::MAX)) {
                Some(sum) => *sum += allowed,
                None => counted.by_period.push(allowed),
            }
        }
        counted
    }
}

impl Outcome {
    /// Requests that a node allowed in all periods.
    pub(super) fn of_node(&self, node: u64) -> u64 {
        let node = usize::try_from(node).unwrap_or(usize::MAX);
        self.by_period.iter().filter_map(|nodes| nodes.get(node)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn the_balancer_deals_every_request_to_one_node() {
        for (nodes, requests) in [(1, 1), (10, 3_000), (7, 59), (100, 3), (3, 61)] {
            let plan = Plan::new("1/1m fixed-window".parse().unwrap(), nodes, 4, requests);
            let nodes = u64::from(nodes);
            let dealt = |from: u64, to: u64| (0..nodes).map(|node| plan.share(node, from, to)).sum::<u64>();
            let ticks: Vec<_> = plan.ticks().collect();
            assert_eq!(ticks.iter().map(|(_, _, from, to)| dealt(*from, *to)).sum::<u64>(), plan.asked());
            assert_eq!((0..nodes).map(|node| plan.asked_of(node)).sum::<u64>(), plan.asked());
            for number in 0..plan.asked() {
                assert_eq!(plan.share(number % nodes, number, number + 1), 1);
            }
        }
    }
}
