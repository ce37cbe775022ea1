//! Through `PgBouncer` in transaction mode, where two calls seldom see the same session.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod support;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use limiter_conformance::store::wire::Sql;
use limiter_conformance::store::{Kind, Launch, Store};
use limiter_core::{Backend, Batch, Op, Outcome, Request};
use limiter_postgres::{Config, Durability, Postgres};
use tempfile::TempDir;

use self::support::{check, config, number, server, take};

/// A pooler of two sessions before a server. It ends with the test.
struct Pooler {
    child: Child,
    addr: SocketAddr,
    _dir: TempDir,
}

impl Pooler {
    fn start(store: &Store) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let ini = dir.path().join("pgbouncer.ini");
        for _ in 0..20 {
            let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let (server, port) = (store.addr(), addr.port());
            let text = format!(
                "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n",
                server.ip(),
                server.port()
            );
            // `any` takes the user from the server's line.
            let text = text.replace(" port=", " user=postgres port=");
            fs::write(&ini, text).unwrap();
            let mut command = Command::new("pgbouncer");
            // It refuses to run as root.
            if fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() == 0 {
                command.args(["-u", "postgres"]);
            }
            let child = command.arg(&ini).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut child = child.expect("pgbouncer (Debian: apt-get install pgbouncer)");
            let begun = Clock::now();
            while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(20) {
                if Sql::connect(addr).is_ok() {
                    return Self { child, addr, _dir: dir };
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            // Somebody took the port.
            child.kill().ok();
            child.wait().ok();
        }
        panic!("no pooler")
    }

    fn config(&self, store: &Store) -> Config {
        config(&store.url().replace(&store.addr().to_string(), &self.addr.to_string())).pooler(true)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_tasks_have_no_error_and_are_exact() {
    let store = server();
    let pooler = Pooler::start(&store);
    let own =
        pooler.config(&store).connections(8).durability(Durability::Off).sweep_every(Some(Duration::from_millis(20)));
    let engine = Arc::new(Postgres::connect(own).await.unwrap());
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let mut allowed = 0;
                for turn in 0..100_u32 {
                    // Of both functions, and of a key with everything in it that a key may have.
                    let odd = take("it's a \\ \"key\" $1 $2", "1000000/1h token-bucket");
                    let log = Request::new(
                        Op::Take,
                        [check("log", "300/1h sliding-log", 1), check(&task.to_string(), "1000/1h fixed-window", 1)],
                    );
                    let requests = if turn % 2 == 0 { vec![odd; 2] } else { vec![log.unwrap(), odd] };
                    let outcomes = engine.submit(Arc::new(Batch { requests, at: None })).await;
                    allowed += u32::from(outcomes.first().unwrap().record().unwrap().allowed && turn % 2 == 1);
                }
                allowed
            })
        })
        .collect();
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    assert_eq!(allowed, 300);
    assert_eq!(number(&store, "SELECT count(*) FROM limiter.limits"), 10);
    assert_eq!(
        number(&store, "SELECT count(DISTINCT pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"),
        3
    );
}

#[tokio::test]
async fn an_error_leaves_no_session_in_a_transaction() {
    let store = Launch::new(Kind::Postgres).own().start().unwrap();
    let pooler = Pooler::start(&store);
    let engine = Postgres::connect(pooler.config(&store).lock_timeout(Duration::from_millis(50))).await.unwrap();
    let limit = "1000/1h fixed-window";
    assert!(support::submit(&engine, take("k", limit)).await.record().unwrap().allowed);
    let mut holder = support::sql(&store);
    holder.query("BEGIN; SELECT * FROM limiter.limits FOR UPDATE").unwrap();
    for _ in 0..6 {
        let outcome = support::submit(&engine, take("k", limit)).await;
        assert!(matches!(outcome, Outcome::NotSent(_)), "{outcome:?}");
    }
    holder.query("COMMIT").unwrap();
    for _ in 0..6 {
        assert!(support::submit(&engine, take("k", limit)).await.record().unwrap().allowed);
    }
    assert_eq!(number(&store, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"), 0);
}
