//! What the tests of this crate share.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses some of it, and stops on the first thing that is wrong"
)]

use std::sync::Arc;
use std::time::Duration;

use limiter_conformance::store::wire::Sql;
use limiter_conformance::store::{Kind, Launch, Store};
use limiter_core::{Backend, Batch, Check, Error, Key, Op, Outcome, Request};
use limiter_postgres::{Config, Postgres};

/// A server of the test's own.
pub(crate) fn server() -> Store {
    Launch::new(Kind::Postgres).own().start().unwrap()
}

/// With the patience that a busy machine asks for.
pub(crate) fn config(url: &str) -> Config {
    let patience = Duration::from_secs(20);
    let config = Config::from_url(url).unwrap().connect_timeout(patience).call_timeout(patience);
    config.lock_timeout(patience / 2).sweep_every(None)
}

pub(crate) async fn engine(store: &Store) -> Postgres {
    Postgres::connect(config(store.url())).await.unwrap()
}

pub(crate) fn sql(store: &Store) -> Sql {
    Sql::connect(store.addr()).unwrap()
}

/// The one number that a query gives.
pub(crate) fn number(store: &Store, query: &str) -> i64 {
    let rows = sql(store).query(query).unwrap();
    rows.first().and_then(|row| row.first().cloned().flatten()).unwrap().parse().unwrap()
}

pub(crate) fn check(part: &str, limit: &str, cost: u64) -> Check {
    Check::new(Key::new("t", "engine", [part]), limit.parse().unwrap(), cost)
}

pub(crate) fn take(part: &str, limit: &str) -> Request {
    Request::new(Op::Take, [check(part, limit, 1)]).unwrap()
}

/// The outcome of one request.
pub(crate) async fn submit(engine: &Postgres, request: Request) -> Outcome {
    engine.submit(Arc::new(Batch::of(request))).await.remove(0)
}

pub(crate) fn failure(outcome: &Outcome) -> &Error {
    outcome.record().unwrap_err()
}
