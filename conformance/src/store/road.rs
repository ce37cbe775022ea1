//! Which road a store comes by.

use std::env;
use std::fmt;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{Kind, Launch, Local, Role, Server, Store, StoreError, local};

/// How long a store named by the environment may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// A way to come by a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Road {
    /// A URL in the environment.
    Env,
    /// A server binary of this machine.
    Local,
    /// A container.
    Docker,
}

impl fmt::Display for Road {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Env => "env",
            Self::Local => "local",
            Self::Docker => "docker",
        })
    }
}

/// The words of `LIMITER_STORES`.
impl FromStr for Road {
    type Err = StoreError;

    fn from_str(word: &str) -> Result<Self, StoreError> {
        match word {
            "env" => Ok(Self::Env),
            "local" => Ok(Self::Local),
            "docker" => Ok(Self::Docker),
            _ => Err(StoreError::UnknownRoad { value: word.to_owned() }),
        }
    }
}

/// Takes the forced road, or the first that is open.
pub(super) fn take(launch: &Launch) -> Result<Store, StoreError> {
    if !matches!(launch.role, Role::Alone) {
        let program = local_program(launch.kind)?;
        return Local::start(launch, &program).map(|local| Store::local(launch.kind, local));
    }
    match forced(launch)? {
        Some(Road::Env) => from_env(launch),
        Some(Road::Local) => match local::find(launch.kind) {
            Ok(program) => Local::start(launch, &program).map(|local| Store::local(launch.kind, local)),
            Err(why) => Err(closed(launch.kind, Road::Local, why)),
        },
        Some(Road::Docker) => from_docker(launch),
        None => first_open(launch),
    }
}

/// The road that this launch or the environment forces.
fn forced(launch: &Launch) -> Result<Option<Road>, StoreError> {
    match (launch.road, variable("LIMITER_STORES")) {
        (Some(road), _) => Ok(Some(road)),
        (None, Some(word)) => word.parse().map(Some),
        (None, None) => Ok(None),
    }
}

/// The binary for a topology, which can be had by the local road only.
pub(super) fn local_program(kind: Kind) -> Result<PathBuf, StoreError> {
    match forced(&Launch::new(kind))? {
        None | Some(Road::Local) => local::find(kind).map_err(|why| StoreError::Unavailable {
            kind,
            tried: format!("several servers that work together need local binaries, and there is {why}"),
        }),
        Some(road) => {
            let why = "several servers that work together need the road `local`".to_owned();
            Err(closed(kind, road, why))
        }
    }
}

fn first_open(launch: &Launch) -> Result<Store, StoreError> {
    let kind = launch.kind;
    let by_env = if launch.own {
        "the test needs a server of its own, which a URL cannot be".to_owned()
    } else if variable(kind.url_variable()).is_some() {
        return from_env(launch);
    } else {
        format!("{} is not set", kind.url_variable())
    };
    let by_binary = match local::find(kind) {
        Ok(program) => {
            return Local::start(launch, &program).map(|local| Store::local(kind, local));
        }
        Err(why) => why,
    };
    from_docker(launch)
        .map_err(|error| StoreError::Unavailable { kind, tried: format!("{by_env}; {by_binary}; {error}") })
}

fn from_env(launch: &Launch) -> Result<Store, StoreError> {
    let kind = launch.kind;
    let name = kind.url_variable();
    let fail = |why: String| closed(kind, Road::Env, why);
    if launch.own {
        let why = "the test starts, stops or configures a server of its own; run it without LIMITER_STORES=env";
        return Err(fail(why.to_owned()));
    }
    let url = variable(name).ok_or_else(|| fail(format!("{name} is not set")))?;
    let authority = authority(&url, kind.usual_port());
    let (host, port) = authority.ok_or_else(|| fail(format!("{name} names no host")))?;
    let addr = reach(&host, port).map_err(|why| fail(format!("{name} names {host}:{port}, and {why}")))?;
    Ok(Store { kind, road: Road::Env, url, addr, server: Server::Foreign })
}

#[cfg(feature = "containers")]
fn from_docker(launch: &Launch) -> Result<Store, StoreError> {
    let container = super::container::Container::start(launch)?;
    let addr = container.addr();
    Ok(Store {
        kind: launch.kind,
        road: Road::Docker,
        url: launch.kind.url(addr),
        addr,
        server: Server::Container(std::sync::Mutex::new(container)),
    })
}

#[cfg(not(feature = "containers"))]
fn from_docker(launch: &Launch) -> Result<Store, StoreError> {
    let why = "this was built without the feature `limiter-conformance/containers`".to_owned();
    Err(closed(launch.kind, Road::Docker, why))
}

pub(super) fn closed(kind: Kind, road: Road, why: String) -> StoreError {
    StoreError::Closed { kind, road, why }
}

/// A variable's value; an empty one counts as unset. Bytes that are no text become U+FFFD, and are
/// refused by whoever reads the value.
pub(super) fn variable(name: &str) -> Option<String> {
    let value = env::var_os(name)?.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

/// The first address of a host that accepts a connection.
fn reach(host: &str, port: u16) -> Result<SocketAddr, String> {
    let mut last = "the name has no address".to_owned();
    for addr in (host, port).to_socket_addrs().map_err(|error| error.to_string())? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(_) => return Ok(addr),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// Host and port of a URL, of its first one if a list of hosts is given.
fn authority(url: &str, usual_port: u16) -> Option<(String, u16)> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    // A password may hold an `@` that somebody forgot to escape; the host is behind the last one.
    let hosts = authority.rsplit('@').next()?;
    let first = hosts.split(',').next()?;
    let (host, port) = match first.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']')?;
            (host, rest.strip_prefix(':'))
        }
        None => first.split_once(':').map_or((first, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(digits) => digits.parse().ok()?,
        None => usual_port,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host() {
        for (url, host, port) in [
            ("redis://localhost", "localhost", 6379),
            ("redis://u:p@ss@h.example:7000/1?x=y", "h.example", 7000),
            ("rediss://[::1]:7/0", "::1", 7),
            ("redis://[::1]", "::1", 6379),
            ("a:1,b:2", "a", 1),
            ("etcd://a:1,b:2/", "a", 1),
            ("h", "h", 6379),
        ] {
            assert_eq!(authority(url, 6379), Some((host.to_owned(), port)), "{url}");
        }
        for url in ["redis://", "redis:///0", "redis://h:port", "redis://h:70000", "redis://[::1"] {
            assert_eq!(authority(url, 6379), None, "{url}");
        }
    }

    #[test]
    fn a_road_has_a_name() {
        for road in [Road::Env, Road::Local, Road::Docker] {
            assert_eq!(road.to_string().parse::<Road>().unwrap(), road);
        }
        assert!("Docker".parse::<Road>().unwrap_err().to_string().contains("`Docker`"));
    }
}
