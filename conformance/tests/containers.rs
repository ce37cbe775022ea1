//! The docker road, on a real engine. Without one, these fail: run `scripts/store-images` first
//! and export what it prints.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::env;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use limiter_conformance::store::wire::{Resp, Sql, http_get};
use limiter_conformance::store::{Kind, Launch, Road, Store, StoreError};

fn container(kind: Kind) -> Launch {
    Launch::new(kind).road(Road::Docker)
}

/// Something that only a store of this kind can say.
fn says(kind: Kind, addr: SocketAddr) -> String {
    match kind {
        Kind::Redis => Resp::connect(addr).unwrap().call(&["INFO", "server"]).unwrap().text().to_owned(),
        Kind::Postgres => {
            let rows = Sql::connect(addr).unwrap().query("SELECT version()").unwrap();
            rows.first().and_then(|row| row.first().cloned()).flatten().unwrap()
        }
        Kind::Etcd => http_get(addr, "/version").unwrap().1,
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Redis => "redis_version",
        Kind::Postgres => "PostgreSQL",
        Kind::Etcd => "etcdserver",
    }
}

/// The names of the containers that this process started for this port, running or not.
fn containers(part: &str) -> String {
    let filter = format!("name={part}");
    let output =
        Command::new("docker").args(["ps", "-a", "--format", "{{.Names}}", "--filter", &filter]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn name_of(store: &Store) -> String {
    format!("limiter-test-{}-{}-", store.kind().binary(), store.addr().port())
}

fn answers_and_is_removed(kind: Kind) {
    let begun = Instant::now();
    let store = container(kind).start().unwrap();
    println!("{kind} in a container answered after {:?}", begun.elapsed());
    assert_eq!((store.kind(), store.road()), (kind, Road::Docker));
    assert!(says(kind, store.addr()).contains(word(kind)));
    let name = name_of(&store);
    assert!(!containers(&name).is_empty());
    let ports = Command::new("docker").args(["port", containers(&name).trim()]).output().unwrap();
    let ports = String::from_utf8(ports.stdout).unwrap();
    assert!(ports.contains(&format!("-> {}", store.addr())), "only loopback may reach it: {ports}");
    assert!(!ports.contains("0.0.0.0"), "only loopback may reach it: {ports}");
    drop(store);
    assert_eq!(containers(&name), "");
}

#[test]
fn redis_answers_and_is_removed() {
    answers_and_is_removed(Kind::Redis);
}

#[test]
fn postgres_answers_and_is_removed() {
    answers_and_is_removed(Kind::Postgres);
}

#[test]
fn etcd_answers_and_is_removed() {
    answers_and_is_removed(Kind::Etcd);
}

#[test]
fn options_reach_the_server() {
    let redis = container(Kind::Redis).option("maxmemory", "32mb").start().unwrap();
    let reply = Resp::connect(redis.addr()).unwrap().call(&["CONFIG", "GET", "maxmemory"]).unwrap();
    assert_eq!(reply.list().last().unwrap().text(), "33554432");
    let postgres = container(Kind::Postgres).option("lock_timeout", "2s").start().unwrap();
    let rows = Sql::connect(postgres.addr()).unwrap().query("SHOW lock_timeout").unwrap();
    assert_eq!(rows, [[Some("2s".to_owned())]]);
}

#[test]
fn pause_kill_and_restart_keep_port_and_data() {
    let store = container(Kind::Postgres).start().unwrap();
    let addr = store.addr();
    Sql::connect(addr).unwrap().query("CREATE TABLE t AS SELECT 1 AS v").unwrap();
    let ask = || Sql::connect(addr).unwrap().query("SELECT v FROM t").unwrap();

    store.pause().unwrap();
    thread::scope(|scope| {
        let late = scope.spawn(ask);
        thread::sleep(Duration::from_millis(300));
        assert!(!late.is_finished());
        store.resume().unwrap();
        assert_eq!(late.join().unwrap(), [[Some("1".to_owned())]]);
    });

    store.kill().unwrap();
    store.kill().unwrap();
    assert!(matches!(store.pause(), Err(StoreError::Down { .. })));
    assert!(Sql::connect(addr).is_err());
    store.restart().unwrap();
    assert_eq!(store.addr(), addr);
    assert_eq!(ask(), [[Some("1".to_owned())]]);

    store.pause().unwrap();
    store.restart().unwrap();
    assert_eq!(ask(), [[Some("1".to_owned())]]);
}

#[test]
fn works_within_an_async_test() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = container(Kind::Redis).start().unwrap();
        assert!(says(Kind::Redis, store.addr()).contains("redis_version"));
    });
}

#[test]
fn a_server_that_cannot_start_says_why_and_is_removed() {
    let error = container(Kind::Redis).option("no-such-directive", "1").start().unwrap_err().to_string();
    assert!(error.contains("no-such-directive"), "{error}");
    assert!(error.contains("LIMITER_TEST_REDIS_IMAGE"), "{error}");
    let left = containers(&format!("-{}$", std::process::id()));
    assert!(!left.lines().any(|name| name.contains("no-such")), "{left}");
}

/// Passes by itself: it is what the tests below run in a process with another environment or end.
#[test]
fn child() {
    match env::var("LIMITER_TEST_CHILD").as_deref() {
        Ok("hold") => {
            let store = container(Kind::Redis).start().unwrap();
            println!("held {}", name_of(&store));
            thread::sleep(Duration::from_mins(1));
        }
        Ok("ask") => match limiter_conformance::store::start(Kind::Redis) {
            Ok(store) => println!("Redis by {}", store.road()),
            Err(error) => println!("{error}"),
        },
        // In a run of all tests: nobody asked.
        _ => {}
    }
}

fn run_child(what: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env("LIMITER_TEST_CHILD", what).stdout(Stdio::piped());
    command
}

#[test]
fn a_killed_process_leaves_no_container() {
    let mut child = run_child("hold").spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let name = lines.find_map(|line| line.strip_prefix("held ").map(str::to_owned)).unwrap();
    assert!(!containers(&name).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !containers(&name).is_empty() {
        assert!(Instant::now() < deadline, "{name} is still there");
        thread::sleep(Duration::from_millis(50));
    }
}

fn ask(set: &[(&str, &str)]) -> String {
    let output = run_child("ask").envs(set.iter().copied()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_environment_chooses_the_road() {
    let said = ask(&[("LIMITER_STORES", "docker")]);
    assert!(said.contains("Redis by docker"), "{said}");
}

#[test]
fn without_an_engine_the_road_is_closed() {
    let said = ask(&[("LIMITER_STORES", "docker"), ("DOCKER_HOST", "unix:///nowhere/docker.sock")]);
    assert!(said.contains("the road `docker`, which is closed here"), "{said}");
    assert!(said.contains("/nowhere/docker.sock"), "{said}");
}
