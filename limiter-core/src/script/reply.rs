//! The script's reply as outcomes.

use smallvec::SmallVec;

use super::codec::Call;
use super::number::Reader;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::algorithm::sliding_log::LogView;
use crate::fold::{Decided, Step};
use crate::instant::Instant;
use crate::limit::{Algorithm, Limit};
use crate::outcome::{Layer, Outcome};
use crate::request::Batch;
use crate::state::View;

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It belongs to another call.
    Stale,
    /// It has not the form that the call asks for.
    Form,
}

/// One outcome for each request of the batch.
pub(super) fn outcomes(reply: &[u8], call: &Call, batch: &Batch, nonce: u64) -> Result<Vec<Outcome>, Fault> {
    let mut reader = Reader(reply);
    if reader.bytes().map(u64::from_le_bytes) != Some(nonce) {
        return Err(Fault::Stale);
    }
    let now = reader.whole().and_then(|micros| Instant::from_micros(micros).ok()).ok_or(Fault::Form)?;
    if batch.at.is_some_and(|at| at != now) {
        return Err(Fault::Form);
    }
    let steps = call.plan.steps().iter().map(|step| read(&mut reader, step, batch));
    let decided: Vec<Decided> = steps.collect::<Option<_>>().ok_or(Fault::Form)?;
    if !reader.is_empty() {
        return Err(Fault::Form);
    }
    call.plan.outcomes(batch, now, decided).ok_or(Fault::Form)
}

/// A step's part of the reply. None if it has not the form.
fn read(reader: &mut Reader<'_>, step: &Step, batch: &Batch) -> Option<Decided> {
    let request = batch.requests.get(step.request())?;
    let allowed = reader.count()?;
    let layers = request.checks().iter().map(|check| {
        let view = view(reader, &check.limit)?;
        Some(Layer { view, version: reader.whole()? })
    });
    let layers: SmallVec<[Layer; 1]> = layers.collect::<Option<_>>()?;
    Some(Decided::new(allowed, layers))
}

fn view(reader: &mut Reader<'_>, limit: &Limit) -> Option<View> {
    Some(match limit.algorithm() {
        Algorithm::FixedWindow => {
            let window = FixedWindow { start: reader.whole()?, count: reader.whole()? };
            reader.whole()?;
            View::FixedWindow(window)
        }
        Algorithm::SlidingLog => {
            let (live, newest) = (reader.whole()?, reader.whole()?);
            // The script tells the entry that has to expire, or −1.
            let opens_at = match u64::try_from(reader.signed()?) {
                Ok(at) => at + limit.period_micros(),
                Err(_) => 0,
            };
            View::SlidingLog(LogView { live, newest, opens_at })
        }
        Algorithm::SlidingCounter => View::SlidingCounter(SlidingCounter {
            start: reader.whole()?,
            current: reader.whole()?,
            previous: reader.whole()?,
        }),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let (seen, ahead, rest) = (reader.whole()?, reader.signed()?, reader.whole()?);
            View::Bucket(Bucket { tat: seen.checked_add_signed(ahead)?, rest, seen })
        }
    })
}
