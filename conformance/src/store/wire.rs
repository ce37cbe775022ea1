//! Just enough of each store's protocol to ask it something, without a driver.
//!
//! The launcher asks with these whether its own server answers, and builds the topologies; fault
//! tests use them for what an operator would type: `SCRIPT FLUSH`, `pg_promote()`, a member list.
//! They open a connection per conversation, block, and know neither TLS nor passwords: they are
//! for the servers that the launcher started.

mod etcd;
mod postgres;
mod redis;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub use etcd::{base64, http_get, http_post, unbase64};
pub use postgres::Sql;
pub use redis::{Reply, Resp};

/// How long a connection or an answer may take. Generous: a loaded machine is no failure.
const PATIENCE: Duration = Duration::from_secs(10);
/// No answer that these clients are for is longer; a length beyond it means a wrong protocol.
const LONGEST: usize = 16 << 20;

fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    // A free port just below or in the outgoing range may connect to itself while nobody listens.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads exactly `n` bytes, if that is a length that can be meant.
fn read_vec(from: &mut impl Read, n: usize) -> io::Result<Vec<u8>> {
    if n > LONGEST {
        return Err(garbled(format!("a part of {n} bytes")));
    }
    let mut bytes = vec![0; n];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn garbled(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
