//! The URLs of stores that are more than one server, read once for all drivers.

use std::fmt;

/// Where several servers are that work together, and as whom to ask them. Its `Debug` output shows no user, password or host.
///
/// ```
/// use limiter_core::script::{Address, Together};
///
/// let url = "rediss-sentinel://limiter:p%40ss@a:26379,b/2?service=main&sentinelPassword=other";
/// let address = Address::of_url(url).ok_or("another scheme")??;
/// assert!(address.tls);
/// assert_eq!(address.hosts, [("a".to_owned(), 26_379), ("b".to_owned(), 26_379)]);
/// assert_eq!((address.password.as_deref(), address.database), (Some("p@ss"), 2));
/// assert!(matches!(&address.together, Together::Sentinel { service, .. } if service == "main"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address {
    /// Whether to speak TLS, to all of them.
    pub tls: bool,
    /// Those to ask first, at least one, each with its port.
    pub hosts: Vec<(String, u16)>,
    /// The user of the servers that hold keys; none: the default one.
    pub user: Option<String>,
    /// That user's password.
    pub password: Option<String>,
    /// The number of the database. 0 in a cluster.
    pub database: u8,
    /// Whether the servers are asked by RESP2 (`?protocol=resp2`).
    pub resp2: bool,
    /// How they work together.
    pub together: Together,
}

/// How servers work together.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Together {
    /// As a Redis Cluster: each holds some of the slots.
    Cluster,
    /// One at a time holds everything, and sentinels (the hosts) know which.
    Sentinel {
        /// The name by which the sentinels know it.
        service: String,
        /// The user of the sentinels themselves.
        user: Option<String>,
        /// That user's password.
        password: Option<String>,
    },
}

/// The schemes, whether each means TLS, and whether it means sentinels.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("redis-cluster://", false, false),
    ("rediss-cluster://", true, false),
    ("redis-sentinel://", false, true),
    ("rediss-sentinel://", true, true),
];

const CLUSTER_FORM: &str = "the URL is not of the form redis-cluster://[user][:password@]host[:port][,host[:port]…]";
const SENTINEL_FORM: &str = "the URL is not of the form \
     redis-sentinel://[user][:password@]host[:port][,host[:port]…]/[database]?service=NAME[&sentinelPassword=…]";

impl Address {
    /// Reads a URL whose scheme is `redis-cluster`, `redis-sentinel`, or one of these with `rediss` for TLS; None if it is another.
    ///
    /// Hosts are parted by commas; more may follow as `node=host:port`. Of sentinels, `service` (or `sentinelServiceName`) names the
    /// primary, and `sentinelUsername` and `sentinelPassword` are for the sentinels themselves. Special characters of
    /// a user, a password and a name are percent-encoded.
    ///
    /// # Errors
    /// What is wrong with the URL, which is not repeated.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Result<Self, &'static str>> {
        let of = |(scheme, tls, sentinel): &(&str, bool, bool)| Some((url.strip_prefix(scheme)?, *tls, *sentinel));
        let (rest, tls, sentinel) = SCHEMES.iter().find_map(of)?;
        Some(Self::read(rest, tls, sentinel))
    }

    fn read(rest: &str, tls: bool, sentinel: bool) -> Result<Self, &'static str> {
        let (form, port) = if sentinel { (SENTINEL_FORM, 26_379) } else { (CLUSTER_FORM, 6_379) };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = who.split_once(':').map_or((who, None), |(user, password)| (user, Some(password)));
        let mut address = Self {
            tls,
            hosts: hosts.split(',').map(|host| endpoint(host, port)).collect::<Option<_>>().ok_or(form)?,
            user: Some(decoded(user).ok_or(form)?).filter(|user| !user.is_empty()),
            password: password.map(|password| decoded(password).ok_or(form)).transpose()?,
            database: if path.is_empty() { 0 } else { path.parse().map_err(|_| form)? },
            resp2: false,
            together: Together::Cluster,
        };
        let (mut service, mut asks_as, mut asks_with) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(form)?;
            let value = decoded(value).ok_or(form)?;
            match name {
                "node" => address.hosts.push(endpoint(&value, port).ok_or(form)?),
                "protocol" => address.resp2 = matches!(&*value, "resp2" | "2"),
                "service" | "sentinelServiceName" if sentinel => service = Some(value).filter(|name| !name.is_empty()),
                "sentinelUsername" if sentinel => asks_as = Some(value),
                "sentinelPassword" if sentinel => asks_with = Some(value),
                _ => return Err("the URL has a parameter that is not known"),
            }
        }
        if sentinel {
            let service = service.ok_or("the URL does not name the sentinels' service: ?service=NAME")?;
            address.together = Together::Sentinel { service, user: asks_as, password: asks_with };
        } else if address.database != 0 {
            return Err("a cluster has no database but 0");
        }
        Ok(address)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("tls", &self.tls)
            .field("hosts", &self.hosts.len())
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "Cluster",
            Self::Sentinel { .. } => "Sentinel",
        })
    }
}

/// `host`, `host:port` or `[v6]:port`.
fn endpoint(text: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(usual), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// A part of a URL without its percent signs.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut nibble = || u8::try_from(char::from(rest.next()?).to_digit(16)?).ok();
        bytes.push(nibble()? << 4 | nibble()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let read = |url: &str| Address::of_url(url).unwrap().unwrap();
        let cluster = read("redis-cluster://:p%3a%40%2F@[::1]:7,h,x:9/0?node=y:1&protocol=resp2");
        let hosts = [("::1", 7), ("h", 6_379), ("x", 9), ("y", 1)].map(|(host, port)| (host.to_owned(), port));
        assert_eq!((cluster.tls, cluster.hosts, cluster.resp2), (false, hosts.to_vec(), true));
        assert_eq!((cluster.user, cluster.password.as_deref()), (None, Some("p:@/")));
        assert_eq!(cluster.together, Together::Cluster);
        // As fred spells it.
        let sentinel = read(
            "rediss-sentinel://u:p@h:1/3?node=h:2&sentinelServiceName=main&sentinelUsername=su&sentinelPassword=s%25p",
        );
        assert_eq!((sentinel.tls, sentinel.hosts.len(), sentinel.database), (true, 2, 3));
        let (service, user, password) = ("main".to_owned(), Some("su".to_owned()), Some("s%p".to_owned()));
        assert_eq!(sentinel.together, Together::Sentinel { service, user, password });
        assert_eq!((sentinel.user.as_deref(), sentinel.password.as_deref()), (Some("u"), Some("p")));
    }

    #[test]
    fn what_cannot_be_read_is_told_without_the_url() {
        assert!(Address::of_url("redis://h").is_none() && Address::of_url("redis-cluster:h").is_none());
        for url in [
            "redis-cluster://",
            "redis-cluster://:marker@",
            "redis-cluster://h:marker",
            "redis-cluster://h:70000",
            "redis-cluster://marker:%GG@h",
            "redis-cluster://:marker%ff@h",
            "redis-cluster://h,,i",
            "redis-cluster://h/1",
            "redis-cluster://h/marker",
            "redis-cluster://h?service=marker",
            "redis-cluster://h?marker",
            "redis-sentinel://h",
            "redis-sentinel://h?service=",
            "redis-sentinel://h/256?service=marker",
            "redis-sentinel://h?service=x&Service=marker",
            "redis-sentinel://[::1?service=marker",
            "redis-sentinel://[::1]x?service=marker",
        ] {
            let error = Address::of_url(url).unwrap().unwrap_err();
            assert!(!error.is_empty() && !error.contains("marker"), "{url}: {error}");
        }
        let address = Address::of_url("redis-sentinel://marker:marker@marker/?service=marker&sentinelPassword=marker");
        assert!(!format!("{address:?} {:?}", address.clone().unwrap().unwrap().together).contains("marker"));
    }
}
