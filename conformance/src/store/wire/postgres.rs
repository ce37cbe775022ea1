//! A client for Postgres: the simple query protocol, for a user that needs no password.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{connect, garbled, read_vec};

/// Version 3.0 of the protocol.
const VERSION: u32 = 196_608;

/// A connection to a Postgres server, as user `postgres` to database `postgres`.
///
/// ```no_run
/// use limiter_conformance::store::{Kind, start, wire::Sql};
///
/// let postgres = start(Kind::Postgres)?;
/// let rows = Sql::connect(postgres.addr())?.query("SELECT 1, NULL")?;
/// assert_eq!(rows, [[Some("1".to_owned()), None]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sql {
    stream: TcpStream,
}

impl Sql {
    /// Connects to the server at `addr` and waits until it takes queries, 10 s at most.
    ///
    /// # Errors
    ///
    /// The operating system's; `InvalidData` with the server's words if it turns us away (it is
    /// still starting, or wants a password).
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let mut sql = Self { stream: connect(addr)? };
        let mut body = VERSION.to_be_bytes().to_vec();
        body.extend(b"user\0postgres\0database\0postgres\0\0");
        sql.stream.write_all(&length(&body)?)?;
        sql.stream.write_all(&body)?;
        sql.until_ready()?;
        Ok(sql)
    }

    /// Runs one or more statements and gives the rows, each value as text, NULL as `None`.
    ///
    /// # Errors
    ///
    /// The operating system's; `InvalidData` with the server's words if it refuses a statement.
    pub fn query(&mut self, statements: &str) -> io::Result<Vec<Vec<Option<String>>>> {
        let mut body = statements.as_bytes().to_vec();
        body.push(0);
        self.stream.write_all(b"Q")?;
        self.stream.write_all(&length(&body)?)?;
        self.stream.write_all(&body)?;
        self.until_ready()
    }

    /// Reads messages until the server is ready for a query; keeps rows and the first error.
    fn until_ready(&mut self) -> io::Result<Vec<Vec<Option<String>>>> {
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let (kind, body) = match self.message() {
                Ok(message) => message,
                // After a fatal error the server closes without being ready again.
                Err(error) => return Err(refused.unwrap_or(error)),
            };
            match kind {
                b'Z' => return refused.map_or(Ok(rows), Err),
                b'E' => {
                    refused.get_or_insert_with(|| garbled(words(&body)));
                }
                b'R' if body != [0; 4] => return Err(garbled("the server wants a password")),
                b'D' => rows.push(row(&body).ok_or_else(|| garbled("a row that ends too early"))?),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let n = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let n = n.checked_sub(4).ok_or_else(|| garbled("a message shorter than its head"))?;
        Ok((kind, read_vec(&mut self.stream, n)?))
    }
}

/// The length of a message with this body: it counts itself.
fn length(body: &[u8]) -> io::Result<[u8; 4]> {
    let n = u32::try_from(body.len()).ok().and_then(|n| n.checked_add(4));
    n.map(u32::to_be_bytes).ok_or_else(|| garbled("a statement beyond 4 GiB"))
}

/// The human part of an error message: `severity: text`.
fn words(body: &[u8]) -> String {
    let field = |code| {
        let mut fields = body.split(|byte| *byte == 0);
        let bytes = fields.find_map(|field| field.strip_prefix(&[code]));
        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
    };
    format!("{}: {}", field(b'S'), field(b'M'))
}

fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // A negative length is NULL.
        let Ok(n) = usize::try_from(i32::from_be_bytes(*length)) else {
            values.push(None);
            continue;
        };
        let (value, after) = rest.split_at_checked(n)?;
        values.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    Some(values)
}
