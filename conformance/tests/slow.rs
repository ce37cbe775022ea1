//! A store that is slow and exact passes: the suite judges what is answered, not how fast.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use limiter_conformance::{Options, Subject, Verdict, cases, run_case};
use limiter_core::{Backend, Batch, Capabilities, Memory, Outcome};

/// The memory engine behind a long wire.
#[derive(Debug)]
struct Far(Memory);

#[async_trait]
impl Backend for Far {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        tokio::time::sleep(Duration::from_millis(150)).await;
        self.0.submit(batch).await
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

#[test]
fn a_slow_store_gets_the_time_for_all_calls_that_are_counted() {
    let far = Subject::new("far", || async { Ok(Far(Memory::new())) });
    let case = cases().into_iter().find(|case| case.path() == "concurrency::one_instant").unwrap();
    assert_eq!(run_case(&far, &case, &Options::default()).verdict, Verdict::Passed);
}
