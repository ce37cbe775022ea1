//! What the script asks of a server, judged from the server's own words. Both driver crates use it.

/// What a server says of itself in `INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Its version, as Redis counts them (Valkey tells the one that it is compatible with). Empty if it does not say.
    pub version: String,
    /// What it does when its memory is full, by the name in its configuration. Empty if it does not say.
    pub eviction: String,
    /// Whether it is a replica, which can't be written to.
    pub replica: bool,
    /// Whether it is a node of a cluster, which holds only some of the keys.
    pub cluster: bool,
}

impl Server {
    /// Reads the sections `server`, `memory` and `replication` of `INFO`.
    #[must_use]
    pub fn of_info(info: &str) -> Self {
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or_default().trim().to_owned()
        };
        Self {
            version: field("redis_version"),
            eviction: field("maxmemory_policy"),
            replica: field("role") == "slave",
            cluster: field("redis_mode") == "cluster",
        }
    }

    /// Why a limiter can't work with it, if it can't.
    #[must_use]
    pub fn unfit(&self) -> Option<&'static str> {
        if self.replica {
            return Some("the server is a replica, which can't be written to");
        }
        if self.cluster {
            return Some("the server is a node of a cluster: the URL has to begin with redis-cluster://");
        }
        self.too_old()
    }

    /// The same of a node of a cluster. A replica among them says so itself, and where its primary is.
    #[must_use]
    pub fn unfit_node(&self) -> Option<&'static str> {
        // One that tells nothing of itself is taken at the URL's word.
        if !self.cluster && !self.version.is_empty() {
            return Some("the server is not a node of a cluster");
        }
        self.too_old()
    }

    fn too_old(&self) -> Option<&'static str> {
        let major = self.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        // Before 5 a script may not write once it has read the time.
        major.filter(|major| *major < 6).map(|_| "the server is older than Redis 6")
    }

    /// What its operator should know, if anything.
    #[must_use]
    pub fn warning(&self) -> Option<&'static str> {
        match &*self.eviction {
            "noeviction" => None,
            "" => {
                Some("the server does not tell its maxmemory-policy: with any but noeviction, limits may be forgotten")
            }
            _ => Some(
                "the server may evict live keys (maxmemory-policy is not noeviction): each that goes starts its limit anew",
            ),
        }
    }
}

/// What it means that the server answered with an error whose first word is `code`: never the server's own text, which may
/// hold anything.
#[must_use]
pub fn refusal(code: &str) -> &'static str {
    match code {
        "OOM" => "the server is out of memory",
        "READONLY" => "the server is a read-only replica",
        "NOREPLICAS" => "the server has too few replicas to be written to",
        "NOAUTH" => "the server asks for a password",
        "WRONGPASS" => "the server refused the user or the password",
        "NOPERM" => "the user may not run scripts, or not at these keys",
        "LOADING" => "the server is loading its data",
        "BUSY" => "the server is busy with a script",
        "MASTERDOWN" => "the server has lost its primary",
        "MISCONF" => "the server can't save its data, and refuses to be written to",
        "WRONGTYPE" => "a key holds something else than a limit's state",
        "CLUSTERDOWN" => "the cluster is down, or a part of it",
        "TRYAGAIN" => "the keys are being moved to another node",
        "MOVED" | "ASK" | "CROSSSLOT" => "the keys are at another node of the cluster",
        _ => "the server answered with an error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\r\n# Memory\r\n\
                        maxmemory_policy:noeviction\r\n\r\n# Replication\r\nrole:master\r\n";

    #[test]
    fn a_server_is_judged_by_what_it_says() {
        let fit = Server::of_info(INFO);
        assert_eq!((&*fit.version, fit.unfit(), fit.warning()), ("7.0.15", None, None));
        let judge = |from: &str, to: &str| Server::of_info(&INFO.replace(from, to));
        assert!(judge("role:master", "role:slave").unfit().is_some_and(|why| why.contains("replica")));
        assert!(judge("standalone", "cluster").unfit().is_some_and(|why| why.contains("cluster")));
        assert!(judge("standalone", "cluster").unfit_node().is_none());
        assert!(fit.unfit_node().is_some_and(|why| why.contains("not a node")));
        assert!(judge("7.0.15", "5.0.14").unfit().is_some());
        assert_eq!(judge("7.0.15", "10.1").unfit(), None);
        assert!(judge("noeviction", "allkeys-lru").warning().is_some_and(|why| why.contains("evict")));
        // A server that may not tell is taken as it is, with a word to its operator.
        let mute = Server::of_info("");
        assert!(mute.unfit().is_none() && mute.unfit_node().is_none() && mute.warning().is_some());
    }
}
