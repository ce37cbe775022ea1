//! The fault proxy: each fault does what it says, to old and new connections, and the counts are right.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use limiter_conformance::proxy::{Fault, Proxy, Then};
use limiter_conformance::store::wire::{Reply, Resp, Sql};
use limiter_conformance::store::{Kind, Launch};

const MS: Duration = Duration::from_millis(1);

/// A server that answers each line with `=` and the line, and tells what it received.
fn line_server() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (tell, mut stream) = (tell.clone(), stream.unwrap());
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let Ok(line) = line else { return };
                    tell.send(line.clone()).ok();
                    if stream.write_all(format!("={line}\n").as_bytes()).is_err() {
                        return;
                    }
                }
                tell.send("the end".to_owned()).ok();
            });
        }
    });
    (addr, received)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(proxy.addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).map(|_| line.trim_end().to_owned())
    }

    fn ask(&mut self, line: &str) -> io::Result<String> {
        self.say(line);
        self.hear()
    }

    /// Nothing comes for a while.
    fn hears_nothing(&mut self) {
        self.0.get_mut().set_read_timeout(Some(100 * MS)).unwrap();
        let heard = self.hear();
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        self.0.get_mut().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }

    /// The connection was ended by RST.
    fn is_reset(&mut self) {
        assert_eq!(self.hear().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}

fn eventually(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        thread::sleep(MS);
    }
}

#[test]
fn passes_and_counts() {
    let (server, _received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    assert_eq!(proxy.fault(), Fault::Pass);
    let (mut one, mut two) = (Client::new(&proxy), Client::new(&proxy));
    let before = proxy.traffic();
    for i in 0..10 {
        assert_eq!(one.ask(&format!("été{i}")).unwrap(), format!("=été{i}"));
        assert_eq!(two.ask("b").unwrap(), "=b");
    }
    let traffic = proxy.traffic().since(&before);
    assert_eq!((traffic.round_trips, proxy.traffic().accepted, traffic.live), (20, 2, 2));
    assert_eq!((traffic.from_clients, traffic.to_store), (90, 90));
    assert_eq!((traffic.from_store, traffic.to_clients), (110, 110));
    drop((one, two));
    eventually("closed connections are no longer live", || proxy.traffic().live == 0);
}

#[test]
fn half_closed_streams_still_answer() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut client = Client::new(&proxy);
    client.say("a");
    client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.0.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "=a\n");
    assert_eq!(received.iter().take(2).collect::<Vec<_>>(), ["a", "the end"]);
}

#[test]
fn much_passes_unchanged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let bytes: Vec<u8> = (0..8_000_000_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.write_all(&bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    server.join().unwrap();
    assert!(back == bytes);
    assert_eq!(proxy.traffic().to_clients, 8_000_000);
}

#[test]
fn delays_each_way_and_keeps_order() {
    let (server, _received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut old = Client::new(&proxy);
    assert_eq!(old.ask("a").unwrap(), "=a");
    let delay = Fault::Delay { each_way: 30 * MS, jitter: Duration::ZERO, seed: 0 };
    proxy.set(delay).unwrap();
    assert_eq!(proxy.fault(), delay);
    for client in [&mut old, &mut Client::new(&proxy)] {
        let begun = Instant::now();
        assert_eq!(client.ask("b").unwrap(), "=b");
        assert!(begun.elapsed() >= 60 * MS, "{:?}", begun.elapsed());
    }
    // Latency, not throughput: many on their way take no longer than one.
    proxy.set(Fault::Delay { each_way: 30 * MS, jitter: 30 * MS, seed: 7 }).unwrap();
    let begun = Instant::now();
    for i in 0..50 {
        old.say(&i.to_string());
        thread::sleep(MS);
    }
    for i in 0..50 {
        assert_eq!(old.hear().unwrap(), format!("={i}"));
    }
    assert!(begun.elapsed() < 1000 * MS, "{:?}", begun.elapsed());
}

#[test]
fn a_stall_loses_nothing() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut old = Client::new(&proxy);
    assert_eq!(old.ask("a").unwrap(), "=a");
    proxy.set(Fault::Stall).unwrap();
    let mut new = Client::new(&proxy);
    old.say("b");
    new.say("c");
    old.hears_nothing();
    new.hears_nothing();
    assert_eq!(received.try_iter().collect::<Vec<_>>(), ["a"]);
    proxy.set(Fault::Pass).unwrap();
    assert_eq!(old.hear().unwrap(), "=b");
    assert_eq!(new.hear().unwrap(), "=c");
}

#[test]
fn a_black_hole_swallows_both_ways() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let (mut old, mut idle) = (Client::new(&proxy), Client::new(&proxy));
    assert_eq!(old.ask("a").unwrap(), "=a");
    assert_eq!(idle.ask("a").unwrap(), "=a");
    let before = proxy.traffic();
    proxy.set(Fault::BlackHole).unwrap();
    let mut new = Client::new(&proxy);
    old.say("b");
    new.say("c");
    old.hears_nothing();
    new.hears_nothing();
    let traffic = proxy.traffic().since(&before);
    assert_eq!((traffic.from_clients, traffic.to_store, traffic.live), (4, 0, 3));
    // What lost bytes is reset when the fault ends, what did not goes on.
    proxy.set(Fault::Pass).unwrap();
    old.is_reset();
    new.is_reset();
    assert_eq!(idle.ask("d").unwrap(), "=d");
    assert_eq!(Client::new(&proxy).ask("e").unwrap(), "=e");
    assert!(!received.try_iter().any(|line| line == "b" || line == "c"));
}

#[test]
fn a_black_hole_hides_the_end_of_a_client() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut client = Client::new(&proxy);
    assert_eq!(client.ask("a").unwrap(), "=a");
    proxy.set(Fault::BlackHole).unwrap();
    drop(client);
    assert_eq!(received.recv().unwrap(), "a");
    assert!(received.recv_timeout(100 * MS).is_err());
    assert_eq!(proxy.traffic().live, 1);
    proxy.set(Fault::Pass).unwrap();
    eventually("the half-dead connection ends", || proxy.traffic().live == 0);
}

#[test]
fn a_black_hole_hides_the_reset_of_a_client() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut client = Client::new(&proxy);
    client.say("a");
    eventually("the reply lies unread at the client", || proxy.traffic().to_clients == 3);
    proxy.set(Fault::BlackHole).unwrap();
    // Closed with bytes unread, a socket sends RST.
    drop(client);
    assert_eq!(received.recv().unwrap(), "a");
    assert!(received.recv_timeout(100 * MS).is_err());
    assert_eq!(proxy.traffic().live, 1);
    proxy.set(Fault::Pass).unwrap();
    eventually("the half-dead connection ends", || proxy.traffic().live == 0);
}

#[test]
fn resets_while_connections_come_and_go() {
    let (server, _received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    if let Ok(stream) = TcpStream::connect(proxy.addr()) {
                        let mut client = Client(BufReader::new(stream));
                        client.0.get_mut().write_all(b"a\n").ok();
                        // Its own reply or none: never half of one.
                        let heard = client.hear().unwrap_or_default();
                        assert!(heard.is_empty() || heard == "=a", "{heard}");
                    }
                }
            });
        }
        for _ in 0..200 {
            proxy.reset().unwrap();
        }
    });
}

#[test]
fn resets_what_is_open_and_only_that() {
    let (server, _received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut clients: Vec<Client> = (0..5).map(|_| Client::new(&proxy)).collect();
    for client in &mut clients {
        assert_eq!(client.ask("a").unwrap(), "=a");
    }
    proxy.reset().unwrap();
    assert_eq!(proxy.traffic().live, 0);
    for client in &mut clients {
        client.is_reset();
    }
    assert_eq!(Client::new(&proxy).ask("b").unwrap(), "=b");
}

#[test]
fn cuts_a_reply_in_its_middle() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut old = Client::new(&proxy);
    assert_eq!(old.ask("before").unwrap(), "=before");
    proxy.set(Fault::Cut { after: 7 }).unwrap();
    for client in [&mut old, &mut Client::new(&proxy)] {
        assert_eq!(client.ask("abc").unwrap(), "=abc");
        assert_eq!(client.ask("xyz").unwrap(), "=x", "two more bytes pass");
        assert_eq!(client.hear().unwrap(), "", "and then it is closed");
    }
    // At the border of a reply the connection ends right behind it.
    proxy.set(Fault::Cut { after: 3 }).unwrap();
    let mut client = Client::new(&proxy);
    assert_eq!(client.ask("a").unwrap(), "=a");
    assert_eq!(client.hear().unwrap(), "");
    proxy.set(Fault::Cut { after: 0 }).unwrap();
    assert_eq!(Client::new(&proxy).ask("nothing").unwrap(), "");
    proxy.set(Fault::Pass).unwrap();
    assert_eq!(Client::new(&proxy).ask("after").unwrap(), "=after");
    let said: Vec<String> = received.try_iter().collect();
    assert!(said.contains(&"nothing".to_owned()), "requests pass: {said:?}");
}

#[test]
fn drops_replies_and_resets() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut client = Client::new(&proxy);
    proxy.set(Fault::DropReply(Then::Reset)).unwrap();
    client.say("a");
    client.is_reset();
    assert_eq!(received.recv().unwrap(), "a");
    let traffic = proxy.traffic();
    assert_eq!((traffic.to_store, traffic.from_store, traffic.to_clients), (2, 3, 0));
}

#[test]
fn drops_replies_in_silence() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let (mut old, mut idle) = (Client::new(&proxy), Client::new(&proxy));
    assert_eq!(old.ask("a").unwrap(), "=a");
    proxy.set(Fault::DropReply(Then::Silence)).unwrap();
    old.say("b");
    old.hears_nothing();
    old.say("c");
    old.hears_nothing();
    assert_eq!(received.iter().take(3).collect::<Vec<_>>(), ["a", "b", "c"], "requests pass");
    // Never a later reply in the place of a lost one.
    proxy.set(Fault::Pass).unwrap();
    old.is_reset();
    assert_eq!(idle.ask("d").unwrap(), "=d");
}

#[test]
fn refuses_like_a_closed_port() {
    let (server, _received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut old = Client::new(&proxy);
    assert_eq!(old.ask("a").unwrap(), "=a");
    // Programs that are just starting hold copies of all sockets for a moment.
    let programs = thread::spawn(|| {
        for _ in 0..100 {
            std::process::Command::new("true").current_dir("/").status().unwrap();
        }
    });
    while !programs.is_finished() {
        proxy.set(Fault::Refuse).unwrap();
        assert_eq!(TcpStream::connect(proxy.addr()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        proxy.set(Fault::Refuse).unwrap();
        proxy.set(Fault::Pass).unwrap();
        assert_eq!(Client::new(&proxy).ask("b").unwrap(), "=b");
    }
    old.is_reset();
    programs.join().unwrap();
}

#[test]
fn a_store_that_is_down_looks_like_that() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    drop(listener);
    Client::new(&proxy).is_reset();
}

#[test]
fn ends_with_its_guard() {
    let (server, received) = line_server();
    let proxy = Proxy::start(server).unwrap();
    let mut client = Client::new(&proxy);
    assert_eq!(client.ask("a").unwrap(), "=a");
    let addr = proxy.addr();
    drop(proxy);
    assert!(TcpStream::connect(addr).is_err());
    assert_eq!(client.hear().unwrap_or_default(), "");
    assert_eq!(received.iter().take(2).collect::<Vec<_>>(), ["a", "the end"]);
}

#[test]
fn lives_within_a_runtime_that_is_blocked() {
    let (server, _received) = line_server();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let proxy = Proxy::start(server).unwrap();
        proxy.set(Fault::Delay { each_way: MS, jitter: MS, seed: 3 }).unwrap();
        assert_eq!(Client::new(&proxy).ask("a").unwrap(), "=a");
        proxy.set(Fault::Refuse).unwrap();
        drop(proxy);
    });
}

#[test]
fn redis_runs_a_command_whose_reply_is_lost() {
    let redis = Launch::new(Kind::Redis).own().start().unwrap();
    let proxy = Proxy::start(redis.addr()).unwrap();
    let mut resp = Resp::connect(proxy.addr()).unwrap();
    let before = proxy.traffic();
    assert_eq!(resp.call(&["INCR", "k"]).unwrap(), Reply::Int(1));
    assert_eq!(proxy.traffic().since(&before).round_trips, 1);

    proxy.set(Fault::DropReply(Then::Reset)).unwrap();
    assert!(resp.call(&["INCR", "k"]).is_err());
    proxy.set(Fault::Pass).unwrap();
    let mut resp = Resp::connect(proxy.addr()).unwrap();
    assert_eq!(resp.call(&["GET", "k"]).unwrap().text(), "2");

    let long = "x".repeat(1000);
    resp.call(&["SET", "long", &long]).unwrap();
    proxy.set(Fault::Cut { after: 500 }).unwrap();
    assert_eq!(resp.call(&["GET", "long"]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    proxy.set(Fault::Pass).unwrap();

    redis.kill().unwrap();
    let call = || Resp::connect(proxy.addr())?.call(&["PING"]);
    assert!(call().is_err());
    redis.restart().unwrap();
    assert_eq!(call().unwrap().text(), "PONG");
}

#[test]
fn postgres_takes_one_round_trip_a_query() {
    let postgres = Launch::new(Kind::Postgres).own().start().unwrap();
    let proxy = Proxy::start(postgres.addr()).unwrap();
    let mut sql = Sql::connect(proxy.addr()).unwrap();
    let before = proxy.traffic();
    for _ in 0..3 {
        sql.query("SELECT 1").unwrap();
    }
    // Each query is sent in three pieces here: pieces of one question are one round trip.
    assert_eq!(proxy.traffic().since(&before).round_trips, 3);
}
