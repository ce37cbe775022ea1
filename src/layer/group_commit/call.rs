//! One call to the store: what is asked, and who is told what. No I/O, no clock.

use std::sync::Arc;

use limiter_core::{Batch, Outcome};
use tokio::time::Instant;

use super::arrange::Arranger;
use super::queue::{Answer, Waiting};

/// The requests of all that go together, and those who wait for them.
#[derive(Debug)]
pub(super) struct Call {
    batch: Arc<Batch>,
    /// The place of each request of the batch in the order of arrival. None: it is the same.
    order: Option<Vec<usize>>,
    /// In the order of arrival, with the number of each one's requests. None: was told already.
    waiting: Vec<(usize, Option<Waiting>)>,
}

impl Call {
    /// The call that asks for all of `taken`.
    pub(super) fn of(taken: Vec<Waiting>, arranger: &mut Arranger) -> Self {
        let (batch, order) = match &*taken {
            // The way of a check that is alone: nothing is copied.
            [alone] if alone.requests() == 1 => (Arc::clone(&alone.batch), None),
            _ => {
                let arrived: Vec<_> = taken.iter().flat_map(|waiting| &waiting.batch.requests).collect();
                let order = arranger.arrange(&arrived);
                let requests = match &order {
                    Some(order) => order.iter().filter_map(|&place| arrived.get(place).copied()).cloned().collect(),
                    None => arrived.into_iter().cloned().collect(),
                };
                (Arc::new(Batch { requests, at: None }), order)
            }
        };
        Self { batch, order, waiting: taken.into_iter().map(|waiting| (waiting.requests(), Some(waiting))).collect() }
    }

    /// What to ask.
    pub(super) fn batch(&self) -> Arc<Batch> {
        Arc::clone(&self.batch)
    }

    /// Tells everyone the outcomes of the call.
    ///
    /// # Errors
    /// If there is not one for each request, nobody can be told which is whose. Gives the call back.
    pub(super) fn answer(mut self, outcomes: Vec<Outcome>) -> Result<(), Self> {
        if outcomes.len() != self.batch.requests.len() {
            return Err(self);
        }
        let outcomes = match self.order.take() {
            Some(order) => by_place(&order, outcomes),
            None => outcomes,
        };
        if let [(_, alone)] = &mut *self.waiting {
            if let Some(waiting) = alone.take() {
                waiting.tell(Answer::All(outcomes));
            }
            return Ok(());
        }
        let mut outcomes = outcomes.into_iter();
        for (requests, waiting) in self.waiting {
            let answer = match requests {
                // There is one, since there are as many as requests.
                1 => outcomes.next().map(Answer::One),
                _ => Some(Answer::All(outcomes.by_ref().take(requests).collect())),
            };
            if let (Some(waiting), Some(answer)) = (waiting, answer) {
                waiting.tell(answer);
            }
        }
        Ok(())
    }

    /// Tells everyone the same.
    pub(super) fn answer_all(self, outcome: &Outcome) {
        for (_, waiting) in self.waiting {
            if let Some(waiting) = waiting {
                waiting.tell_all(outcome);
            }
        }
    }

    /// Takes those out that have waited too long. Their requests are at the store.
    pub(super) fn late(&mut self, now: Instant) -> Vec<Waiting> {
        self.waiting.iter_mut().filter_map(|(_, waiting)| waiting.take_if(|waiting| waiting.is_due(now))).collect()
    }

    /// When the first of those that wait has waited long enough.
    pub(super) fn until(&self) -> Option<Instant> {
        self.waiting.iter().find_map(|(_, waiting)| waiting.as_ref())?.until
    }
}

/// The outcomes in the order of arrival, where the one at each index belongs to the request at `order`'s place.
fn by_place(order: &[usize], outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let mut placed: Vec<Option<Outcome>> = Vec::new();
    placed.resize_with(outcomes.len(), || None);
    for (&place, outcome) in order.iter().zip(outcomes) {
        if let Some(slot) = placed.get_mut(place) {
            *slot = Some(outcome);
        }
    }
    placed.into_iter().flatten().collect()
}
