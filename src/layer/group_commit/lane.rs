//! A lane: a queue, and the tasks that empty it, each one call after the other.

use std::future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use limiter_core::{Backend, Batch, Error, ErrorKind, Outcome};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task;
use tokio::time::{self, Instant, Sleep};

use super::arrange::Arranger;
use super::builder::Bounds;
use super::call::Call;
use super::queue::{Answer, Arrival, Queue, Turn, Waiting};

/// The layer's name in its own errors.
const LAYER: &str = "group-commit";

/// Two cache lines to itself, so that taking one lane's lock does not slow its neighbour.
#[repr(align(128))]
pub(super) struct Lane {
    queue: Mutex<Queue>,
    engine: Arc<dyn Backend>,
    bounds: Bounds,
}

impl Lane {
    pub(super) fn new(engine: Arc<dyn Backend>, bounds: Bounds) -> Self {
        Self { queue: Mutex::default(), engine, bounds }
    }

    /// Has the batch decided in its turn.
    pub(super) async fn submit(self: &Arc<Self>, batch: Arc<Batch>) -> Vec<Outcome> {
        let requests = batch.requests.len();
        let (answer, answered) = oneshot::channel();
        let until = self.bounds.deadline.and_then(|deadline| Instant::now().checked_add(deadline));
        // In a statement of its own, so that the lock is gone before anything else is done.
        let arrival = self.lock().arrive(Waiting { batch, answer, until }, self.bounds);
        match arrival {
            Arrival::Full => return vec![self.overloaded(); requests],
            Arrival::Queued => {}
            Arrival::Lead => {
                let lead = Lead { lane: Arc::clone(self), done: false };
                // Without a runtime the lead is dropped, and tells those who wait.
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(lead.run());
                }
            }
        }
        let mut caller = Caller { lane: self, answered, told: false };
        let answer = (&mut caller.answered).await;
        caller.told = true;
        // Not told: the task was dropped in the middle of the call, its runtime being shut down.
        answer.map_or_else(|_| vec![self.unknown("the call broke off", true); requests], Vec::from)
    }

    /// How many requests wait.
    pub(super) fn queued(&self) -> usize {
        self.lock().requests()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing under the lock panics half-way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overloaded(&self) -> Outcome {
        let text = format!("{} requests wait for the store already", self.bounds.max_queue);
        Outcome::NotSent(Error::new(LAYER, ErrorKind::Overloaded, text))
    }

    fn unknown(&self, text: impl Into<Arc<str>>, in_flight: bool) -> Outcome {
        Outcome::Unknown(Error::new(self.engine.capabilities().engine, ErrorKind::Unknown { in_flight }, text))
    }
}

fn tell_unsent(waiting: impl IntoIterator<Item = Waiting>, text: &str) {
    for waiting in waiting {
        waiting.tell_all(&Outcome::NotSent(Error::new(LAYER, ErrorKind::NotSent, text)));
    }
}

/// One who waits to be told. Dropped before that, it makes its place in the queue free.
struct Caller<'a> {
    lane: &'a Lane,
    answered: oneshot::Receiver<Answer>,
    told: bool,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if !self.told {
            // Closed first, so that whoever sees the count sees the place free.
            self.answered.close();
            self.lane.lock().leave();
        }
    }
}

/// A task that empties the lane, from the arrival that found a call more allowed until nobody waits.
struct Lead {
    lane: Arc<Lane>,
    /// It has found nobody waiting, and the queue counts on it no more.
    done: bool,
}

impl Lead {
    async fn run(mut self) {
        let Bounds { max_batch, deadline, .. } = self.lane.bounds;
        // Before anything is taken: a runtime without a timer panics here, and nothing was sent.
        let mut alarm = pin!(deadline.map(|_| time::sleep(Duration::ZERO)));
        let mut arranger = Arranger::default();
        let mut told = usize::MAX;
        loop {
            // Whoever is ready to ask at this moment comes along, and those that were told just now may ask again. That
            // waits for no one: it lets those run that can, for as long as they come.
            let mut seen = None;
            loop {
                let queued = self.lane.queued();
                if queued >= told.min(max_batch) || seen.replace(queued).is_some_and(|seen| seen >= queued) {
                    break;
                }
                task::yield_now().await;
            }
            // An engine that is always ready must not keep the thread from the rest.
            task::coop::consume_budget().await;
            let Turn { taken, late } = self.lane.lock().take(max_batch, Instant::now);
            tell_unsent(late, "the calls before it took until the deadline");
            if taken.is_empty() {
                self.done = true;
                return;
            }
            let call = Call::of(taken, &mut arranger);
            told = call.batch().requests.len();
            self.ask(call, alarm.as_mut()).await;
        }
    }

    /// Asks the store, and tells everyone what it says.
    async fn ask(&self, mut call: Call, mut alarm: Pin<&mut Option<Sleep>>) {
        let (lane, batch) = (&*self.lane, call.batch());
        let mut answer = pin!(async { lane.engine.submit(batch).await });
        // However long its requests have queued, a call has the whole time: an engine that keeps its own timeout is never cut short.
        let end = lane.bounds.deadline.and_then(|deadline| Instant::now().checked_add(deadline));
        loop {
            // Set anew and not reset: so it costs the timer nothing until the call is found to be pending.
            alarm.set(self.next_alarm(&call, end).map(time::sleep_until));
            match future::poll_fn(|cx| poll(answer.as_mut(), alarm.as_mut(), cx)).await {
                Event::Answered(outcomes) => {
                    if let Err(call) = call.answer(outcomes) {
                        call.answer_all(&lane.unknown("the engine did not give one outcome for each request", false));
                    }
                    return;
                }
                Event::Panicked => {
                    call.answer_all(&lane.unknown("the engine panicked", true));
                    return;
                }
                Event::Alarm => {
                    let now = Instant::now();
                    let unsent = lane.lock().late(now);
                    tell_unsent(unsent, "the calls before it took until the deadline");
                    let unknown = lane.unknown("no answer within the deadline", true);
                    for waiting in call.late(now) {
                        waiting.tell_all(&unknown);
                    }
                    if end.is_some_and(|end| end <= now) {
                        // The lane goes on without it. What it has sent is settled by the store.
                        call.answer_all(&unknown);
                        return;
                    }
                }
            }
        }
    }

    /// When something is due: one who waits in the call or in the queue has waited long enough, or the call has.
    fn next_alarm(&self, call: &Call, end: Option<Instant>) -> Option<Instant> {
        [call.until(), self.lane.lock().until(), end].into_iter().flatten().min()
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.done {
            let left = self.lane.lock().abandon();
            tell_unsent(left, "there is no running Tokio runtime with a timer to ask the store from");
        }
    }
}

enum Event {
    Answered(Vec<Outcome>),
    Panicked,
    Alarm,
}

/// The call first: an answer that is there counts, however late.
fn poll(
    answer: Pin<&mut impl Future<Output = Vec<Outcome>>>,
    alarm: Pin<&mut Option<Sleep>>,
    cx: &mut Context<'_>,
) -> Poll<Event> {
    // What the engine leaves behind is its own; nothing of ours is half-changed.
    match panic::catch_unwind(AssertUnwindSafe(|| answer.poll(cx))) {
        Ok(Poll::Ready(outcomes)) => Poll::Ready(Event::Answered(outcomes)),
        Err(_) => Poll::Ready(Event::Panicked),
        Ok(Poll::Pending) => match alarm.as_pin_mut() {
            Some(alarm) => alarm.poll(cx).map(|()| Event::Alarm),
            None => Poll::Pending,
        },
    }
}
