//! What `--json` prints: one line for each line of input that is not blank, in the same order.
//!
//! An answer has `allowed`; whatever has none has `error`, one of four words: `cost-exceeds-limit`, `unreadable`,
//! `not-sent` and `unknown`.

use std::io::{self, Write};
use std::time::Duration;

use limiter::{Decision, Decisions};
use serde::Serialize;

#[derive(Serialize)]
struct Answer {
    allowed: bool,
    retry_after: Option<u64>,
    delay: u64,
    layers: Vec<Layer>,
}

#[derive(Serialize)]
struct Layer {
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after: Option<u64>,
    reset_after: u64,
    delay: u64,
}

/// Why a line has no answer.
#[derive(Serialize)]
#[serde(tag = "error", rename_all = "kebab-case")]
pub(super) enum NoAnswer<'a> {
    /// The cost can never pass, and nothing was charged. This is what the contract says, and a fault of nobody.
    CostExceedsLimit,
    /// The line can't be read.
    Unreadable { line: u64, reason: &'a str },
    /// The store did not decide, and nothing was charged.
    NotSent { line: u64, reason: &'a str },
    /// The store may have charged it.
    Unknown { line: u64, reason: &'a str },
}

pub(super) fn write(out: &mut impl Write, decisions: &Decisions) -> io::Result<()> {
    line(
        out,
        &Answer {
            allowed: decisions.allowed,
            retry_after: decisions.retry_after.map(micros),
            delay: micros(decisions.delay),
            layers: decisions.layers().iter().map(Layer::from).collect(),
        },
    )
}

pub(super) fn write_none(out: &mut impl Write, why: &NoAnswer<'_>) -> io::Result<()> {
    line(out, why)
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

impl From<&Decision> for Layer {
    fn from(decision: &Decision) -> Self {
        Self {
            allowed: decision.allowed,
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after: decision.retry_after.map(micros),
            reset_after: micros(decision.reset_after),
            delay: micros(decision.delay),
        }
    }
}

/// Waits are whole microseconds below 2^54, so the bound is never met.
fn micros(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)
}
