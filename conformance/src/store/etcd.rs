//! How an etcd member is set up, and known to be ours.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use super::local::{Site, words};
use super::wire::{http_get, http_post};
use super::{Launch, Role};

/// A lone member elects itself; nothing is gained by waiting a second for it.
const ALONE: [&str; 2] = ["--heartbeat-interval=10", "--election-timeout=100"];
/// Three members on a busy machine: late heartbeats must not look like a dead leader.
const TOGETHER: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];

/// An option of the launcher's own, not of etcd: the port of 127.0.0.1 where clients speak TLS.
const TLS_PORT: &str = "tls-port";

/// The server's arguments.
pub(super) fn prepare(launch: &Launch, site: &Site<'_>) -> Vec<OsString> {
    let client = format!("http://127.0.0.1:{}", site.port());
    let peer = format!("http://127.0.0.1:{}", site.ports.get(1).copied().unwrap_or(0));
    let (name, all, pace) = if let Role::Member { name, all, .. } = &launch.role {
        (name.clone(), all.clone(), TOGETHER)
    } else {
        let name = own_name(site.dir);
        let all = format!("{name}={peer}");
        (name, all, ALONE)
    };
    let mut args = vec![OsString::from("--data-dir"), site.dir.join("data").into()];
    args.extend(words(["--name", &name, "--logger", "zap"]));
    // A second address for TLS, as Redis has: the launcher itself, which knows no TLS, asks at the first.
    let tls = launch.options.iter().find(|(name, _)| name == TLS_PORT);
    let listen = tls.map_or_else(|| client.clone(), |(_, port)| format!("{client},https://127.0.0.1:{port}"));
    args.extend(words(["--listen-client-urls", &listen, "--advertise-client-urls", &client]));
    args.extend(words(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]));
    args.extend(words(["--initial-cluster", &all, "--initial-cluster-token", &all]));
    args.extend(words(pace));
    let options = launch.options.iter().filter(|(name, _)| name != TLS_PORT);
    args.extend(options.map(|(name, value)| format!("--{name}={value}").into()));
    args
}

/// Whether the server at `addr` has a leader, and is the one of this directory.
pub(super) fn answers(addr: SocketAddr, dir: &Path) -> bool {
    let healthy = |(status, body): (u16, String)| status == 200 && body.contains("\"true\"");
    let ours = |(_, body): (u16, String)| {
        // A cluster's members have given names; a stranger has none of either kind.
        body.contains(&own_name(dir)) || body.contains("\"limiter-member-")
    };
    http_get(addr, "/health").is_ok_and(healthy) && http_post(addr, "/v3/cluster/member/list", "{}").is_ok_and(ours)
}

/// A lone member is called like its directory, which no other server is.
fn own_name(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
