//! A run: checks go to the store in the order of the input, and each line gets its answer in that order.

use std::io::Write;
use std::mem;
use std::sync::Arc;

use limiter::{Backend, Batch, ErrorKind, Outcome, Request, RequestError};

use super::answer::{self, NoAnswer};
use super::check::Check;
use super::progress::Progress;
use super::tally::Tally;
use crate::exit::{Exit, Failure};
use crate::terminal::printable;

/// The most checks in one call of the store.
const MAX_BATCH: usize = 256;
/// The longest reason that is told, in characters.
const REASON: usize = 300;

pub(super) struct Session<W> {
    store: Arc<dyn Backend>,
    scope: String,
    /// Where `--json` prints; None for people.
    json: Option<W>,
    progress: Progress,
    pub(super) tally: Tally,
    /// Checks of one instant that are not yet asked: a batch has one instant, and lines of a log often share theirs.
    waiting: Vec<Waiting>,
    batch: Batch,
}

struct Waiting {
    line: u64,
    check: Check,
}

impl<W: Write> Session<W> {
    pub(super) fn new(store: Arc<dyn Backend>, scope: String, json: Option<W>, progress: Progress) -> Self {
        Self { store, scope, json, progress, tally: Tally::default(), waiting: Vec::new(), batch: Batch::default() }
    }

    /// A line of the input, as it was read.
    pub(super) async fn line(&mut self, line: u64, read: Result<Check, String>) -> Result<(), Failure> {
        self.tally.lines += 1;
        let check = match read {
            Ok(check) => check,
            Err(reason) => {
                self.tally.unreadable += 1;
                let reason = printable(&reason, REASON);
                return self.no_answer(line, &reason, &NoAnswer::Unreadable { line, reason: &reason }).await;
            }
        };
        let request = match check.request(&self.scope) {
            Ok(request) => request,
            Err(error) => return self.unsound(line, &error).await,
        };
        if self.batch.at != Some(check.at) || self.waiting.len() >= MAX_BATCH {
            self.flush().await?;
        }
        self.tally.read(check.at);
        self.batch.at = Some(check.at);
        self.batch.requests.push(request);
        self.waiting.push(Waiting { line, check });
        Ok(())
    }

    /// A check that no store is asked.
    async fn unsound(&mut self, line: u64, error: &RequestError) -> Result<(), Failure> {
        if let RequestError::CostExceedsLimit { index, cost, limit } = error {
            self.tally.over_cost += 1;
            let reason = format!("cost-exceeds-limit: cost {cost} is over the capacity {limit} of limits[{index}]");
            return self.no_answer(line, &reason, &NoAnswer::CostExceedsLimit).await;
        }
        // The readers keep to the number of limits, and its index makes each state key another: nothing else is left.
        self.tally.unreadable += 1;
        let reason = error.to_string();
        self.no_answer(line, &reason, &NoAnswer::Unreadable { line, reason: &reason }).await
    }

    async fn no_answer(&mut self, line: u64, reason: &str, why: &NoAnswer<'_>) -> Result<(), Failure> {
        // What came before is answered before.
        self.flush().await?;
        self.tell(line, reason, why)
    }

    fn tell(&mut self, line: u64, reason: &str, why: &NoAnswer<'_>) -> Result<(), Failure> {
        self.progress.tell(&format!("line {line}: {reason}"));
        match &mut self.json {
            Some(out) => answer::write_none(out, why).map_err(Failure::output),
            None => Ok(()),
        }
    }

    /// Asks what is waiting, and writes the answers.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let batch = Arc::new(mem::take(&mut self.batch));
        let outcomes = self.store.submit(Arc::clone(&batch)).await;
        if outcomes.len() != batch.requests.len() {
            let engine = self.store.capabilities().engine;
            return Err(Failure::new(
                Exit::Failed,
                format!("{engine}: {} answers to {} checks", outcomes.len(), batch.requests.len()),
            ));
        }
        let mut waiting = mem::take(&mut self.waiting);
        for ((Waiting { line, check }, request), outcome) in waiting.drain(..).zip(&batch.requests).zip(outcomes) {
            self.answer(line, &check, request, &outcome)?;
        }
        self.waiting = waiting;
        Ok(())
    }

    fn answer(&mut self, line: u64, check: &Check, request: &Request, outcome: &Outcome) -> Result<(), Failure> {
        let error = match outcome.decisions(request) {
            Ok(decisions) => {
                self.tally.decided(check, request, &decisions);
                return match &mut self.json {
                    Some(out) => answer::write(out, &decisions).map_err(Failure::output),
                    None => Ok(()),
                };
            }
            Err(error) => error,
        };
        let reason = error.to_string();
        if matches!(outcome, Outcome::NotSent(_)) {
            self.tally.not_sent += 1;
            // A full table is the one failure that is not the store's but the trace's.
            let hint = if error.kind() == ErrorKind::Full { "; a store such as redis: has more room" } else { "" };
            self.tell(line, &format!("{reason}{hint}"), &NoAnswer::NotSent { line, reason: &reason })
        } else {
            self.tally.unknown += 1;
            self.tell(line, &reason, &NoAnswer::Unknown { line, reason: &reason })
        }
    }

    /// Shows how far the run has come.
    pub(super) fn look(&mut self, progress: (u64, Option<u64>)) {
        self.progress.at(progress);
    }

    /// What was written so far is to be seen, and the progress too.
    pub(super) fn show(&mut self, progress: (u64, Option<u64>)) -> Result<(), Failure> {
        self.progress.at(progress);
        self.json.as_mut().map_or(Ok(()), |out| out.flush().map_err(Failure::output))
    }

    /// The end of the input.
    pub(super) async fn finish(&mut self) -> Result<(), Failure> {
        self.flush().await?;
        self.progress.finish();
        self.json.as_mut().map_or(Ok(()), |out| out.flush().map_err(Failure::output))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use limiter::{Backend, Batch, Capabilities, Error, ErrorKind, Memory, Outcome};

    use super::{MAX_BATCH, Session};
    use crate::exit::Exit;
    use crate::replay::jsonl::Reader;
    use crate::replay::progress::Progress;

    /// A store that decides the first of each batch, leaves the second, loses the third, and so on.
    #[derive(Debug)]
    struct Flaky(Memory);

    #[async_trait]
    impl Backend for Flaky {
        async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
            assert!(batch.requests.len() <= MAX_BATCH);
            let error = |kind| Error::new("flaky", kind, "out of reach");
            let outcomes = self.0.submit(batch).await.into_iter().enumerate();
            outcomes
                .map(|(index, outcome)| match index % 3 {
                    0 => outcome,
                    1 => Outcome::NotSent(error(ErrorKind::NotSent)),
                    _ => Outcome::Unknown(error(ErrorKind::Unknown { in_flight: true })),
                })
                .collect()
        }

        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }
    }

    async fn replayed(instants: impl IntoIterator<Item = usize>) -> (Vec<String>, Exit) {
        let store = Arc::new(Flaky(Memory::new()));
        let mut session = Session::new(store, "test".to_owned(), Some(Vec::new()), Progress::new(true));
        for (line, t) in (1..).zip(instants) {
            let line_text = format!(r#"{{"t":{t},"limits":[{{"limit":"1000/1m fixed-window","key":"k"}}]}}"#);
            session.line(line, Reader::default().read(line_text.as_bytes())).await.unwrap();
        }
        session.finish().await.unwrap();
        let out = String::from_utf8(session.json.take().unwrap()).unwrap();
        (out.lines().map(str::to_owned).collect(), session.tally.exit())
    }

    #[tokio::test]
    async fn what_the_store_did_not_decide_is_told_in_its_place() {
        let (lines, exit) = replayed([5, 5, 5]).await;
        assert_eq!(exit, Exit::Undecided);
        assert!(lines[0].starts_with(r#"{"allowed":true,"#), "{lines:?}");
        assert_eq!(lines[1], r#"{"error":"not-sent","line":2,"reason":"flaky: not-sent: out of reach"}"#);
        assert_eq!(lines[2], r#"{"error":"unknown","line":3,"reason":"flaky: unknown-in-flight: out of reach"}"#);
    }

    #[tokio::test]
    async fn a_batch_has_one_instant_and_a_bound() {
        let (lines, exit) = replayed([1, 2, 2, 1, 3]).await;
        let decided: Vec<bool> = lines.iter().map(|line| line.starts_with(r#"{"allowed""#)).collect();
        assert_eq!((decided, exit), (vec![true, true, false, true, true], Exit::Undecided));
        let (lines, _) = replayed(vec![7; 2 * MAX_BATCH + 1]).await;
        assert_eq!(lines.len(), 2 * MAX_BATCH + 1);
        assert!(lines[MAX_BATCH].starts_with(r#"{"allowed""#) && lines[2 * MAX_BATCH].starts_with(r#"{"allowed""#));
    }
}
