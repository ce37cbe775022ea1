//! How a Redis server is set up, and known to be ours.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;

use super::local::{Site, words};
use super::wire::Resp;
use super::{Launch, Role, StoreError};

/// The server's arguments; for a sentinel its file too, which it rewrites.
pub(super) fn prepare(launch: &Launch, site: &Site<'_>) -> Result<Vec<OsString>, StoreError> {
    let mut args = Vec::new();
    if let Role::Sentinel(lines) = &launch.role {
        let file = site.dir.join("sentinel.conf");
        fs::write(&file, lines).map_err(StoreError::io("write a sentinel's file"))?;
        args.push(file.into());
        args.push("--sentinel".into());
    }
    args.extend(words(["--bind", "127.0.0.1", "--port", &site.port().to_string(), "--dir"]));
    args.push(site.dir.into());
    if !matches!(launch.role, Role::Sentinel(_)) {
        args.extend(words(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]));
    }
    if let (Role::ClusterNode, [_, bus]) = (&launch.role, site.ports) {
        args.extend(words(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]));
    }
    args.extend(options(&launch.options));
    Ok(args)
}

/// Directives as arguments; a value of several words is several arguments.
pub(super) fn options(options: &[(String, String)]) -> impl Iterator<Item = OsString> + '_ {
    options.iter().flat_map(|(name, value)| {
        let mut args = vec![format!("--{name}")];
        args.extend(value.split_whitespace().map(str::to_owned));
        if args.len() == 1 {
            args.push(String::new());
        }
        args.into_iter().map(OsString::from)
    })
}

/// Whether the server at `addr` is the process `pid`, and done loading.
pub(super) fn answers(addr: SocketAddr, pid: u32) -> bool {
    let info = || {
        let mut resp = Resp::connect(addr)?;
        let pong = resp.call(&["PING"])?.text() == "PONG";
        Ok::<_, std::io::Error>((pong, resp.call(&["INFO", "server"])?))
    };
    let pid = format!("process_id:{pid}");
    matches!(info(), Ok((true, info)) if info.text().lines().any(|line| line == pid))
}
