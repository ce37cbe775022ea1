//! What the core says of the same batches: the other side of every comparison.

use std::collections::HashMap;

use limiter_core::{Batch, Cell, Cells, Key, Record, Request, decide};

/// The cells that the core decides on.
#[derive(Default)]
pub(crate) struct Model(pub(crate) HashMap<Key, Cell>);

struct Of<'a> {
    model: &'a mut Model,
    request: &'a Request,
}

impl Cells for Of<'_> {
    fn cell(&mut self, index: usize) -> &mut Cell {
        self.model.0.entry(self.request.checks()[index].key.clone()).or_default()
    }
}

impl Model {
    pub(crate) fn submit(&mut self, batch: &Batch) -> Vec<Record> {
        let now = batch.at.unwrap();
        let records =
            batch.requests.iter().map(|request| decide(request, now, &mut Of { model: self, request })).collect();
        // A store keeps no version of a key that it does not keep.
        self.0.retain(|_, cell| cell.state.is_some());
        records
    }
}
