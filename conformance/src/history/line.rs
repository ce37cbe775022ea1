//! A call as a line of text, and a record as JSON: how processes hand on what they saw.

use limiter_core::{Bucket, FixedWindow, Instant, Layer, LogView, Op, SlidingCounter, View};
use serde::{Deserialize, Serialize};

use super::{Answer, Asked, Call};
use crate::case::Failure;

#[derive(Serialize, Deserialize)]
struct Line {
    process: u32,
    task: u32,
    id: u64,
    op: OpLine,
    checks: Vec<(usize, usize, u64)>,
    invoked: u64,
    returned: u64,
    answer: AnswerLine,
}

/// An operation, as it is written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OpLine {
    Take,
    Peek,
    Refund(u64),
    Reset,
}

/// What came back, as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AnswerLine {
    Decided { allowed: bool, at: u64, layers: Vec<(ViewLine, u64)> },
    Remembered(u64),
    NotSent,
    Unknown,
}

/// A view, as it is written: its three numbers in the order of their fields.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ViewLine {
    FixedWindow(u64, u64),
    SlidingLog(u64, u64, u64),
    SlidingCounter(u64, u64, u64),
    Bucket(u64, u64, u64),
}

impl TryFrom<Op> for OpLine {
    type Error = Failure;

    fn try_from(op: Op) -> Result<Self, Failure> {
        Ok(match op {
            Op::Take => Self::Take,
            Op::Peek => Self::Peek,
            Op::Refund { taken } => Self::Refund(taken.micros()),
            Op::Reset => Self::Reset,
            _ => return Err(Failure::new(format!("an operation that can't be written: {op}"))),
        })
    }
}

impl TryFrom<OpLine> for Op {
    type Error = Failure;

    fn try_from(line: OpLine) -> Result<Self, Failure> {
        Ok(match line {
            OpLine::Take => Self::Take,
            OpLine::Peek => Self::Peek,
            OpLine::Refund(taken) => Self::Refund { taken: Instant::from_micros(taken)? },
            OpLine::Reset => Self::Reset,
        })
    }
}

impl TryFrom<View> for ViewLine {
    type Error = Failure;

    fn try_from(view: View) -> Result<Self, Failure> {
        Ok(match view {
            View::FixedWindow(FixedWindow { start, count }) => Self::FixedWindow(start, count),
            View::SlidingLog(LogView { live, newest, opens_at }) => Self::SlidingLog(live, newest, opens_at),
            View::SlidingCounter(SlidingCounter { start, current, previous }) => {
                Self::SlidingCounter(start, current, previous)
            }
            View::Bucket(Bucket { tat, rest, seen }) => Self::Bucket(tat, rest, seen),
            _ => return Err(Failure::new(format!("a view that can't be written: {view:?}"))),
        })
    }
}

impl From<ViewLine> for View {
    fn from(line: ViewLine) -> Self {
        match line {
            ViewLine::FixedWindow(start, count) => Self::FixedWindow(FixedWindow { start, count }),
            ViewLine::SlidingLog(units, newest, opens_at) => {
                Self::SlidingLog(LogView { live: units, newest, opens_at })
            }
            ViewLine::SlidingCounter(start, current, previous) => {
                Self::SlidingCounter(SlidingCounter { start, current, previous })
            }
            ViewLine::Bucket(tat, rest, seen) => Self::Bucket(Bucket { tat, rest, seen }),
        }
    }
}

impl TryFrom<&Answer> for AnswerLine {
    type Error = Failure;

    fn try_from(answer: &Answer) -> Result<Self, Failure> {
        Ok(match answer {
            Answer::Decided { allowed, at, layers } => {
                let layers = layers.iter().map(|layer| Ok((ViewLine::try_from(layer.view)?, layer.version)));
                Self::Decided { allowed: *allowed, at: at.micros(), layers: layers.collect::<Result<_, Failure>>()? }
            }
            Answer::Remembered { at } => Self::Remembered(at.micros()),
            Answer::NotSent => Self::NotSent,
            Answer::Unknown => Self::Unknown,
        })
    }
}

impl TryFrom<AnswerLine> for Answer {
    type Error = Failure;

    fn try_from(line: AnswerLine) -> Result<Self, Failure> {
        Ok(match line {
            AnswerLine::Decided { allowed, at, layers } => {
                let layers = layers.into_iter().map(|(view, version)| Layer { view: view.into(), version }).collect();
                Self::Decided { allowed, at: Instant::from_micros(at)?, layers }
            }
            AnswerLine::Remembered(at) => Self::Remembered { at: Instant::from_micros(at)? },
            AnswerLine::NotSent => Self::NotSent,
            AnswerLine::Unknown => Self::Unknown,
        })
    }
}

impl Call {
    /// The call in one line of JSON.
    pub(crate) fn to_line(&self) -> Result<String, Failure> {
        let line = Line {
            process: self.process,
            task: self.task,
            id: self.id,
            op: self.op.try_into()?,
            checks: self.checks.iter().map(|asked| (asked.key, asked.limit, asked.cost)).collect(),
            invoked: self.invoked,
            returned: self.returned,
            answer: (&self.answer).try_into()?,
        };
        Ok(serde_json::to_string(&line)?)
    }

    /// The call that a line tells.
    pub(crate) fn from_line(line: &str) -> Result<Self, Failure> {
        let line: Line = serde_json::from_str(line)?;
        Ok(Self {
            process: line.process,
            task: line.task,
            id: line.id,
            op: line.op.try_into()?,
            checks: line.checks.into_iter().map(|(key, limit, cost)| Asked { key, limit, cost }).collect(),
            invoked: line.invoked,
            returned: line.returned,
            answer: line.answer.try_into()?,
        })
    }
}
