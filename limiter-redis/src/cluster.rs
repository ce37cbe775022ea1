//! A cluster: a link to each of its nodes, and the list of who serves which slots.
//!
//! The driver's own cluster client sends a call again when its connection breaks, and can wait for ever. Here each node is a
//! [`Link`], which does neither, and what is sent again is what a node has refused for certain.

mod slots;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limiter_core::script::{Answer, Node, Part, Reached, Round, Sending, Server, Slots, Spread};
use limiter_core::{Batch, Error, ErrorKind, Outcome};
use redis::Pipeline;
use tokio::sync::Mutex as Turn;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use self::slots::ranges;
use crate::ENGINE;
use crate::config::Config;
use crate::connect::{Link, Place, packed, reply};
use crate::error::{Failure, not_sent};

/// The slots are not asked for more often than this, unless a node says that they have changed.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Cluster {
    config: Arc<Config>,
    seeds: Vec<Node>,
    state: Mutex<State>,
    /// Whose turn it is to ask for the slots.
    turn: Turn<()>,
}

#[derive(Default)]
struct State {
    slots: Slots,
    asked: Option<Instant>,
    links: HashMap<Node, Arc<Link>>,
}

impl Cluster {
    pub(crate) fn new(config: Arc<Config>, seeds: Vec<Node>) -> Self {
        Self { config, seeds, state: Mutex::default(), turn: Turn::new(()) }
    }

    /// Asks for the slots, and judges the nodes.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        let until = Instant::now() + self.config.connect_timeout;
        let asked = timeout_at(until, self.ask_for_slots(0, until)).await;
        asked.unwrap_or_else(|_| Err(not_sent("the cluster did not answer while connecting")))?;
        let nodes = self.state().slots.nodes();
        let (mut reached, mut missing) = (0, None);
        for node in nodes {
            match self.link(&node).connect().await {
                Ok(()) => reached += 1,
                // Who is away may come back, or be replaced; who refuses does so for good.
                Err(error) if error.kind() == ErrorKind::Refused => return Err(error),
                Err(error) => missing = Some(error),
            }
        }
        match missing {
            Some(error) if reached == 0 => Err(error),
            Some(error) => {
                tracing::warn!(engine = ENGINE, "a node of the cluster can't be reached: {error}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn server(&self) -> Option<Server> {
        self.state().links.values().find_map(|link| link.server())
    }

    /// Decides a batch: what keeps to a slot in one round, what does not in several.
    pub(crate) async fn submit(self: &Arc<Self>, batch: Arc<Batch>, nonce: &Arc<AtomicU64>) -> Vec<Outcome> {
        let mut spread = Spread::new(ENGINE, batch);
        let deadline = Instant::now() + self.config.call_timeout;
        if !spread.spans() {
            let parts = spread.next(false);
            for (part, outcomes) in self.round(parts, nonce, deadline).await {
                spread.answer(&part, outcomes);
            }
            spread.next(false);
            return spread.outcomes();
        }
        let spread = Arc::new(Mutex::new(spread));
        let driving = drive(Arc::clone(self), Arc::clone(&spread), Arc::clone(nonce), deadline);
        // In a task of its own: what was taken is refunded even if the caller goes, or is answered before the nodes are.
        let driving = tokio::spawn(driving);
        let _late = timeout_at(deadline, driving).await;
        lock(&spread).outcomes()
    }

    fn link(&self, node: &Node) -> Arc<Link> {
        let mut state = self.state();
        if let Some(link) = state.links.get(node) {
            return Arc::clone(link);
        }
        let link = Arc::new(Link::new(Arc::clone(&self.config), Place::Node(node.clone())));
        state.links.insert(node.clone(), Arc::clone(&link));
        link
    }

    /// Brings each part to the node of its slot, and its outcomes back.
    async fn round(&self, parts: Vec<Part>, nonce: &AtomicU64, deadline: Instant) -> Vec<(Part, Vec<Outcome>)> {
        let mut round = Round::new(ENGINE, parts, || nonce.fetch_add(1, Ordering::Relaxed));
        if let Some(number) = self.doubts() {
            // If there is nothing newer to be had, what is known has to do.
            let _unchanged = self.ask_for_slots(number, deadline).await;
        }
        while round.is_open() {
            let number = self.state().slots.number();
            self.turn(&mut round, deadline).await;
            if let Some(advice) = round.advice() {
                sleep(advice.wait.min(deadline.saturating_duration_since(Instant::now()))).await;
                let _unchanged = self.ask_for_slots(number, deadline).await;
            }
            round.end_of_turn(&self.state().slots, Instant::now() >= deadline);
        }
        round.outcomes().collect()
    }

    /// Sends what is open, those of one node in one write, and takes in what comes back.
    async fn turn(&self, round: &mut Round, deadline: Instant) {
        let pipelines: Vec<_> = round.sends(&self.state().slots).into_iter().map(pipelined).collect();
        let mut asked = JoinSet::new();
        for (node, pipeline, places) in pipelines {
            let link = self.link(&node);
            asked.spawn(async move { (node, link.calls(&pipeline, deadline).await, places) });
        }
        while let Some(joined) = asked.join_next().await {
            let Ok((node, answers, places)) = joined else { continue };
            let mut answers = answers.into_iter();
            for (call, asking) in places {
                // What `ASKING` itself is answered does not matter: the answer behind it tells.
                let Some(answer) = (if asking { answers.nth(1) } else { answers.next() }) else { continue };
                let reply = answer.and_then(reply);
                let reached = match &reply {
                    Ok(reply) => Reached::Answer(Answer::Reply(reply)),
                    Err(Failure::NoScript) => Reached::Answer(Answer::NoScript),
                    Err(Failure::Failed { error, .. }) => Reached::Answer(Answer::Failed(error.clone())),
                    Err(Failure::Elsewhere { error, to }) => Reached::Elsewhere(to.clone(), error.clone()),
                };
                round.answer(call, &node, reached, &mut self.state().slots);
            }
        }
    }

    /// The number of what is known of the slots, if it is time to ask anew.
    fn doubts(&self) -> Option<u64> {
        let state = self.state();
        let rested = state.asked.is_none_or(|asked| asked.elapsed() >= PAUSE);
        (state.slots.is_doubtful() && rested).then(|| state.slots.number())
    }

    /// Asks the nodes for the slots, one after the other until one tells, unless somebody has since.
    async fn ask_for_slots(&self, number: u64, deadline: Instant) -> Result<(), Error> {
        let turn = timeout_at(deadline, self.turn.lock()).await;
        let Ok(_turn) = turn else { return Err(not_sent("no answer from the cluster in time")) };
        if self.state().slots.number() != number {
            return Ok(());
        }
        self.state().asked = Some(Instant::now());
        let nodes = self.whom_to_ask();
        // One that does not answer must not use up the time that is there for the others.
        let each =
            deadline.saturating_duration_since(Instant::now()) / u32::try_from(nodes.len().clamp(1, 4)).unwrap_or(1);
        let mut told = not_sent("no node of the cluster can be reached");
        for node in nodes {
            let until = deadline.min(Instant::now() + each);
            let mut question = redis::cmd("CLUSTER");
            question.arg("SLOTS");
            let answer = timeout_at(until, self.link(&node).ask(&question, until)).await;
            match answer.unwrap_or_else(|_| Err(not_sent("a node of the cluster did not answer in time"))) {
                Ok(answer) => {
                    let ranges = ranges(&answer, &node.0);
                    if ranges.is_empty() {
                        told = Error::new(ENGINE, ErrorKind::Refused, "the cluster serves no slots");
                        continue;
                    }
                    self.keep(ranges);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Refused => told = error,
                Err(error) if told.kind() != ErrorKind::Refused => told = error,
                Err(_) => {}
            }
        }
        Err(told)
    }

    /// The nodes that are known, those first that there is a connection to; then those of the configuration.
    fn whom_to_ask(&self) -> Vec<Node> {
        let state = self.state();
        let mut nodes = state.slots.nodes();
        nodes.sort_by_key(|node| !state.links.get(node).is_some_and(|link| link.is_connected()));
        let seeds = self.seeds.iter().filter(|seed| !nodes.contains(seed)).cloned().collect::<Vec<_>>();
        nodes.into_iter().chain(seeds).collect()
    }

    fn keep(&self, ranges: Vec<(u16, u16, Node)>) {
        let mut state = self.state();
        state.slots.learn(ranges);
        let nodes = state.slots.nodes();
        // Of those that are no longer part of it, calls in flight hold their own.
        state.links.retain(|node, _| nodes.contains(node));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// What goes to one node, and for each call its number and whether `ASKING` is before it.
fn pipelined((node, sends): (Node, Vec<Sending<'_>>)) -> (Node, Pipeline, Vec<(usize, bool)>) {
    let (mut pipeline, mut places) = (Pipeline::with_capacity(sends.len()), Vec::with_capacity(sends.len()));
    for send in sends {
        if send.asking {
            pipeline.add_command(redis::cmd("ASKING"));
        }
        pipeline.add_command(packed(send.command));
        places.push((send.call, send.asking));
    }
    (node, pipeline, places)
}

/// Plays all rounds. Each has its own deadline; once the caller's has passed, nothing more is taken, and what was is refunded.
async fn drive(cluster: Arc<Cluster>, spread: Arc<Mutex<Spread>>, nonce: Arc<AtomicU64>, deadline: Instant) {
    loop {
        let parts = lock(&spread).next(Instant::now() >= deadline);
        if parts.is_empty() {
            return;
        }
        let until = Instant::now() + cluster.config.call_timeout;
        for (part, outcomes) in cluster.round(parts, &nonce, until).await {
            lock(&spread).answer(&part, outcomes);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Cluster")
            .field("config", &self.config)
            .field("nodes", &state.slots.nodes().len())
            .field("links", &state.links.len())
            .finish_non_exhaustive()
    }
}
