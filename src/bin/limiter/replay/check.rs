//! One check of a trace, as both input forms give it.

use std::fmt::Write as _;

use limiter::{Instant, Key, Limit, Op, Request, RequestError};

use crate::terminal::printable;

/// The longest name that a table shows of a key, in characters.
const NAME: usize = 60;

/// A piece of a key: bytes, since a log is not always UTF-8.
pub(super) type Part = Box<[u8]>;

/// What one line asks.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) at: Instant,
    cost: u64,
    layers: Vec<(Limit, Vec<Part>)>,
}

impl Check {
    pub(super) fn new(at: Instant, cost: u64) -> Self {
        Self { at, cost, layers: Vec::with_capacity(1) }
    }

    /// One more limit, with the parts of its key.
    pub(super) fn push(&mut self, limit: Limit, parts: impl Into<Vec<Part>>) {
        self.layers.push((limit, parts.into()));
    }

    /// The request to a store. The state key of a limit is its index and its key, so two limits never share one.
    pub(super) fn request(&self, scope: &str) -> Result<Request, RequestError> {
        let checks = self.layers.iter().enumerate().map(|(index, (limit, parts))| {
            let key = Key::new(scope, index.to_string(), parts);
            limiter::Check::new(key, *limit, self.cost)
        });
        Request::new(Op::Take, checks)
    }

    /// The key of a limit as people read it.
    pub(super) fn name(&self, layer: usize) -> String {
        let Some((_, parts)) = self.layers.get(layer) else { return String::new() };
        if parts.is_empty() {
            return "(all)".to_owned();
        }
        let mut name = String::new();
        for (index, part) in parts.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            let _infallible = write!(name, "{space}{}", printable(&String::from_utf8_lossy(part), NAME));
        }
        if name.is_empty() { "(empty)".to_owned() } else { name }
    }
}
