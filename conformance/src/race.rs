//! Many tasks on two nodes race for one key, alone and in batches that fold: they get exactly what there is.

use std::collections::HashSet;
use std::sync::Arc;

use limiter_core::{Backend, Batch, Check, Key, Limit, Op, Request};
use tokio::task::JoinSet;

use crate::subject::BoxError;

/// A limit of each kind whose units do not come back while a race lasts, and the units that it has.
const LIMITS: [(&str, u64); 4] = [
    ("200/1h fixed-window", 200),
    ("200/1h sliding-log", 200),
    ("200/1h sliding-counter", 200),
    ("1/366d token-bucket burst=142", 142),
];

/// For each kind of limit, 64 tasks, half on each node, ask for more than there is of one fresh key.
///
/// # Errors
/// If they got more or less, if a call had no verdict, or if the versions of the admissions are not one after the other.
pub async fn race(nodes: [Arc<dyn Backend>; 2]) -> Result<(), BoxError> {
    for (limit, units) in LIMITS {
        let check = Check::new(Key::new("t", "race", [limit]), limit.parse::<Limit>()?, 1);
        let take = Request::new(Op::Take, [check])?;
        let mut running = JoinSet::new();
        for node in nodes.iter().cycle().take(64) {
            running.spawn(admissions(Arc::clone(node), take.clone()));
        }
        let mut versions = Vec::new();
        while let Some(ended) = running.join_next().await {
            versions.extend(ended??);
        }
        let distinct: HashSet<u64> = versions.iter().copied().collect();
        let (first, last) = (versions.iter().min().copied(), versions.iter().max().copied());
        let dense = last.zip(first).is_some_and(|(last, first)| last - first + 1 == units);
        let admitted = u64::try_from(versions.len())?;
        if admitted != units || distinct.len() != versions.len() || !dense {
            return Err(format!(
                "{limit}: {admitted} of {units} admitted, {} versions from {first:?} to {last:?}",
                distinct.len()
            )
            .into());
        }
    }
    Ok(())
}

/// The versions of what one task was admitted: it asks alone, and now and then in a batch that folds.
async fn admissions(node: Arc<dyn Backend>, take: Request) -> Result<Vec<u64>, BoxError> {
    let mut versions = Vec::new();
    for round in 0..8 {
        let requests = vec![take.clone(); if round % 4 == 0 { 5 } else { 1 }];
        for outcome in node.submit(Arc::new(Batch { requests, at: None })).await {
            let record = outcome.record().map_err(Clone::clone)?;
            versions.extend(record.layers().first().filter(|_| record.allowed).map(|layer| layer.version));
        }
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use limiter_core::Memory;

    use super::*;

    #[tokio::test]
    async fn two_nodes_that_count_for_themselves_are_told_apart_from_two_on_one_table() {
        let table: Arc<dyn Backend> = Arc::new(Memory::new());
        assert!(race([Arc::clone(&table), table]).await.is_ok());
        let told = race([Arc::new(Memory::new()), Arc::new(Memory::new())]).await.map_err(|error| error.to_string());
        assert!(told.is_err_and(|told| told.contains("of 200 admitted")));
    }
}
