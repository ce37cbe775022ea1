//! A client for Redis: RESP2, one command at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{LONGEST, connect, garbled, read_vec};

/// What Redis answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Status(String),
    /// An error: its first word is its code.
    Error(String),
    /// A number.
    Int(i64),
    /// A string of bytes, shown as text; `None` is nil.
    Text(Option<String>),
    /// A list; nil lists are empty.
    List(Vec<Reply>),
}

impl Reply {
    /// The text of a status, an error or a string; empty for nil, a number or a list.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Status(text) | Self::Error(text) | Self::Text(Some(text)) => text,
            Self::Int(_) | Self::Text(None) | Self::List(_) => "",
        }
    }

    /// The parts of a list; empty for everything else.
    #[must_use]
    pub fn list(&self) -> &[Reply] {
        match self {
            Self::List(parts) => parts,
            _ => &[],
        }
    }
}

/// A connection to a Redis server, cluster node or sentinel.
///
/// ```no_run
/// use limiter_conformance::store::{Kind, start, wire::Resp};
///
/// let redis = start(Kind::Redis)?;
/// let mut resp = Resp::connect(redis.addr())?;
/// assert_eq!(resp.call(&["PING"])?.text(), "PONG");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Resp {
    stream: BufReader<TcpStream>,
}

impl Resp {
    /// Connects to the server at `addr`, within 10 s.
    ///
    /// # Errors
    ///
    /// The operating system's, if nobody answers there.
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = BufReader::new(connect(addr)?);
        Ok(Self { stream })
    }

    /// Sends one command and reads its reply, waiting 10 s at most. An error that the server
    /// answers is a [`Reply::Error`], not an `Err`.
    ///
    /// # Errors
    ///
    /// The operating system's, or `InvalidData` if the answer is not RESP.
    pub fn call(&mut self, words: &[&str]) -> io::Result<Reply> {
        // In one write: a command in pieces would count as several in a fault proxy.
        let mut out = format!("*{}\r\n", words.len());
        out.extend(words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())));
        self.stream.get_mut().write_all(out.as_bytes())?;
        self.reply(0)
    }

    fn reply(&mut self, depth: u8) -> io::Result<Reply> {
        let line = self.line()?;
        let mut chars = line.chars();
        let kind = chars.next();
        let rest = chars.as_str();
        let number = || rest.parse::<i64>().map_err(|_| garbled(format!("`{line}` where RESP was due")));
        match kind {
            Some('+') => Ok(Reply::Status(rest.to_owned())),
            Some('-') => Ok(Reply::Error(rest.to_owned())),
            Some(':') => number().map(Reply::Int),
            Some('$') => {
                // A negative length is nil.
                let Ok(n) = usize::try_from(number()?) else {
                    return Ok(Reply::Text(None));
                };
                let bytes = read_vec(&mut self.stream, n)?;
                read_vec(&mut self.stream, 2)?;
                Ok(Reply::Text(Some(String::from_utf8_lossy(&bytes).into_owned())))
            }
            Some('*') if depth < 8 => {
                let n = usize::try_from(number()?).unwrap_or(0);
                if n > LONGEST {
                    return Err(garbled(format!("a list of {n} parts")));
                }
                (0..n).map(|_| self.reply(depth + 1)).collect::<io::Result<_>>().map(Reply::List)
            }
            _ => Err(garbled(format!("`{line}` where RESP was due"))),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let limit = u64::try_from(LONGEST).unwrap_or(u64::MAX);
        (&mut self.stream).take(limit).read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        Ok(String::from_utf8_lossy(line).into_owned())
    }
}
