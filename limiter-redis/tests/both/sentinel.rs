//! Sentinels: a failover is followed without a restart, whichever way the old primary goes, and each asks with its own password.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use limiter_conformance::rig::Rig;
use limiter_conformance::store::topology::RedisSentinel;
use limiter_conformance::store::wire::{Reply, Resp};
use limiter_conformance::store::{Kind, Launch, Store};
use limiter_conformance::{Options, Subject, run};
use limiter_core::{Atomicity, Backend, Batch, ErrorKind, Key, Outcome, Request};
use tokio::time::Instant;

use crate::{Config, Engine};

/// A failover of these sets takes some 2 s; a busy machine may need more.
const PATIENCE: Duration = Duration::from_secs(40);

fn ask(addr: SocketAddr, words: &[&str]) -> Reply {
    Resp::connect(addr).unwrap().call(words).unwrap()
}

async fn engine(url: &str) -> Engine {
    let config = Config::from_url(url).unwrap().call_timeout(Duration::from_millis(200));
    Engine::connect(config.connect_timeout(Duration::from_secs(2))).await.unwrap()
}

async fn take(engine: &Engine) -> Outcome {
    let key = Key::new("t", "sentinel", ["key"]);
    let request = Request::take(key, "100000/1h fixed-window".parse().unwrap(), 1).unwrap();
    engine.submit(Arc::new(Batch::of(request))).await.remove(0)
}

/// Takes until it is allowed again; gives the failures on the way, and the longest call.
async fn heals(engine: &Engine) -> (Vec<ErrorKind>, Duration) {
    let (begun, mut kinds, mut longest) = (Instant::now(), Vec::new(), Duration::ZERO);
    loop {
        let asked = Instant::now();
        let outcome = take(engine).await;
        longest = longest.max(asked.elapsed());
        match outcome.record() {
            Ok(record) => {
                assert!(record.allowed);
                println!("healed after {:?} and {} failures", begun.elapsed(), kinds.len());
                return (kinds, longest);
            }
            Err(error) => kinds.push(error.kind()),
        }
        assert!(begun.elapsed() < PATIENCE, "{outcome:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn goes_on(engine: &Engine) {
    for _ in 0..30 {
        assert!(take(engine).await.record().unwrap().allowed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A stand-in for a sentinel, which names a fault proxy as the primary. A real one would talk through the proxy itself, and what it
/// is answered would be taken for the client's replies.
fn sentinel_that_names(primary: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(client, primary));
        }
    });
    addr
}

fn answer(client: TcpStream, primary: SocketAddr) -> io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?).lines();
    let mut client = client;
    while let Some(count) = lines.next().transpose()? {
        // `*n`, and then n times a length and a word.
        let words = count.trim_start_matches('*').parse().unwrap_or(0_usize);
        let words: Vec<String> = lines.by_ref().take(2 * words).skip(1).step_by(2).collect::<io::Result<_>>()?;
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        let reply = match words.get(1).map(|word| word.to_ascii_uppercase()).as_deref() {
            Some("GET-MASTER-ADDR-BY-NAME") => {
                format!("*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n", host.len(), port.len())
            }
            Some("SENTINELS") => "*0\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        client.write_all(reply.as_bytes())?;
    }
    Ok(())
}

#[test]
fn the_suites_failures_behind_a_sentinel() {
    let store = Launch::new(Kind::Redis).own().start().unwrap();
    let rig = Rig::before([store.addr()]).unwrap();
    let url = format!("redis-sentinel://{}/?service=any", sentinel_that_names(rig.proxies().next().unwrap().addr()));
    let subject = rig.equip(Subject::new("sentinel", move || {
        let url = url.clone();
        async move { Ok(Engine::connect(Config::from_url(&url)?).await?) }
    }));
    let report = run(&subject, &Options::default().filter("failures::").at_least(3));
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_dies_is_followed() {
    let set = RedisSentinel::start().unwrap();
    let engine = engine(&set.url()).await;
    assert_eq!(engine.capabilities().atomicity, Atomicity::AllKeys);
    assert!(take(&engine).await.record().unwrap().allowed);
    set.pair.primary.kill().unwrap();
    // One sentinel may be away as well.
    set.sentinels[0].kill().unwrap();
    let (kinds, longest) = heals(&engine).await;
    assert!(!kinds.is_empty());
    assert!(longest < Duration::from_millis(900), "{longest:?}");
    assert_eq!(set.sentinels[1..].iter().find_map(primary_of).unwrap(), set.pair.replica.addr());
    goes_on(&engine).await;
}

fn primary_of(sentinel: &Store) -> Option<SocketAddr> {
    let answer = ask(sentinel.addr(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinel::NAME]);
    let [ip, port] = answer.list() else { return None };
    Some(SocketAddr::new(ip.text().parse().ok()?, port.text().parse().ok()?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stops_answering_is_left() {
    let set = RedisSentinel::start().unwrap();
    let engine = engine(&set.url()).await;
    assert!(take(&engine).await.record().unwrap().allowed);
    set.pair.primary.pause().unwrap();
    let (kinds, longest) = heals(&engine).await;
    assert_eq!(kinds.first(), Some(&ErrorKind::Unknown { in_flight: true }));
    assert!(longest < Duration::from_millis(900), "{longest:?}");
    set.pair.primary.resume().unwrap();
    goes_on(&engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_becomes_a_replica_is_left_for_the_new_one() {
    let set = RedisSentinel::start().unwrap();
    let engine = Arc::new(engine(&set.url()).await);
    assert!(take(&engine).await.record().unwrap().allowed);
    // By hand, and without the disconnections that sentinels make: only `READONLY` tells.
    let (old, new) = (set.pair.primary.addr(), set.pair.replica.addr());
    assert_eq!(ask(set.sentinels[0].addr(), &["SENTINEL", "FAILOVER", RedisSentinel::NAME]).text(), "OK");
    let begun = Instant::now();
    while !set.sentinels.iter().all(|sentinel| primary_of(sentinel) == Some(new)) {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while ask(old, &["ROLE"]).list()[0].text() != "slave" {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    heals(&engine).await;
    goes_on(&engine).await;
}

#[tokio::test]
async fn sentinels_and_servers_have_their_own_passwords_and_are_told_apart() {
    let set = RedisSentinel::start().unwrap();
    for server in [&set.pair.replica, &set.pair.primary] {
        for words in [["CONFIG", "SET", "masterauth", "node-secret"], ["CONFIG", "SET", "requirepass", "node-secret"]] {
            // From the second on the server asks for it.
            let mut resp = Resp::connect(server.addr()).unwrap();
            assert_eq!(resp.call(&words).unwrap().text(), "OK");
        }
    }
    for sentinel in &set.sentinels {
        let mut resp = Resp::connect(sentinel.addr()).unwrap();
        for words in [
            &["SENTINEL", "SET", RedisSentinel::NAME, "auth-pass", "node-secret"][..],
            &["CONFIG", "SET", "requirepass", "sentinel-secret"],
            // Of Redis 7: a password of the sentinel itself is set by its users.
            &["ACL", "SETUSER", "default", "on", "resetpass", ">sentinel-secret"],
        ] {
            resp.call(words).unwrap();
        }
    }
    let hosts = set.url();
    let hosts = hosts.strip_prefix("redis-sentinel://").unwrap().split('/').next().unwrap();
    let url = |node: &str, sentinel: &str, service: &str| {
        format!("redis-sentinel://:{node}@{hosts}/?service={service}&sentinelPassword={sentinel}")
    };
    let good = url("node-secret", "sentinel-secret", RedisSentinel::NAME);
    let engine = Engine::connect(Config::from_url(&good).unwrap()).await.unwrap();
    assert!(take(&engine).await.record().unwrap().allowed);
    for (wrong, due) in [
        (url("marker", "sentinel-secret", RedisSentinel::NAME), "password"),
        (url("node-secret", "marker", RedisSentinel::NAME), "password"),
        (url("node-secret", "sentinel-secret", "marker"), "service"),
    ] {
        let error = Engine::connect(Config::from_url(&wrong).unwrap()).await.unwrap_err();
        let told = format!("{error} {error:?}");
        // fred does not tell a sentinel that refuses from one that is not there.
        assert!(error.kind().is_certain(), "{told}");
        assert!(told.contains(due) && !told.contains("marker") && !told.contains("secret"), "{told}");
    }
}
