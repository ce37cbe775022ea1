//! The launcher: every kind starts, answers, survives pause, kill and restart, and is never left behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::HashSet;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use limiter_conformance::store::wire::{Resp, Sql, base64, http_get, http_post};
use limiter_conformance::store::{Kind, Launch, Road, Store, StoreError, shared, start};

/// A server of this machine, whatever the environment says.
fn local(kind: Kind) -> Launch {
    Launch::new(kind).road(Road::Local)
}

/// Writes a value and reads it back by the store's own protocol.
fn write_and_read(store: &Store, value: &str) {
    write(store, value);
    assert_eq!(read(store).as_deref(), Some(value));
}

fn write(store: &Store, value: &str) {
    match store.kind() {
        Kind::Redis => {
            let reply = Resp::connect(store.addr()).unwrap().call(&["SET", "k", value]).unwrap();
            assert_eq!(reply.text(), "OK");
        }
        Kind::Postgres => {
            let sql = format!("CREATE TABLE IF NOT EXISTS t (v text); TRUNCATE t; INSERT INTO t VALUES ('{value}')");
            Sql::connect(store.addr()).unwrap().query(&sql).unwrap();
        }
        Kind::Etcd => {
            let json = format!(r#"{{"key":"{}","value":"{}"}}"#, base64(b"k"), base64(value.as_bytes()));
            let (status, body) = http_post(store.addr(), "/v3/kv/put", &json).unwrap();
            assert_eq!(status, 200, "{body}");
        }
    }
}

fn read(store: &Store) -> Option<String> {
    match store.kind() {
        Kind::Redis => {
            let reply = Resp::connect(store.addr()).unwrap().call(&["GET", "k"]).unwrap();
            Some(reply.text().to_owned()).filter(|text| !text.is_empty())
        }
        Kind::Postgres => {
            let rows = Sql::connect(store.addr()).unwrap().query("SELECT v FROM t").unwrap();
            rows.first()?.first()?.clone()
        }
        Kind::Etcd => {
            let json = format!(r#"{{"key":"{}"}}"#, base64(b"k"));
            let (_, body) = http_post(store.addr(), "/v3/kv/range", &json).unwrap();
            // The one value is compared in its encoded form.
            let (_, rest) = body.split_once(r#""value":""#)?;
            let encoded = rest.split('"').next()?;
            ["one", "two", "été"].iter().find(|v| base64(v.as_bytes()) == encoded).map(|v| (*v).to_owned())
        }
    }
}

/// Waits for something that is to become true.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn runs(pid: u32) -> bool {
    // In a container whose first process waits for nobody, an orphan that ended stays as a zombie.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Nothing is left of a server: no process, none of its children, no directory.
fn gone(pids: &[u32], dir: &Path) -> bool {
    !pids.iter().any(|pid| runs(*pid)) && !dir.exists()
}

/// A server's process and its children.
fn family(store: &Store) -> Vec<u32> {
    let father = store.pid().unwrap();
    let children = Command::new("ps").args(["-o", "pid=", "--ppid", &father.to_string()]).output().unwrap();
    let children = String::from_utf8(children.stdout).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).chain([father]).collect()
}

#[test]
fn every_kind_starts_answers_and_ends() {
    for kind in Kind::ALL {
        let begun = Instant::now();
        let store = local(kind).start().unwrap();
        println!("{kind} answered after {:?}", begun.elapsed());
        assert_eq!((store.kind(), store.road()), (kind, Road::Local));
        assert!(store.url().contains(&store.addr().to_string()), "{}", store.url());
        assert!(store.addr().ip().is_loopback());
        write_and_read(&store, "été");
        let (pids, dir) = (family(&store), store.dir().unwrap());
        assert!(dir.is_dir());
        let begun = Instant::now();
        drop(store);
        println!("{kind} ended after {:?}", begun.elapsed());
        assert!(!runs(*pids.last().unwrap()) && !dir.exists());
        eventually("the children end too", || gone(&pids, &dir));
    }
}

#[test]
fn a_restart_keeps_port_and_data() {
    for kind in Kind::ALL {
        let launch = match kind {
            Kind::Redis => local(kind).option("appendonly", "yes").option("appendfsync", "always"),
            _ => local(kind).own(),
        };
        let store = launch.start().unwrap();
        let (addr, pid) = (store.addr(), store.pid().unwrap());
        write(&store, "one");
        store.kill().unwrap();
        assert!(!runs(pid));
        assert!(store.pid().is_none());
        assert!(matches!(store.pause(), Err(StoreError::Down { .. })));
        store.kill().unwrap();
        // The port is free, not merely silent.
        TcpListener::bind(addr).unwrap();
        store.restart().unwrap();
        assert_eq!(store.addr(), addr);
        assert_eq!(read(&store).as_deref(), Some("one"), "{kind}");
        // Also in one go, while it runs.
        store.restart().unwrap();
        assert_ne!(store.pid(), Some(pid));
        write_and_read(&store, "two");
    }
}

#[test]
fn without_persistence_redis_forgets() {
    let store = local(Kind::Redis).start().unwrap();
    write(&store, "one");
    store.restart().unwrap();
    assert_eq!(read(&store), None);
}

#[test]
fn a_pause_delays_and_loses_nothing() {
    const PAUSE: Duration = Duration::from_millis(200);
    for kind in Kind::ALL {
        let store = local(kind).start().unwrap();
        write(&store, "one");
        store.pause().unwrap();
        let begun = Instant::now();
        thread::scope(|scope| {
            let late = scope.spawn(|| read(&store));
            thread::sleep(PAUSE);
            assert!(!late.is_finished(), "{kind} answered while it was stopped");
            store.resume().unwrap();
            assert_eq!(late.join().unwrap().as_deref(), Some("one"));
        });
        assert!(begun.elapsed() >= PAUSE);
    }
}

#[test]
fn options_reach_the_server() {
    let redis = local(Kind::Redis)
        .option("maxmemory", "32mb")
        .option("save", "900 1 300 10")
        .option("client-output-buffer-limit", "pubsub 1mb 1mb 10")
        .start()
        .unwrap();
    let mut resp = Resp::connect(redis.addr()).unwrap();
    assert_eq!(resp.call(&["CONFIG", "GET", "maxmemory"]).unwrap().list()[1].text(), "33554432");
    assert_eq!(resp.call(&["CONFIG", "GET", "save"]).unwrap().list()[1].text(), "900 1 300 10");

    let postgres = local(Kind::Postgres).option("fsync", "on").option("lock_timeout", "2s").start().unwrap();
    let rows = Sql::connect(postgres.addr())
        .unwrap()
        .query("SELECT current_setting('fsync'), current_setting('lock_timeout'), current_setting('server_encoding'), NULL")
        .unwrap();
    let texts: Vec<Option<&str>> = rows[0].iter().map(Option::as_deref).collect();
    assert_eq!(texts, [Some("on"), Some("2s"), Some("UTF8"), None]);

    let etcd = local(Kind::Etcd).option("quota-backend-bytes", "16777216").start().unwrap();
    let (_, metrics) = http_get(etcd.addr(), "/metrics").unwrap();
    assert!(metrics.contains("etcd_server_quota_backend_bytes 1.6777216e+07"));
}

#[test]
fn environment_reaches_the_server() {
    // Not Redis: it writes its title over its environment.
    let etcd = local(Kind::Etcd).env("LIMITER_TEST_WORD", "blue").start().unwrap();
    let environ = std::fs::read(format!("/proc/{}/environ", etcd.pid().unwrap())).unwrap();
    assert!(environ.split(|byte| *byte == 0).any(|pair| pair == b"LIMITER_TEST_WORD=blue"));
}

#[test]
fn many_at_once_have_ports_of_their_own() {
    let stores: Vec<Store> = thread::scope(|scope| {
        let starts: Vec<_> = (0..12).map(|i| scope.spawn(move || local(Kind::ALL[i % 3]).start().unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let ports: HashSet<u16> = stores.iter().map(|store| store.addr().port()).collect();
    assert_eq!(ports.len(), stores.len());
    for store in &stores {
        write_and_read(store, "one");
    }
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = local(Kind::Redis).option("no-such-directive", "1").start().unwrap_err().to_string();
    assert!(error.contains("Redis did not start") && error.contains("no-such-directive"), "{error}");
    let error = local(Kind::Postgres).option("no_such_setting", "1").start().unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
    let error = local(Kind::Etcd).option("no-such-flag", "1").start().unwrap_err().to_string();
    assert!(error.contains("no-such-flag"), "{error}");
}

#[test]
fn postgres_leaves_no_shared_memory() {
    let segments = || {
        let list = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let id = |line: &str| line.split_whitespace().nth(1).unwrap().to_owned();
        list.lines().skip(1).map(id).collect::<HashSet<_>>()
    };
    let store = local(Kind::Postgres).start().unwrap();
    let file = std::fs::read_to_string(store.dir().unwrap().join("data/postmaster.pid")).unwrap();
    let id = file.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    assert!(segments().contains(&id));
    store.kill().unwrap();
    drop(store);
    assert!(!segments().contains(&id));
}

#[test]
fn a_panic_leaves_nothing() {
    for kind in Kind::ALL {
        let thread = thread::spawn(move || {
            let store = local(kind).start().unwrap();
            store.pause().unwrap();
            std::panic::panic_any((family(&store), store.dir().unwrap()));
        });
        let left = thread.join().unwrap_err();
        let (pids, dir) = left.downcast::<(Vec<u32>, PathBuf)>().unwrap().as_ref().clone();
        eventually("a paused server ends by a panic", || gone(&pids, &dir));
    }
}

/// Passes by itself: it is what the tests below run in a process that they kill, or that has another
/// environment.
#[test]
fn child() {
    match env::var("LIMITER_TEST_CHILD").as_deref() {
        Ok("hold") => {
            // In threads that end: a server must outlive the thread that started it.
            let start = |kind| thread::spawn(move || local(kind).start().unwrap()).join().unwrap();
            let stores = Kind::ALL.map(start);
            for store in &stores {
                println!("held {:?} {}", family(store), store.dir().unwrap().display());
            }
            if env::var_os("LIMITER_TEST_PAUSED").is_some() {
                for store in &stores {
                    store.pause().unwrap();
                }
            }
            println!("all held");
            thread::sleep(Duration::from_mins(1));
        }
        Ok("share") => {
            let once = thread::spawn(|| shared(Kind::Redis).unwrap().addr()).join().unwrap();
            let store = shared(Kind::Redis).unwrap();
            assert_eq!(once, store.addr());
            write_and_read(store, "one");
            println!("held {:?} {}", family(store), store.dir().unwrap().display());
            println!("all held");
        }
        Ok("ask") => {
            for kind in Kind::ALL {
                match start(kind) {
                    Ok(store) => println!("{kind} by {} at {}", store.road(), store.addr()),
                    Err(error) => println!("{kind}: {error}"),
                }
                if let Err(error) = Launch::new(kind).own().start() {
                    println!("own {kind}: {error}");
                }
            }
        }
        // In a run of all tests: nobody asked.
        _ => {}
    }
}

fn run_child(what: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env("LIMITER_TEST_CHILD", what).stdout(Stdio::piped());
    command
}

/// The pids and the directory in a line of a child that holds servers.
fn held(line: &str) -> Option<(Vec<u32>, PathBuf)> {
    let (pids, dir) = line.strip_prefix("held [")?.split_once("] ")?;
    Some((pids.split(", ").map(|pid| pid.parse().unwrap()).collect(), PathBuf::from(dir)))
}

#[test]
fn a_killed_process_leaves_nothing() {
    for paused in [false, true] {
        let mut command = run_child("hold");
        if paused {
            command.env("LIMITER_TEST_PAUSED", "1");
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let held: Vec<_> = lines.take_while(|line| line != "all held").filter_map(|line| held(&line)).collect();
        assert_eq!(held.len(), 3);
        for (pids, dir) in &held {
            assert!(pids.iter().all(|pid| runs(*pid)) && dir.is_dir());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        for (pids, dir) in &held {
            eventually("servers of a killed process end", || gone(pids, dir));
        }
        println!("paused {paused}: all gone {:?} after the kill", begun.elapsed());
    }
}

#[test]
fn a_shared_store_ends_with_the_process() {
    let mut child = run_child("share").spawn().unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
    let (pids, dir) = output.lines().find_map(held).unwrap();
    eventually("a shared server ends", || gone(&pids, &dir));
}

/// What a child says that asks for every kind in this environment.
fn ask(set: &[(&str, &str)]) -> String {
    let mut command = run_child("ask");
    for kind in Kind::ALL {
        command.env_remove(kind.url_variable());
    }
    command.env_remove("LIMITER_STORES").envs(set.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_url_in_the_environment_comes_first() {
    let redis = local(Kind::Redis).start().unwrap();
    let url = format!("redis://user:secret@{}/3", redis.addr());
    let said = ask(&[("LIMITER_REDIS_URL", &url)]);
    assert!(said.contains(&format!("Redis by env at {}", redis.addr())), "{said}");
    assert!(said.contains("Postgres by local") && said.contains("etcd by local"), "{said}");
    assert!(!said.contains("own "), "an own server is had by another road: {said}");
}

#[test]
fn a_forced_road_is_kept_to() {
    let redis = local(Kind::Redis).start().unwrap();
    let url = format!("redis://:secret@{}", redis.addr());
    let said = ask(&[("LIMITER_STORES", "env"), ("LIMITER_REDIS_URL", &url)]);
    assert!(said.contains("Redis by env"), "{said}");
    assert!(said.contains("the road `env`, which is closed here: LIMITER_POSTGRES_URL is not set"), "{said}");
    assert!(said.contains("own Redis: ") && said.contains("run it without LIMITER_STORES=env"), "{said}");

    let said = ask(&[("LIMITER_STORES", "local"), ("LIMITER_REDIS_URL", &url)]);
    assert!(said.contains("Redis by local"), "{said}");

    let said = ask(&[("LIMITER_STORES", "locale")]);
    assert!(said.contains("LIMITER_STORES is `locale`; it may be `env`, `local` or `docker`"), "{said}");

    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let url = format!("redis://:secret@127.0.0.1:{port}");
    let said = ask(&[("LIMITER_REDIS_URL", &url)]);
    assert!(said.contains(&format!("LIMITER_REDIS_URL names 127.0.0.1:{port}, and ")), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn without_any_road_the_three_ways_are_named() {
    let said = ask(&[("PATH", "/nowhere"), ("DOCKER_HOST", "unix:///nowhere")]);
    for words in [
        "no Redis for the tests",
        "install the Debian package `redis-server`",
        "set LIMITER_REDIS_URL to the URL",
        "the feature `limiter-conformance/containers`",
        "LIMITER_TEST_REDIS_IMAGE",
        "no `redis-server` on PATH",
        "no etcd for the tests",
        "install the Debian package `etcd-server`",
    ] {
        assert!(said.contains(words), "`{words}` is not in:\n{said}");
    }
}

#[test]
fn what_came_from_outside_is_not_touched() {
    let said = StoreError::NotOurs { kind: Kind::Redis, what: "kill" }.to_string();
    assert!(said.contains("cannot kill this Redis") && said.contains("Launch::own"), "{said}");
}
