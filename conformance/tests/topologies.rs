//! Several servers together: each topology works, and fails over as its store promises.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use limiter_conformance::store::topology::{
    EtcdCluster, PostgresPair, RedisCluster, RedisPair, RedisSentinel, Replication,
};
use limiter_conformance::store::wire::{Reply, Resp, Sql, base64, http_post};

/// Starts something, and shows how long that took.
fn timed<T, E: std::fmt::Debug>(what: &str, start: impl FnOnce() -> Result<T, E>) -> T {
    let begun = Instant::now();
    let started = start().unwrap();
    println!("{what} ready after {:?}", begun.elapsed());
    started
}

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn redis(addr: SocketAddr, words: &[&str]) -> Reply {
    Resp::connect(addr).unwrap().call(words).unwrap()
}

/// Sets `k` to `v`, and waits until one replica has it.
fn write_through(primary: SocketAddr) {
    let mut resp = Resp::connect(primary).unwrap();
    assert_eq!(resp.call(&["SET", "k", "v"]).unwrap().text(), "OK");
    // WAIT is about the writes of its own connection.
    assert_eq!(resp.call(&["WAIT", "1", "5000"]).unwrap(), Reply::Int(1));
}

fn sql(addr: SocketAddr, statements: &str) -> Option<String> {
    let rows = Sql::connect(addr).unwrap().query(statements).unwrap();
    rows.first()?.first()?.clone()
}

#[test]
fn redis_replica_follows() {
    let pair = timed("Redis primary and replica", RedisPair::start);
    assert_eq!(redis(pair.primary.addr(), &["SET", "k", "v"]).text(), "OK");
    assert_eq!(redis(pair.primary.addr(), &["WAIT", "1", "5000"]), Reply::Int(1));
    assert_eq!(redis(pair.replica.addr(), &["GET", "k"]).text(), "v");
    assert!(redis(pair.replica.addr(), &["SET", "k", "w"]).text().starts_with("READONLY"));

    pair.primary.kill().unwrap();
    assert_eq!(redis(pair.replica.addr(), &["REPLICAOF", "NO", "ONE"]).text(), "OK");
    assert_eq!(redis(pair.replica.addr(), &["SET", "k", "w"]).text(), "OK");
}

#[test]
fn redis_cluster_serves_and_fails_over() {
    let cluster = timed("Redis Cluster of 3 + 3", RedisCluster::start);
    let mut moved = 0;
    for node in &cluster.nodes {
        let info = redis(node.addr(), &["CLUSTER", "INFO"]);
        for fact in ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6", "cluster_size:3"] {
            assert!(info.text().contains(fact), "{fact} is not in {}", info.text());
        }
        match redis(node.addr(), &["SET", "k", "v"]) {
            Reply::Status(_) => {}
            Reply::Error(error) if error.starts_with("MOVED 7629 ") => moved += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(moved, 5, "one node has the key, all others know which");
    let roles = |role| {
        let with = |node: &&_| redis(limiter_conformance::store::Store::addr(node), &["ROLE"]).list()[0].text() == role;
        cluster.nodes.iter().filter(with).count()
    };
    assert_eq!((roles("master"), roles("slave")), (3, 3));

    // Slot 7629 is the second primary's.
    cluster.nodes[1].kill().unwrap();
    let begun = Instant::now();
    let heir = cluster.nodes[4].addr();
    eventually("the replica takes over", || redis(heir, &["SET", "k", "w"]).text() == "OK");
    println!("Redis Cluster replica took over after {:?}", begun.elapsed());
    cluster.nodes[1].restart().unwrap();
    eventually("the old primary comes back as a replica", || {
        redis(cluster.nodes[1].addr(), &["ROLE"]).list()[0].text() == "slave"
    });
}

#[test]
fn redis_sentinels_fail_over() {
    let set = timed("Redis with 3 sentinels", RedisSentinel::start);
    let (primary, replica) = (set.pair.primary.addr(), set.pair.replica.addr());
    assert_eq!(set.primary().unwrap(), primary);
    write_through(primary);
    set.pair.primary.kill().unwrap();
    let begun = Instant::now();
    eventually("the sentinels promote the replica", || {
        set.primary().is_ok_and(|addr| addr == replica) && redis(replica, &["SET", "k2", "v"]).text() == "OK"
    });
    println!("sentinels failed over after {:?}", begun.elapsed());
    assert_eq!(redis(replica, &["GET", "k"]).text(), "v");
}

#[test]
fn postgres_standby_streams() {
    let pair = timed("Postgres primary and standby", || PostgresPair::start(Replication::Async));
    assert_eq!(sql(pair.standby.addr(), "SELECT pg_is_in_recovery()").as_deref(), Some("t"));
    sql(pair.primary.addr(), "CREATE TABLE t AS SELECT 7 AS v");
    eventually("the row arrives", || {
        let rows = Sql::connect(pair.standby.addr()).unwrap().query("SELECT v FROM t");
        rows.is_ok_and(|rows| rows == [[Some("7".to_owned())]])
    });
    pair.primary.kill().unwrap();
    assert_eq!(sql(pair.standby.addr(), "SELECT pg_promote()").as_deref(), Some("t"));
    assert_eq!(sql(pair.standby.addr(), "INSERT INTO t VALUES (8) RETURNING v").as_deref(), Some("8"));
}

#[test]
fn postgres_synchronous_standby_loses_nothing() {
    let pair = timed("Postgres primary and synchronous standby", || PostgresPair::start(Replication::Sync));
    sql(pair.primary.addr(), "CREATE TABLE t (v int)");
    for v in 0..20 {
        sql(pair.primary.addr(), &format!("INSERT INTO t VALUES ({v})"));
    }
    pair.primary.kill().unwrap();
    sql(pair.standby.addr(), "SELECT pg_promote()");
    assert_eq!(sql(pair.standby.addr(), "SELECT count(*) FROM t").as_deref(), Some("20"));
}

#[test]
fn postgres_synchronous_commit_waits_for_the_standby() {
    let pair = PostgresPair::start(Replication::Sync).unwrap();
    sql(pair.primary.addr(), "CREATE TABLE t (v int)");
    pair.standby.pause().unwrap();
    thread::scope(|scope| {
        let insert = scope.spawn(|| sql(pair.primary.addr(), "INSERT INTO t VALUES (1) RETURNING v"));
        thread::sleep(Duration::from_millis(300));
        assert!(!insert.is_finished());
        pair.standby.resume().unwrap();
        assert_eq!(insert.join().unwrap().as_deref(), Some("1"));
    });
}

#[test]
fn etcd_cluster_agrees_and_survives_one() {
    let cluster = timed("etcd of 3", EtcdCluster::start);
    let put = |i: usize, value: &str| {
        let json = format!(r#"{{"key":"{}","value":"{}"}}"#, base64(b"k"), base64(value.as_bytes()));
        http_post(cluster.members[i].addr(), "/v3/kv/put", &json)
    };
    let got = |i: usize, value: &str| {
        let json = format!(r#"{{"key":"{}"}}"#, base64(b"k"));
        let (status, body) = http_post(cluster.members[i].addr(), "/v3/kv/range", &json).unwrap();
        assert_eq!(status, 200, "{body}");
        body.contains(&base64(value.as_bytes()))
    };
    let (_, list) = http_post(cluster.members[0].addr(), "/v3/cluster/member/list", "{}").unwrap();
    assert_eq!(list.matches("\"name\":\"limiter-member-").count(), 3, "{list}");
    assert_eq!(cluster.url().matches("127.0.0.1").count(), 3);
    assert_eq!(put(0, "one").unwrap().0, 200);
    assert!(got(1, "one") && got(2, "one"));

    cluster.members[0].kill().unwrap();
    let begun = Instant::now();
    eventually("the other two go on", || put(1, "two").is_ok_and(|(status, _)| status == 200));
    println!("etcd went on after {:?}", begun.elapsed());
    assert!(got(2, "two"));
    cluster.members[0].restart().unwrap();
    assert!(got(0, "two"));
}
