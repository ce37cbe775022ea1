//! Redis with a replica, as a cluster, and watched by sentinels.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::{local, together, until};
use crate::store::wire::{Reply, Resp};
use crate::store::{Kind, Role, Store, StoreError};

/// Slots of a Redis Cluster.
const SLOTS: u16 = 16_384;
/// Within which nodes of a cluster on one machine read what was sent to them.
const SETTLED: Duration = Duration::from_millis(500);

/// A primary and a replica that follows it.
#[derive(Debug)]
pub struct RedisPair {
    /// Takes writes.
    pub primary: Store,
    /// Follows the primary; refuses writes.
    pub replica: Store,
}

impl RedisPair {
    /// Starts both and waits until the replica follows.
    ///
    /// # Errors
    ///
    /// As [`start`](crate::store::start); [`StoreError::Answer`] if the replica does not follow.
    pub fn start() -> Result<Self, StoreError> {
        let primary = local(Kind::Redis)?.start()?;
        let replica = Self::replica_of(primary.addr())?;
        Ok(Self { primary, replica })
    }

    /// Starts one more replica of the server at `addr`: of a primary, or of a
    /// [fault proxy](crate::proxy) in front of one, which makes the replication slow or breaks it.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn replica_of(addr: SocketAddr) -> Result<Store, StoreError> {
        let of = format!("{} {}", addr.ip(), addr.port());
        let replica = local(Kind::Redis)?.option("replicaof", of).start()?;
        // A message leaves nothing behind, and goes to replicas as a write does.
        until_streaming(addr, replica.addr(), &["PUBLISH", "limiter", "is it streaming?"])?;
        Ok(replica)
    }
}

/// A Redis Cluster of three primaries, each with one replica.
#[derive(Debug)]
pub struct RedisCluster {
    /// First the three primaries, in the order of their slots, then their replicas, likewise.
    pub nodes: Vec<Store>,
}

impl RedisCluster {
    /// How many of the nodes are primaries at first.
    pub const PRIMARIES: usize = 3;

    /// Starts the six nodes, and waits until each of them knows all and serves its slots.
    ///
    /// # Errors
    ///
    /// As [`start`](crate::store::start); [`StoreError::Answer`] if they do not find together.
    pub fn start() -> Result<Self, StoreError> {
        Self::start_with(&[])
    }

    /// The same, each node with these options, such as `("cluster-node-timeout", "2000")` (ms: how
    /// long a node is silent before its replica takes over; 2000 if not given).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(options: &[(&str, &str)]) -> Result<Self, StoreError> {
        let launch = local(Kind::Redis)?.role(Role::ClusterNode).option("cluster-node-timeout", "2000");
        let launch = options.iter().fold(launch, |launch, (name, value)| launch.option(*name, *value));
        let nodes = together(vec![launch; 2 * Self::PRIMARIES])?;
        let (primaries, replicas) = nodes.split_at(Self::PRIMARIES);
        share_slots(primaries)?;
        let Some(first) = nodes.first() else {
            return Ok(Self { nodes });
        };
        for node in nodes.iter().skip(1) {
            // By three numbers: the bus has a port of its own.
            let [ip, port, bus] = meeting_point(first)?;
            command(node, &["CLUSTER", "MEET", &ip, &port, &bus])?;
        }
        for node in &nodes {
            until(
                "whether a Redis Cluster node knows all others",
                "cluster_known_nodes:6",
                || ask(node.addr(), &["CLUSTER", "INFO"]),
                |info| info.text().contains("cluster_known_nodes:6"),
            )?;
        }
        for (primary, replica) in primaries.iter().zip(replicas) {
            let id = ask(primary.addr(), &["CLUSTER", "MYID"]).map_err(StoreError::io("ask a cluster node its id"))?;
            until(
                "to make a cluster node a replica",
                "OK",
                || ask(replica.addr(), &["CLUSTER", "REPLICATE", id.text()]),
                |reply| reply.text() == "OK",
            )?;
        }
        for node in &nodes {
            until(
                "whether a Redis Cluster node serves",
                "cluster_state:ok, six healthy nodes in CLUSTER SHARDS",
                || Ok((ask(node.addr(), &["CLUSTER", "INFO"])?, ask(node.addr(), &["CLUSTER", "NODES"])?)),
                |(info, list)| info.text().contains("cluster_state:ok") && settled(list),
            )?;
        }
        for (primary, replica) in primaries.iter().zip(replicas) {
            // In a cluster messages go another way; there is nothing to flush yet.
            until_streaming(primary.addr(), replica.addr(), &["FLUSHALL"])?;
        }
        Ok(Self { nodes })
    }

    /// The cluster's URL: `redis-cluster://` with all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// Lets the nodes tell their clients, and each other, other ports for themselves: those of [fault proxies](crate::proxy) before
    /// them. Returns when each of these nodes knows of all.
    ///
    /// # Errors
    ///
    /// [`StoreError::Answer`] if they do not take it.
    pub fn announce(ports: &[(SocketAddr, u16)]) -> Result<(), StoreError> {
        for (node, port) in ports {
            let words = ["CONFIG", "SET", "cluster-announce-port", &port.to_string()];
            let reply = ask(*node, &words).map_err(StoreError::io("have a cluster node announce a port"))?;
            if reply.text() != "OK" {
                let (what, got) = (words.join(" "), format!("{reply:?}"));
                return Err(StoreError::Answer { what, expected: "OK".to_owned(), got });
            }
        }
        // A message that was on its way before the change brings an old port back until the next one, so all of them have to have it
        // twice, with time between for what was on its way.
        for pause in [SETTLED, Duration::ZERO] {
            for (node, _) in ports {
                until(
                    "whether a Redis Cluster node knows where the others are announced",
                    "all announced ports in CLUSTER NODES",
                    || ask(*node, &["CLUSTER", "NODES"]),
                    |list| ports.iter().all(|(_, port)| list.text().contains(&format!(":{port}@"))),
                )?;
            }
            thread::sleep(pause);
        }
        Ok(())
    }

    /// The URLs of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<&str> {
        self.nodes.iter().map(Store::url).collect()
    }
}

/// Gives each primary its part of the slots, and an epoch of its own so that no two ever quarrel.
fn share_slots(primaries: &[Store]) -> Result<(), StoreError> {
    let shares = u16::try_from(primaries.len()).unwrap_or(1).max(1);
    for (i, node) in (0..shares).zip(primaries) {
        let bound = |i: u16| u32::from(i) * u32::from(SLOTS) / u32::from(shares);
        let (from, to) = (bound(i).to_string(), (bound(i + 1) - 1).to_string());
        command(node, &["CLUSTER", "ADDSLOTSRANGE", &from, &to])?;
        command(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()])?;
    }
    Ok(())
}

/// Address, port and bus port of a node, from its own configuration.
fn meeting_point(node: &Store) -> Result<[String; 3], StoreError> {
    let addr = node.addr();
    let bus = ask(addr, &["CONFIG", "GET", "cluster-port"]).map_err(StoreError::io("ask a cluster node its port"))?;
    let bus = bus.list().get(1).map(Reply::text).unwrap_or_default().to_owned();
    Ok([addr.ip().to_string(), addr.port().to_string(), bus])
}

/// Whether a node's list shows three primaries and three replicas, all connected and none in doubt.
fn settled(list: &Reply) -> bool {
    let lines = || list.text().lines();
    let with = |role: &str| {
        let flags = |line: &str| line.split(' ').nth(2).unwrap_or_default().to_owned();
        lines().filter(|line| flags(line).split(',').any(|flag| flag == role)).count()
    };
    let sound =
        lines().all(|line| line.contains(" connected") && !line.contains("fail") && !line.contains("handshake"));
    sound && with("master") == RedisCluster::PRIMARIES && with("slave") == RedisCluster::PRIMARIES
}

/// A primary and a replica, watched by three sentinels that promote the replica when two of them
/// miss the primary for a second.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The pair; after a failover their parts are changed.
    pub pair: RedisPair,
    /// The three sentinels: [`Store::addr`] of each is where to ask for the primary.
    pub sentinels: Vec<Store>,
}

impl RedisSentinel {
    /// The name by which the sentinels know the primary.
    pub const NAME: &str = "limiter";

    /// Starts all five and waits until each sentinel knows the replica and the other sentinels.
    ///
    /// # Errors
    ///
    /// As [`start`](crate::store::start); [`StoreError::Answer`] if they do not find together.
    pub fn start() -> Result<Self, StoreError> {
        let pair = RedisPair::start()?;
        let (ip, port, name) = (pair.primary.addr().ip(), pair.primary.addr().port(), Self::NAME);
        let lines = format!(
            "sentinel monitor {name} {ip} {port} 2\n\
             sentinel down-after-milliseconds {name} 1000\n\
             sentinel failover-timeout {name} 5000\n"
        );
        let launch = local(Kind::Redis)?.role(Role::Sentinel(lines));
        let sentinels = together(vec![launch; 3])?;
        for sentinel in &sentinels {
            until(
                "whether a sentinel knows the set",
                "num-slaves 1, num-other-sentinels 2",
                || ask(sentinel.addr(), &["SENTINEL", "MASTER", name]),
                |facts| fact(facts, "num-slaves") == "1" && fact(facts, "num-other-sentinels") == "2",
            )?;
        }
        Ok(Self { pair, sentinels })
    }

    /// The set's URL: `redis-sentinel://` with all sentinels, and the name of the primary.
    #[must_use]
    pub fn url(&self) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(|sentinel| sentinel.addr().to_string()).collect();
        format!("redis-sentinel://{}/?service={}", sentinels.join(","), Self::NAME)
    }

    /// Where the primary is, by the first sentinel that answers.
    ///
    /// # Errors
    ///
    /// `NotFound` if no sentinel knows.
    pub fn primary(&self) -> io::Result<SocketAddr> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME];
        let answers = self.sentinels.iter().filter_map(|sentinel| ask(sentinel.addr(), &words).ok());
        let mut addrs = answers.filter_map(|answer| match answer.list() {
            [ip, port] => Some(SocketAddr::new(ip.text().parse().ok()?, port.text().parse().ok()?)),
            _ => None,
        });
        addrs.next().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Waits until a replica has received what `nudge` made its primary send.
///
/// "Link up" is too early: the replica says so when it has loaded the copy, and its primary starts
/// to send writes only when it has seen that. Meanwhile even `WAIT` counts a replica that has nothing.
fn until_streaming(primary: SocketAddr, replica: SocketAddr, nudge: &[&str]) -> Result<(), StoreError> {
    let replication = |addr| move || ask(addr, &["INFO", "replication"]);
    let what = "whether a Redis replica follows its primary";
    until(what, "master_link_status:up", replication(replica), |info| field(info, "master_link_status") == Some("up"))?;
    ask(primary, nudge).map_err(StoreError::io("have a Redis primary send something"))?;
    let info = replication(primary)().map_err(StoreError::io("ask a Redis primary its offset"))?;
    let sent = offset(&info, "master_repl_offset");
    until(what, "slave_repl_offset as far as the primary's master_repl_offset", replication(replica), |info| {
        sent.is_some() && offset(info, "slave_repl_offset") >= sent
    })?;
    Ok(())
}

/// A field of an INFO reply.
fn field<'a>(info: &'a Reply, name: &str) -> Option<&'a str> {
    info.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn offset(info: &Reply, name: &str) -> Option<u64> {
    field(info, name)?.parse().ok()
}

/// The value behind a name in a flat list of names and values.
fn fact<'a>(facts: &'a Reply, name: &str) -> &'a str {
    let mut pairs = facts.list().chunks_exact(2);
    let pair = pairs.find(|pair| pair.first().is_some_and(|reply| reply.text() == name));
    pair.and_then(<[Reply]>::last).map(Reply::text).unwrap_or_default()
}

fn ask(addr: SocketAddr, words: &[&str]) -> io::Result<Reply> {
    Resp::connect(addr)?.call(words)
}

/// Runs a command that must be answered with OK.
fn command(node: &Store, words: &[&str]) -> Result<(), StoreError> {
    let what = words.join(" ");
    let reply = ask(node.addr(), words).map_err(StoreError::io(what.clone()))?;
    if reply.text() == "OK" {
        return Ok(());
    }
    Err(StoreError::Answer { what, expected: "OK".to_owned(), got: format!("{reply:?}") })
}
