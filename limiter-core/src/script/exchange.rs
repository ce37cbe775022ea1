//! The conversation with Redis over one batch, without the I/O.
//!
//! A driver asks for the command, sends it, and tells what came of it, until there is no further command:
//!
//! ```text
//!            ┌──────────┐ no script  ┌──────────┐
//!   new ───► │ EVALSHA  │ ─────────► │   EVAL   │      nothing else is ever sent twice
//!            └────┬─────┘            └────┬─────┘
//!                 └── reply, or failed ───┴──────► outcomes
//! ```
//!
//! `EVAL` loads the script and runs it in one, so that nobody can flush it in between.

use std::mem;
use std::sync::Arc;

use super::codec::Call;
use super::reply::{Fault, outcomes};
use super::{TEXT, digest};
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::outcome::Outcome;
use crate::request::Batch;

/// One batch's conversation.
#[derive(Debug)]
pub struct Exchange {
    engine: &'static str,
    batch: Arc<Batch>,
    nonce: u64,
    call: Call,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Digest,
    Text,
    Done(Vec<Outcome>),
}

/// `EVALSHA <digest> <number of keys> <keys…> <argument>`, or the same with `EVAL` and the text.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The script's name, or the script.
    pub program: Program,
    /// The keys, each once.
    pub keys: &'a [Key],
    /// The one argument.
    pub argument: &'a [u8],
}

/// How the script is named in a [`Command`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `EVALSHA` with the digest.
    Digest(&'static str),
    /// `EVAL` with the text.
    Text(&'static str),
}

impl Program {
    /// The command's word and its first argument.
    #[must_use]
    pub const fn words(self) -> [&'static str; 2] {
        match self {
            Self::Digest(digest) => ["EVALSHA", digest],
            Self::Text(text) => ["EVAL", text],
        }
    }
}

/// What came of a [`Command`]. A driver has nothing else to tell.
#[derive(Debug)]
pub enum Answer<'a> {
    /// The reply, one string of bytes.
    Reply(&'a [u8]),
    /// The server has no such script: nothing ran.
    NoScript,
    /// Anything else. The error's kind says whether it may have run:
    ///
    /// | what the driver knows | kind |
    /// | --- | --- |
    /// | it never left | [`ErrorKind::NotSent`] |
    /// | the server answered with an error; the script writes last, so nothing was applied | [`ErrorKind::Refused`] |
    /// | it left, and its connection broke or no answer came in time | [`ErrorKind::Unknown`], in flight |
    Failed(Error),
}

impl Exchange {
    /// Begins a batch. The reply brings `nonce` back: two calls on one connection must not have the same.
    #[must_use]
    pub fn new(engine: &'static str, batch: Arc<Batch>, nonce: u64) -> Self {
        let call = Call::of(&batch, nonce);
        let stage = if batch.requests.is_empty() { Stage::Done(Vec::new()) } else { Stage::Digest };
        Self { engine, batch, nonce, call, stage }
    }

    /// What has to be sent next; none if the outcomes are there.
    #[must_use]
    pub fn command(&self) -> Option<Command<'_>> {
        let program = match self.stage {
            Stage::Digest => Program::Digest(digest()),
            Stage::Text => Program::Text(TEXT),
            Stage::Done(_) => return None,
        };
        Some(Command { program, keys: self.call.plan.keys(), argument: &self.call.argument })
    }

    /// Tells what came of the last command.
    pub fn answer(&mut self, answer: Answer<'_>) {
        self.stage = match (&self.stage, answer) {
            (Stage::Done(_), _) => return,
            (Stage::Digest, Answer::NoScript) => Stage::Text,
            (Stage::Text, Answer::NoScript) => {
                self.failed(ErrorKind::Refused, "the server lost a script that came with the call")
            }
            (_, Answer::Failed(error)) => self.all(&error),
            (_, Answer::Reply(reply)) => match outcomes(reply, &self.call, &self.batch, self.nonce) {
                Ok(outcomes) => Stage::Done(outcomes),
                Err(Fault::Stale) => {
                    self.failed(ErrorKind::Unknown { in_flight: true }, "the reply belongs to another call")
                }
                Err(Fault::Form) => {
                    self.failed(ErrorKind::Unknown { in_flight: false }, "the reply has not the form of the script's")
                }
            },
        };
    }

    /// One outcome for each request, in the batch's order, once there is no further command. Before, all are unknown.
    #[must_use]
    pub fn outcomes(mut self) -> Vec<Outcome> {
        if !matches!(self.stage, Stage::Done(_)) {
            self.stage = self.failed(ErrorKind::Unknown { in_flight: true }, "the call was given up");
        }
        match &mut self.stage {
            Stage::Done(outcomes) => mem::take(outcomes),
            Stage::Digest | Stage::Text => Vec::new(),
        }
    }

    fn failed(&self, kind: ErrorKind, message: &'static str) -> Stage {
        self.all(&Error::new(self.engine, kind, message))
    }

    fn all(&self, error: &Error) -> Stage {
        let outcome = |error: &Error| {
            if error.kind().is_certain() { Outcome::NotSent(error.clone()) } else { Outcome::Unknown(error.clone()) }
        };
        Stage::Done(self.batch.requests.iter().map(|_| outcome(error)).collect())
    }
}
