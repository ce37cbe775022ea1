//! The client of the stand-in: one connection, one call at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use limiter_core::{Atomicity, Backend, Batch, Capabilities, ClockSource, Error, ErrorKind, Outcome, Record, Scope};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::{SCHEME, line};
use crate::case::Failure;
use crate::history::Answer;
use crate::history::line::AnswerLine;
use crate::subject::BoxError;

/// The engine's name.
const ENGINE: &str = "stand-in";

/// The longest that a call may take.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A connection to a [`Server`](super::Server), which is made when it is needed.
#[derive(Clone, Debug)]
pub struct Client {
    address: Arc<str>,
    /// None until the first call, and after a failure: a connection whose call failed may still bring its reply.
    connection: Arc<Mutex<Option<BufReader<TcpStream>>>>,
}

/// A client of the store at `url`.
///
/// # Errors
/// If the URL is not that of a stand-in. Whether the store is there shows at the first call.
pub async fn connect(url: String) -> Result<Client, BoxError> {
    let address = url.strip_prefix(SCHEME).ok_or("not the URL of a stand-in")?;
    Ok(Client { address: address.into(), connection: Arc::default() })
}

impl Client {
    /// Sends a line and waits for its reply.
    async fn exchange(self, line: String) -> Result<Vec<Answer>, Error> {
        let deadline = Instant::now() + TIMEOUT;
        let late = |text| move |_| failed(ErrorKind::NotSent, text);
        let mut connection =
            timeout_at(deadline, self.connection.lock()).await.map_err(late("its turn did not come"))?;
        // Taken out, so that it is gone if anything goes wrong.
        let mut stream = if let Some(stream) = connection.take() {
            stream
        } else {
            let dialled = timeout_at(deadline, self.dial()).await.map_err(late("no connection in time"))?;
            dialled.map_err(|error| failed(ErrorKind::NotSent, "no connection").with_source(error))?
        };
        let unknown = || failed(ErrorKind::Unknown { in_flight: false }, "the connection broke before the reply");
        let written = timeout_at(deadline, stream.get_mut().write_all(line.as_bytes())).await;
        written.map_err(|_| unknown())?.map_err(|error| unknown().with_source(error))?;
        let mut reply = String::new();
        let read = timeout_at(deadline, stream.read_line(&mut reply)).await;
        let read = read.map_err(|_| unknown())?.map_err(|error| unknown().with_source(error))?;
        // The end of the connection, perhaps in the middle of the line.
        if read == 0 || !reply.ends_with('\n') {
            return Err(unknown());
        }
        let answers: Vec<AnswerLine> = serde_json::from_str(&reply).map_err(|error| unknown().with_source(error))?;
        *connection = Some(stream);
        let answers: Result<_, Failure> = answers.into_iter().map(Answer::try_from).collect();
        answers.map_err(|_| unknown())
    }

    async fn dial(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }
}

fn failed(kind: ErrorKind, text: &str) -> Error {
    Error::new(ENGINE, kind, text)
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Decided { allowed, at, layers } => Outcome::decided(Record::new(allowed, at, layers)),
        Answer::Remembered { .. } => {
            Outcome::Unknown(failed(ErrorKind::Unknown { in_flight: false }, "the store told what no store tells"))
        }
        Answer::NotSent => Outcome::NotSent(failed(ErrorKind::Full, "the store has no room")),
        Answer::Unknown => Outcome::Unknown(failed(ErrorKind::Unknown { in_flight: false }, "the store does not know")),
    }
}

#[async_trait]
impl Backend for Client {
    async fn submit(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let answers = match line(&batch) {
            // In a task of its own: a caller that goes away must not leave a reply behind for the next one to read.
            Ok(line) => tokio::spawn(self.clone().exchange(line)).await.unwrap_or_else(|_| {
                Err(failed(ErrorKind::Unknown { in_flight: false }, "the call was given up with its runtime"))
            }),
            Err(failure) => Err(failed(ErrorKind::NotSent, &failure.to_string())),
        };
        match answers {
            Ok(answers) => answers.into_iter().map(outcome).collect(),
            Err(error) if error.kind().is_certain() => {
                batch.requests.iter().map(|_| Outcome::NotSent(error.clone())).collect()
            }
            Err(error) => batch.requests.iter().map(|_| Outcome::Unknown(error.clone())).collect(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(ENGINE, ClockSource::Store, Scope::Cluster, Atomicity::AllKeys)
    }
}
