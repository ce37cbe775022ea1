//! The one connection, made anew when it is lost.
//!
//! The driver's own manager would hide whether a call failed before or after it left, and would not look at the server again
//! after a failover. Here each connection is made in one place, where the server is judged too; a call that finds none and
//! gets none was not sent, for certain.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use limiter_core::script::{Command, Node, Server};
use limiter_core::{Error, ErrorKind};
use redis::aio::SendError;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::sync::Mutex as Turn;
use tokio::time::{Instant, timeout_at};

use crate::ENGINE;
use crate::config::Config;
use crate::error::{Failure, not_sent, of_call, of_connecting, unknown};
use crate::sentinel::Sentinels;

/// After an attempt in vain there is no other for this long: those who come meanwhile are told the same at once.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Link {
    config: Arc<Config>,
    place: Place,
    state: Mutex<State>,
    /// Whose turn it is to connect: the others wait, and use what that one gets.
    turn: Turn<()>,
}

/// Which server a link leads to.
pub(crate) enum Place {
    /// The configuration's own.
    Configured,
    /// The primary that the sentinels name, asked anew for each connection.
    Sentinels(Sentinels),
    /// A node of a cluster.
    Node(Node),
}

#[derive(Default)]
struct State {
    connection: Option<Live>,
    /// Grows with each connection, so that only the lost one is given up.
    number: u64,
    server: Option<Server>,
    failed: Option<(Instant, Error)>,
}

/// A connection, and whether the driver has seen it closed (by RESP3; else only a call finds out).
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    closed: Arc<AtomicBool>,
}

impl Link {
    pub(crate) fn new(config: Arc<Config>, place: Place) -> Self {
        Self { config, place, state: Mutex::default(), turn: Turn::new(()) }
    }

    /// Connects, if there is no connection, and judges the server.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.connection(Instant::now() + self.config.connect_timeout).await.map(drop)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().connection.as_ref().is_some_and(|live| !live.closed.load(Ordering::Relaxed))
    }

    pub(crate) fn server(&self) -> Option<Server> {
        self.state().server.clone()
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        self.config.call_timeout
    }

    /// Sends a command of the script, and waits for its reply until the deadline.
    pub(crate) async fn call(&self, command: Command<'_>, deadline: Instant) -> Result<Vec<u8>, Failure> {
        let connected = self.connection(deadline).await;
        let (mut live, number) = connected.map_err(|error| Failure::Failed { error, lost: false })?;
        let command = packed(command);
        let answer = match timeout_at(deadline, live.connection.req_packed_command(&command)).await {
            Ok(Ok(value)) => reply(value),
            Ok(Err(error)) => Err(of_call(&error)),
            Err(_) => Err(late()),
        };
        if let Err(Failure::Failed { lost: true, .. }) = &answer {
            self.give_up(number);
        }
        answer
    }

    /// Sends commands at once, and waits for all replies until the deadline: one for each command, in their order.
    pub(crate) async fn calls(&self, pipeline: &Pipeline, deadline: Instant) -> Vec<Result<Value, Failure>> {
        let count = pipeline.len();
        let all = |failure: &dyn Fn() -> Failure| (0..count).map(|_| Err(failure())).collect();
        let (mut live, number) = match self.connection(deadline).await {
            Ok(connected) => connected,
            Err(error) => return all(&|| Failure::Failed { error: error.clone(), lost: false }),
        };
        let answers: Vec<_> = match timeout_at(deadline, live.connection.req_packed_commands(pipeline, 0, count)).await
        {
            Ok(Ok(values)) if values.len() == count => values.into_iter().map(Ok).collect(),
            Ok(Ok(_)) => all(&|| Failure::Failed { error: unknown("there are too few answers"), lost: true }),
            Ok(Err(error)) => all(&|| of_call(&error)),
            Err(_) => all(&late),
        };
        if answers.iter().any(|answer| matches!(answer, Err(Failure::Failed { lost: true, .. }))) {
            self.give_up(number);
        }
        answers
    }

    /// Sends an administrative command.
    pub(crate) async fn ask(&self, command: &Cmd, deadline: Instant) -> Result<Value, Error> {
        let (mut live, number) = self.connection(deadline).await?;
        let answer = timeout_at(deadline, live.connection.req_packed_command(command)).await;
        let answer = answer.map(|answer| answer.and_then(Value::extract_error));
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if !matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension) {
                    self.give_up(number);
                }
                Err(of_connecting(&error))
            }
            Err(_) => {
                self.give_up(number);
                Err(not_sent("the server did not answer in time"))
            }
        }
    }

    async fn connection(&self, deadline: Instant) -> Result<(Live, u64), Error> {
        if let Some(connection) = self.present()? {
            return Ok(connection);
        }
        let turn = timeout_at(deadline, self.turn.lock()).await;
        let Ok(_turn) = turn else { return Err(not_sent("no connection in time")) };
        // The one before may have got it, or may have found that there is none to get.
        if let Some(connection) = self.present()? {
            return Ok(connection);
        }
        let until = deadline.min(Instant::now() + self.config.connect_timeout);
        let opened = timeout_at(until, self.open()).await;
        let opened = opened.unwrap_or_else(|_| Err(not_sent("the server did not answer while connecting")));
        let mut state = self.state();
        match opened {
            Ok((connection, server)) => {
                if let Some(warning) = server.warning() {
                    tracing::warn!(engine = ENGINE, "{warning}");
                }
                state.number += 1;
                state.server = Some(server);
                state.failed = None;
                state.connection = Some(connection.clone());
                Ok((connection, state.number))
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// The connection, if there is one; or why there is none, if that was just found out.
    fn present(&self) -> Result<Option<(Live, u64)>, Error> {
        let state = self.state();
        if let Some(live) = state.connection.as_ref().filter(|live| !live.closed.load(Ordering::Relaxed)) {
            return Ok(Some((live.clone(), state.number)));
        }
        match &state.failed {
            Some((at, error)) if at.elapsed() < PAUSE => Err(error.clone()),
            _ => Ok(None),
        }
    }

    async fn open(&self) -> Result<(Live, Server), Error> {
        // The deadlines are ours: what the driver would time out, it could not tell from what it never sent.
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let closed = Arc::new(AtomicBool::new(false));
        if self.config.info.redis_settings().protocol().supports_resp3() {
            let closed = Arc::clone(&closed);
            config = config.set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.store(true, Ordering::Relaxed);
                }
                Ok::<(), SendError>(())
            });
        }
        let info = match &self.place {
            Place::Configured => self.config.info.clone(),
            Place::Sentinels(sentinels) => self.config.info_of(&sentinels.primary(&self.config).await?),
            Place::Node(node) => self.config.info_of(node),
        };
        let unusable = "the address or the TLS settings can't be used";
        let client = client(info, &self.config).map_err(|_| Error::new(ENGINE, ErrorKind::Refused, unusable))?;
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = opened.map_err(|error| of_connecting(&error))?;
        let mut info = String::new();
        for section in ["server", "memory", "replication"] {
            match redis::cmd("INFO").arg(section).query_async::<String>(&mut connection).await {
                Ok(text) => info.push_str(&text),
                // A user who may run the script need not be one who may ask.
                Err(error) if error.code() == Some("NOPERM") => {}
                Err(error) => return Err(of_connecting(&error)),
            }
        }
        let server = Server::of_info(&info);
        let unfit = if matches!(self.place, Place::Node(_)) { server.unfit_node() } else { server.unfit() };
        match unfit {
            Some(why) => Err(Error::new(ENGINE, ErrorKind::Refused, why)),
            None => Ok((Live { connection, closed }, server)),
        }
    }

    fn give_up(&self, number: u64) {
        let mut state = self.state();
        if state.number == number {
            state.connection = None;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Link")
            .field("config", &self.config)
            .field("connected", &state.connection.is_some())
            .field("server", &state.server)
            .finish_non_exhaustive()
    }
}

#[cfg(not(feature = "tls"))]
pub(crate) fn client(info: ConnectionInfo, _config: &Config) -> Result<Client, RedisError> {
    Client::open(info)
}

#[cfg(feature = "tls")]
pub(crate) fn client(info: ConnectionInfo, config: &Config) -> Result<Client, RedisError> {
    if !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        return Client::open(info);
    }
    // The driver asks rustls for the process's provider, and panics if there is none. One that is installed stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root_cert = config.root_certificate.clone();
    Client::build_with_tls(info, redis::TlsCertificates { client_tls: None, root_cert })
}

/// The script's reply, if it is one.
pub(crate) fn reply(value: Value) -> Result<Vec<u8>, Failure> {
    match value {
        Value::BulkString(reply) => Ok(reply),
        Value::ServerError(error) => Err(of_call(&error.into())),
        _ => Err(Failure::Failed { error: unknown("the answer is no string of bytes"), lost: true }),
    }
}

/// The connection is in step, and the answer may yet come. But a server that does not answer in time does not answer on a dead
/// road either: with a new connection the next calls learn which it is.
fn late() -> Failure {
    Failure::Failed { error: unknown("the server did not answer in time"), lost: true }
}

pub(crate) fn packed(command: Command<'_>) -> Cmd {
    let [word, program] = command.program.words();
    let bytes =
        program.len() + command.argument.len() + command.keys.iter().map(|key| key.as_str().len()).sum::<usize>();
    let mut packed = Cmd::with_capacity(4 + command.keys.len(), bytes + 16);
    packed.arg(word).arg(program).arg(command.keys.len());
    for key in command.keys {
        packed.arg(key.as_str());
    }
    packed.arg(command.argument);
    packed
}
