//! A cluster: a link to each of its nodes, led by the core's rules for what is asked where and what is asked again.
//!
//! The driver's own cluster client counts a redirection as an attempt. With one attempt, which is all that a charge may have, it
//! can't follow any; with two it sends again what was in flight when a connection broke.

mod slots;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use limiter_core::script::{Answer, Node, Part, Reached, Round, Server, Slots, Spread};
use limiter_core::{Batch, Error, ErrorKind, Outcome};
use tokio::sync::{Mutex as Turn, OnceCell};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use self::slots::ranges;
use crate::ENGINE;
use crate::config::Config;
use crate::connect::{Link, packed};
use crate::error::{Failure, not_sent, refused};

/// The slots are not asked for more often than this, unless a node says that they have changed.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Cluster {
    config: Arc<Config>,
    state: Mutex<State>,
    /// Whose turn it is to ask for the slots.
    turn: Turn<()>,
}

#[derive(Default)]
struct State {
    slots: Slots,
    asked: Option<Instant>,
    links: HashMap<Node, Arc<Socket>>,
}

/// A node's link, made at its first use.
#[derive(Default)]
struct Socket {
    link: OnceCell<Link>,
    failed: Mutex<Option<(Instant, Error)>>,
}

impl Cluster {
    /// Asks for the slots, and judges the nodes.
    pub(crate) async fn connect(config: Arc<Config>) -> Result<Self, Error> {
        let cluster = Self { config, state: Mutex::default(), turn: Turn::new(()) };
        let until = Instant::now() + cluster.config.connect_timeout;
        let asked = timeout_at(until, cluster.ask_for_slots(0, until)).await;
        asked.unwrap_or_else(|_| Err(not_sent("the cluster did not answer while connecting")))?;
        let nodes = cluster.state().slots.nodes();
        let (mut reached, mut missing) = (0, None);
        for node in nodes {
            match cluster.socket(&node).link(&cluster.config, &node).await {
                Ok(_) => reached += 1,
                // Who is away may come back, or be replaced; who refuses does so for good.
                Err(error) if error.kind() == ErrorKind::Refused => return Err(error),
                Err(error) => missing = Some(error),
            }
        }
        match missing {
            Some(error) if reached == 0 => return Err(error),
            Some(error) => tracing::warn!(engine = ENGINE, "a node of the cluster can't be reached: {error}"),
            None => {}
        }
        Ok(cluster)
    }

    pub(crate) fn server(&self) -> Option<Server> {
        self.state().links.values().find_map(|socket| socket.link.get().map(|link| link.server().clone()))
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

    fn socket(&self, node: &Node) -> Arc<Socket> {
        Arc::clone(self.state().links.entry(node.clone()).or_default())
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

    /// Sends what is open, and takes in what comes back. The driver writes together what comes together.
    async fn turn(&self, round: &mut Round, deadline: Instant) {
        let slots = self.state().slots.clone();
        let mut asked = JoinSet::new();
        for (node, sends) in round.sends(&slots) {
            let socket = self.socket(&node);
            for send in sends {
                let (call, asking, command) = (send.call, send.asking, packed(send.command));
                let (node, socket, config) = (node.clone(), Arc::clone(&socket), Arc::clone(&self.config));
                asked.spawn(async move {
                    let linked = timeout_at(deadline, socket.link(&config, &node)).await;
                    let answer = match linked.unwrap_or_else(|_| Err(not_sent("no connection in time"))) {
                        Ok(link) if asking => link.send_asking(command, deadline).await,
                        Ok(link) => link.send(command, deadline).await,
                        Err(error) => Err(Failure::Failed { error, lost: false }),
                    };
                    (node, call, answer)
                });
            }
        }
        while let Some(joined) = asked.join_next().await {
            let Ok((node, call, answer)) = joined else { continue };
            let reached = match &answer {
                Ok(reply) => Reached::Answer(Answer::Reply(reply)),
                Err(Failure::NoScript) => Reached::Answer(Answer::NoScript),
                Err(Failure::Failed { error, .. }) => Reached::Answer(Answer::Failed(error.clone())),
                Err(Failure::Elsewhere { error, to }) => Reached::Elsewhere(to.clone(), error.clone()),
            };
            round.answer(call, &node, reached, &mut self.state().slots);
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
        let shares = u32::try_from(nodes.len().clamp(1, 4)).unwrap_or(1);
        let each = deadline.saturating_duration_since(Instant::now()) / shares;
        let mut told = not_sent("no node of the cluster can be reached");
        for node in nodes {
            let until = deadline.min(Instant::now() + each);
            let socket = self.socket(&node);
            let asked = timeout_at(until, async { socket.link(&self.config, &node).await?.slots(until).await }).await;
            match asked.unwrap_or_else(|_| Err(not_sent("a node of the cluster did not answer in time"))) {
                Ok(answer) => {
                    let ranges = ranges(&answer, &node.0);
                    if ranges.is_empty() {
                        told = refused("the cluster serves no slots");
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

    /// The nodes that are known, those first that there is a link to; then those of the configuration.
    fn whom_to_ask(&self) -> Vec<Node> {
        let state = self.state();
        let mut nodes = state.slots.nodes();
        let linked =
            |node: &Node| state.links.get(node).and_then(|socket| socket.link.get()).is_some_and(Link::is_connected);
        nodes.sort_by_key(|node| !linked(node));
        let seeds = self.config.seeds.iter().filter(|seed| !nodes.contains(seed)).cloned().collect::<Vec<_>>();
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

impl Socket {
    async fn link(&self, config: &Arc<Config>, node: &Node) -> Result<&Link, Error> {
        let connect = async {
            if let Some((at, error)) = &*lock(&self.failed)
                && at.elapsed() < PAUSE
            {
                return Err(error.clone());
            }
            let connected = Box::pin(Link::connect(Arc::clone(config), Some(node))).await;
            *lock(&self.failed) = connected.as_ref().err().map(|error| (Instant::now(), error.clone()));
            connected
        };
        self.link.get_or_try_init(|| connect).await
    }
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
