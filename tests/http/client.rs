//! A client that sends what it is told, byte by byte, and shows what came back.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    /// The header's one value; none if it is missing. A header that is there twice fails the test.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice: {self:?}");
        value
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.one(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).parse().unwrap()
    }

    pub(crate) fn limits(&self) -> Vec<&(String, String)> {
        self.headers.iter().filter(|(name, _)| name.contains("ratelimit")).collect()
    }
}

/// Sends these bytes, and reads until the server closes.
pub(crate) async fn raw(addr: SocketAddr, bytes: &[u8]) -> Option<Reply> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let (mut read, mut write) = stream.split();
    // A server that refuses early may close while it is still written to.
    let sent = async {
        let _closed = write.write_all(bytes).await;
    };
    let mut reply = Vec::new();
    let received = async {
        let _reset = read.read_to_end(&mut reply).await;
    };
    tokio::join!(sent, received);
    parse(&String::from_utf8_lossy(&reply))
}

fn parse(text: &str) -> Option<Reply> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        })
        .collect();
    Some(Reply { status, headers, body: body.to_owned() })
}

/// A GET with header lines as they are.
pub(crate) async fn get(addr: SocketAddr, path: &str, lines: &[&[u8]]) -> Reply {
    send(addr, "GET", path, lines).await.unwrap()
}

pub(crate) async fn send(addr: SocketAddr, method: &str, path: &str, lines: &[&[u8]]) -> Option<Reply> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n").into_bytes();
    for line in lines {
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    raw(addr, &bytes).await
}
