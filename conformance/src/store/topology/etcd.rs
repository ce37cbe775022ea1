//! An etcd cluster of three.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::store::local::{self, Local};
use crate::store::road::local_program;
use crate::store::wire::http_get;
use crate::store::{Kind, Launch, Role, Store, StoreError, port};

/// How often other ports are tried when somebody was quicker.
const DRAWS: u32 = 4;
const SIZE: usize = 3;

/// Three etcd members; any two of them go on without the third.
#[derive(Debug)]
pub struct EtcdCluster {
    /// The members. Which of them leads is theirs to decide.
    pub members: Vec<Store>,
}

impl EtcdCluster {
    /// Starts the three and waits until each answers with a leader elected.
    ///
    /// # Errors
    ///
    /// As [`start`](crate::store::start).
    pub fn start() -> Result<Self, StoreError> {
        Self::start_with(&[])
    }

    /// The same, each member with these flags, such as `("election-timeout", "1000")`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(options: &[(&str, &str)]) -> Result<Self, StoreError> {
        let program = local_program(Kind::Etcd)?;
        let mut draw = 1;
        loop {
            match begin(options, &program) {
                Err(StoreError::NotStarted { log, .. }) if local::taken(&log) && draw < DRAWS => {
                    draw += 1;
                }
                result => return result,
            }
        }
    }

    /// The members' addresses.
    #[must_use]
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.members.iter().map(Store::addr).collect()
    }

    /// One URL with all members: `etcd://host:port,host:port,host:port`.
    #[must_use]
    pub fn url(&self) -> String {
        let addrs: Vec<String> = self.addrs().iter().map(SocketAddr::to_string).collect();
        format!("etcd://{}", addrs.join(","))
    }
}

/// Starts the members one by one, then waits for all.
fn begin(options: &[(&str, &str)], program: &Path) -> Result<EtcdCluster, StoreError> {
    // All ports are in every member's arguments, so they are drawn before, all together.
    let mut members = Vec::new();
    for (launch, peer) in launches(options)? {
        let mut member = Local::begin(&launch, program)?;
        // A new member asks the others whether the cluster exists already. One that listens but
        // does not serve yet makes it wait for a second; one that is not there, or serves, does not.
        member.wait_until(|_, _| http_get(peer, "/members").is_ok())?;
        members.push(member);
    }
    members.iter_mut().try_for_each(Local::wait)?;
    let members = members.into_iter().map(|local| Store::local(Kind::Etcd, local));
    Ok(EtcdCluster { members: members.collect() })
}

/// One launch per member, with its peer address; each knows the names and peer ports of all.
fn launches(options: &[(&str, &str)]) -> Result<Vec<(Launch, SocketAddr)>, StoreError> {
    let ports = port::several(2 * SIZE).map_err(StoreError::io("find free ports"))?;
    let (pairs, _) = ports.as_chunks::<2>();
    let name = |i: usize| format!("limiter-member-{i}");
    let peers = pairs.iter().enumerate().map(|(i, [_, peer])| format!("{}=http://127.0.0.1:{peer}", name(i)));
    let all = peers.collect::<Vec<_>>().join(",");
    let launch = |(i, ports): (usize, &[u16; 2])| {
        let (all, ports, name) = (all.clone(), *ports, name(i));
        let [_, peer] = ports;
        let launch = Launch::new(Kind::Etcd).role(Role::Member { name, ports, all });
        let launch = options.iter().fold(launch, |launch, (name, value)| launch.option(*name, *value));
        (launch, SocketAddr::from((Ipv4Addr::LOCALHOST, peer)))
    };
    Ok(pairs.iter().enumerate().map(launch).collect())
}
