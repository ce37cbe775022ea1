//! A loopback port that is free and stays so while its server is down.
//!
//! A port that the kernel hands out for "port 0" lies in the range from which it also takes the
//! near end of every outgoing connection. A client that retries while a test has its server
//! killed may then be given that very port, and connect to itself; the restarted server finds
//! its address in use. So ports are drawn at random from just below that range.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// How many ports below the outgoing range are drawn from.
const BAND: u16 = 12_000;
/// Below this lie the ports that people give to services by hand.
const LOWEST: u16 = 15_000;
const DRAWS: u32 = 64;

/// A loopback TCP port that nobody listens on at this moment.
///
/// Another process may take it before it is used: whoever starts a server on it checks that its
/// own child answers, and draws again if not.
pub(crate) fn free() -> io::Result<u16> {
    if let Some(lowest) = band() {
        for draw in 0..DRAWS {
            // Each `RandomState` has keys of its own, which makes this a random number.
            let bits = RandomState::new().hash_one(draw) % u64::from(BAND);
            let port = lowest.saturating_add(u16::try_from(bits).unwrap_or(0));
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr().map(|addr| addr.port())
}

/// `n` different free ports.
pub(super) fn several(n: usize) -> io::Result<Vec<u16>> {
    let mut ports = Vec::with_capacity(n);
    while ports.len() < n {
        let port = free()?;
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    Ok(ports)
}

/// The first port of the band below the outgoing range, where there is room for one.
fn band() -> Option<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let first: u16 = range.split_whitespace().next()?.parse().ok()?;
    let lowest = first.checked_sub(BAND)?;
    (lowest >= LOWEST).then_some(lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let ports = several(20).unwrap();
        for (i, port) in ports.iter().enumerate() {
            assert!(!ports.iter().skip(i + 1).any(|other| other == port));
            TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap();
        }
    }
}
