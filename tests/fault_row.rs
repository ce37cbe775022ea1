//! F29: the whole stack while its store is away. Each process counts by itself, under its share, and no more passes than that.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops on the first thing that is not as it should be")]

use std::io::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;

use limiter::layer::FailurePolicy;
use limiter::{Backend, Stack};
use limiter_conformance::BoxError;
use limiter_conformance::fault::{Means, Site, Terms, Verdict, rows, run_row};

async fn connect(url: String) -> Result<Arc<dyn Backend>, BoxError> {
    let nodes = NonZeroU32::new(3).unwrap();
    let engine = limiter::connect(&url).await?;
    Ok(Arc::new(Stack::builder().failure(FailurePolicy::Local { nodes }).build(engine)))
}

#[test]
fn while_the_store_is_away_the_nodes_pass_their_share() {
    let site = Site::redis("stack on redis", connect).has(Means::Fallback);
    let row = rows().into_iter().find(|row| row.id() == "F29").unwrap();
    let report = run_row(&site, &row, Terms::default());
    let _ = writeln!(std::io::stderr(), "{report}");
    assert_eq!(report.verdict, Verdict::Held, "{report}");
}
