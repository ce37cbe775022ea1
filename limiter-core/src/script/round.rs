//! One round of parts on its way to a cluster's nodes, without the I/O: who is asked what, and what is asked again.
//!
//! ```text
//!   new ──► sends: calls by node ──► the driver, all at once ──► answer, for each call
//!            ▲                                                        │
//!            └────────── end_of_turn ◄── asks for the slots anew ◄── advice, if any has to be asked again
//! ```
//!
//! What is sent again is what a node refused for certain, and a bounded number of times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Command, Elsewhere, Exchange, Node, Part, Slots};
use crate::error::{Error, ErrorKind};
use crate::outcome::Outcome;

/// How often a call goes to another node, or to the same one later.
const TURNS: u32 = 6;
/// How long to wait at first for a cluster that is changing.
const WAIT: Duration = Duration::from_millis(5);

/// Parts on their way.
#[derive(Debug)]
pub struct Round {
    engine: &'static str,
    calls: Vec<Call>,
    turns: u32,
}

/// A part on its way.
#[derive(Debug)]
struct Call {
    part: Part,
    exchange: Exchange,
    /// The node that was named for this call; else the slots say.
    named: Option<Node>,
    /// Whether that node has to be told that it was named.
    asking: bool,
    /// The node that refused it last, and how, if it may be asked again.
    refused: Option<(Node, Error)>,
}

/// A call that is to be sent: `ASKING` before it if `asking`, with nothing in between.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// By which [`Round::answer`] knows it.
    pub call: usize,
    /// Whether the node has to be told that it was named for this call.
    pub asking: bool,
    /// What is sent.
    pub command: Command<'a>,
}

/// What came of a call.
#[derive(Debug)]
pub enum Reached<'a> {
    /// As on a single server.
    Answer(Answer<'a>),
    /// The node refused it, since the keys are to be asked for in another way.
    Elsewhere(Elsewhere, Error),
}

/// What to do before calls are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Wait so long first.
    pub wait: Duration,
}

impl Round {
    /// Begins with the parts of a [`Spread`](super::Spread)'s round; `nonce` gives each call a number of its own.
    pub fn new(engine: &'static str, parts: Vec<Part>, mut nonce: impl FnMut() -> u64) -> Self {
        let calls = parts.into_iter().map(|part| {
            let exchange = Exchange::new(engine, Arc::clone(&part.batch), nonce());
            Call { part, exchange, named: None, asking: false, refused: None }
        });
        Self { engine, calls: calls.collect(), turns: 0 }
    }

    /// What to send now, by node. Empty: it is over, unless there is [`advice`](Self::advice).
    pub fn sends(&mut self, slots: &Slots) -> BTreeMap<Node, Vec<Sending<'_>>> {
        let mut sends: BTreeMap<Node, Vec<Sending<'_>>> = BTreeMap::new();
        for (index, call) in self.calls.iter_mut().enumerate() {
            let Some(command) = call.exchange.command() else { continue };
            if let Some(node) = call.named.as_ref().or_else(|| slots.node(call.part.slot)) {
                sends.entry(node.clone()).or_default().push(Sending { call: index, asking: call.asking, command });
            } else {
                let kind = ErrorKind::Refused;
                let unserved = Error::new(self.engine, kind, "a part of the cluster's slots is served by no node");
                call.refused = Some((Node::default(), unserved));
            }
        }
        sends
    }

    /// Whether some calls have no outcome yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.calls.iter().any(|call| call.exchange.command().is_some())
    }

    /// Tells what came of a call that was sent to `node`.
    pub fn answer(&mut self, call: usize, node: &Node, reached: Reached<'_>, slots: &mut Slots) {
        let Some(call) = self.calls.get_mut(call) else { return };
        (call.named, call.asking) = (None, false);
        match reached {
            Reached::Answer(Answer::Failed(error)) if error.kind() == ErrorKind::NotSent => {
                slots.doubt();
                call.refused = Some((node.clone(), error));
            }
            Reached::Answer(answer) => {
                match &answer {
                    // The same node is asked again, with the script.
                    Answer::NoScript => call.named = Some(node.clone()),
                    Answer::Failed(error) if !error.kind().is_certain() => slots.doubt(),
                    Answer::Failed(_) | Answer::Reply(_) => {}
                }
                call.exchange.answer(answer);
            }
            Reached::Elsewhere(to, error) => {
                let at = |(host, port): Node| if host.is_empty() { (node.0.clone(), port) } else { (host, port) };
                match to {
                    Elsewhere::Moved(named) => {
                        call.named = named.map(at);
                        match &call.named {
                            Some(named) => slots.moved(call.part.slot, named.clone()),
                            None => slots.doubt(),
                        }
                    }
                    Elsewhere::Ask(named) => {
                        call.named = named.map(at);
                        call.asking = call.named.is_some();
                    }
                    Elsewhere::Later => slots.doubt(),
                }
                call.refused = Some((node.clone(), error));
            }
        }
    }

    /// Once all that was sent is answered: whether to ask for the slots anew, so that those who were refused learn where to go.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        let lost = || self.calls.iter().filter(|call| call.named.is_none()).filter_map(|call| call.refused.as_ref());
        lost().next()?;
        // Who can't be reached may have been replaced already; who refuses has nothing else to offer yet.
        let waits = lost().any(|(_, error)| error.kind() == ErrorKind::Refused);
        Some(Advice { wait: if waits { WAIT * 2_u32.saturating_pow(self.turns) } else { Duration::ZERO } })
    }

    /// Ends a turn: what was refused, and can't be asked elsewhere or any more, ends so. `late`: nothing is asked any more.
    pub fn end_of_turn(&mut self, slots: &Slots, late: bool) {
        self.turns += 1;
        for call in &mut self.calls {
            let Some((node, error)) = call.refused.take() else { continue };
            let same = call.named.is_none() && slots.node(call.part.slot) == Some(&node);
            // Who can't be reached, and is still the one to ask, may be asked by the next call.
            if (same && error.kind() == ErrorKind::NotSent) || self.turns > TURNS || late {
                call.exchange.answer(Answer::Failed(error));
            }
        }
    }

    /// Each part with its outcomes.
    pub fn outcomes(self) -> impl Iterator<Item = (Part, Vec<Outcome>)> {
        self.calls.into_iter().map(|call| (call.part, call.exchange.outcomes()))
    }
}
