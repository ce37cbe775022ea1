//! The one trait between the layers and the stores.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::decision::{Decision, Decisions};
use crate::error::{CheckError, Error, ErrorKind};
use crate::outcome::{Divergence, Outcome};
use crate::request::{Batch, Check, Op, Request};

/// An engine, or a layer around one: it answers batches of requests.
///
/// It has one asking method, so that a layer has one to wrap; peek, refund and reset are data in the request.
/// It is object-safe: the facade and the layers hold an `Arc<dyn Backend>`.
///
/// # The contract
/// - One outcome for each request, in the batch's order. Each request is decided all-or-nothing, at one instant,
///   and sees what the requests before it did; others see all of a request or nothing.
/// - The instant is [`Batch::at`] if given. Else it is the store's own clock, read once the states can no longer change,
///   where the store has one, and the deciding node's elsewhere.
/// - Whatever happens, the call ends within the engine's own timeout.
/// - Dropping the future leaves nothing half-done: each request was applied as a whole, or not at all.
/// - A failure is [`Outcome::NotSent`] only if it is certain that nothing was applied.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides the batch.
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome>;

    /// What this engine can do, as data.
    fn capabilities(&self) -> Capabilities;
}

/// What every [`Backend`] can do besides, built on its one method.
pub trait BackendExt: Backend {
    /// Asks for one request and derives its decisions.
    ///
    /// # Errors
    /// [`CheckError::NotSent`] if it was certainly not applied, else [`CheckError::Unknown`].
    fn ask(&self, request: Request) -> impl Future<Output = Result<Decisions, CheckError>> + Send {
        async move {
            let batch = Arc::new(Batch::of(request));
            let outcomes = self.submit(Arc::clone(&batch)).await;
            let (Some(outcome), Some(request)) = (outcomes.first(), batch.requests.first()) else {
                let engine = self.capabilities().engine;
                let kind = ErrorKind::Unknown { in_flight: false };
                return Err(CheckError::Unknown(Error::new(engine, kind, "the engine gave no outcome")));
            };
            outcome.decisions(request).map_err(CheckError::from_failure)
        }
    }

    /// Asks for one check.
    ///
    /// # Errors
    /// [`CheckError::Request`] if it is unsound, else as [`ask`](Self::ask).
    fn ask_one(&self, op: Op, check: Check) -> impl Future<Output = Result<Decision, CheckError>> + Send {
        async move {
            let decisions = self.ask(Request::new(op, [check])?).await?;
            match *decisions.layers() {
                [decision] => Ok(decision),
                _ => Err(CheckError::from_failure(Error::divergence(Divergence::layers(decisions.allowed)))),
            }
        }
    }
}

impl<B: Backend + ?Sized> BackendExt for B {}

/// What an engine can do. The conformance suite chooses its cases by this, and reports what it left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The engine's name, as in errors and metrics.
    pub engine: &'static str,
    /// Whose clock decides.
    pub clock: ClockSource,
    /// Whose requests are counted together.
    pub scope: Scope,
    /// Which checks of one request are decided in one step.
    pub atomicity: Atomicity,
    /// Whether calls of the same keys may be asked side by side at no loss: they ride one connection, one behind the other, and none
    /// waits for another's lock or loses to its write.
    pub pipelined: bool,
}

impl Capabilities {
    /// The capabilities of `engine`, which is not pipelined.
    #[must_use]
    pub const fn new(engine: &'static str, clock: ClockSource, scope: Scope, atomicity: Atomicity) -> Self {
        Self { engine, clock, scope, atomicity, pipelined: false }
    }

    /// The same of an engine that is pipelined.
    #[must_use]
    pub const fn pipelined(self) -> Self {
        Self { pipelined: true, ..self }
    }
}

/// Whose clock gives a decision its instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockSource {
    /// The store's: one for all nodes.
    Store,
    /// The deciding node's.
    Node,
}

/// Whose requests are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// **This process only**: n processes admit n times the limit.
    Process,
    /// All that use the same store.
    Cluster,
}

/// Which checks of one request are decided in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomicity {
    /// All of them.
    AllKeys,
    /// Those whose keys share a scope; over several scopes, a later refusal refunds the earlier ones. That may
    /// refuse too much for an instant, and never admits too much.
    SameScope,
}

/// Written out, since it only hands on: `async_trait` would put the engine's future into another box of its own.
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn submit<'s, 'f>(&'s self, batch: Arc<Batch>) -> Pin<Box<dyn Future<Output = Vec<Outcome>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        (**self).submit(batch)
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
}
