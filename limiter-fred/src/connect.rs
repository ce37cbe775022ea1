//! The driver, set up so that it sends nothing twice and waits for nothing without end.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fred::clients::Client;
use fred::error::{Error as FredError, ErrorKind as FredErrorKind};
use fred::interfaces::ClientLike;
#[cfg(feature = "tls")]
use fred::types::config::Config as FredConfig;
use fred::types::config::{ReconnectPolicy, TcpConfig};
use fred::types::{Builder, ClusterHash, CustomCommand, Value};
use limiter_core::Error;
use limiter_core::script::{Command, Node, Server};
use tokio::time::{Instant, timeout, timeout_at};

use crate::ENGINE;
use crate::config::Config;
use crate::error::{Failure, not_sent, of_call, of_connecting, refused, unknown};

/// Commands that may wait for the connection; one more is not sent.
const BUFFER: usize = 10_000;

/// A connection that is of no more use is closed no more often than this: others may be waiting for their answers on it.
const PAUSE: Duration = Duration::from_millis(500);

pub(crate) struct Link {
    client: Client,
    config: Arc<Config>,
    server: Server,
    /// When the connection was last made anew by us.
    renewed: Mutex<Option<Instant>>,
}

impl Link {
    /// Connects, and judges the server: the configured one, or a node of the cluster.
    pub(crate) async fn connect(config: Arc<Config>, node: Option<&Node>) -> Result<Self, Error> {
        let client = client(&config, node)?;
        let opened = timeout(config.connect_timeout, open(&client, node.is_some())).await;
        let opened = opened.unwrap_or_else(|_| Err(not_sent("the server did not answer while connecting")));
        match opened {
            Ok(server) => Ok(Self { client, config, server, renewed: Mutex::default() }),
            Err(error) => {
                // Its task would go on trying.
                let _ = client.quit().await;
                Err(error)
            }
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        self.config.call_timeout
    }

    /// Sends a command of the script, and waits for its reply until the deadline.
    pub(crate) async fn call(&self, command: Command<'_>, deadline: Instant) -> Result<Vec<u8>, Failure> {
        self.send(packed(command), deadline).await
    }

    /// The same of a command that is packed.
    pub(crate) async fn send(&self, (command, values): Packed, deadline: Instant) -> Result<Vec<u8>, Failure> {
        let answer = timeout_at(deadline, self.client.custom::<Value, _>(command, values)).await;
        self.judged(answer.unwrap_or_else(|_| Err(late())))
    }

    /// The same for a node that another one named for this call.
    pub(crate) async fn send_asking(&self, (command, values): Packed, deadline: Instant) -> Result<Vec<u8>, Failure> {
        // Together, so that no other call comes in between.
        let pipeline = self.client.pipeline();
        let both = async {
            let asking = CustomCommand::new_static("ASKING", ClusterHash::Random, false);
            let _: () = pipeline.custom(asking, Vec::<Value>::new()).await?;
            let _: () = pipeline.custom(command, values).await?;
            let answers = pipeline.try_all::<Value>().await;
            answers.into_iter().nth(1).unwrap_or_else(|| Err(late()))
        };
        let answer = timeout_at(deadline, both).await;
        self.judged(answer.unwrap_or_else(|_| Err(late())))
    }

    /// Asks a node who serves which slots.
    pub(crate) async fn slots(&self, deadline: Instant) -> Result<Value, Error> {
        let command = CustomCommand::new_static("CLUSTER", ClusterHash::Random, false);
        let answer = timeout_at(deadline, self.client.custom::<Value, _>(command, vec!["SLOTS"])).await;
        answer.unwrap_or_else(|_| Err(late())).map_err(|error| of_connecting(&error))
    }

    fn judged(&self, answer: Result<Value, FredError>) -> Result<Vec<u8>, Failure> {
        let failure = match answer {
            Ok(Value::Bytes(reply)) => return Ok(reply.to_vec()),
            // The driver makes a string of bytes that happen to be text.
            Ok(Value::String(reply)) => return Ok(reply.as_bytes().to_vec()),
            Ok(_) => Failure::Failed { error: unknown("the answer is no string of bytes"), lost: true },
            Err(error) => of_call(&error),
        };
        if let Failure::Failed { lost: true, .. } = &failure {
            self.renew();
        }
        Err(failure)
    }

    /// Has the driver make its connection anew, and ask the sentinels again on the way. By itself it does so only when the server
    /// closes it, which one that stopped does not, and one that became a replica need not.
    fn renew(&self) {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        *renewed = Some(Instant::now());
        let client = self.client.clone();
        tokio::spawn(async move {
            // If it fails, the driver's own policy goes on.
            let _trying = client.force_reconnection().await;
        });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move {
                let _gone = client.quit().await;
            });
        }
    }
}

fn late() -> FredError {
    FredError::new(FredErrorKind::Timeout, "late")
}

/// A command as the driver takes it.
pub(crate) type Packed = (CustomCommand, Vec<Value>);

pub(crate) fn packed(command: Command<'_>) -> Packed {
    let [word, program] = command.program.words();
    let mut values: Vec<Value> = Vec::with_capacity(command.keys.len() + 3);
    values.push(Value::from_static_str(program));
    values.push(Value::from(command.keys.len().to_string()));
    values.extend(command.keys.iter().map(|key| Value::from(key.as_str())));
    values.push(Value::from(command.argument));
    (CustomCommand::new_static(word, ClusterHash::FirstKey, false), values)
}

fn client(config: &Config, node: Option<&Node>) -> Result<Client, Error> {
    let fred = node.map_or_else(|| config.fred.clone(), |node| config.of_node(node));
    #[cfg(feature = "tls")]
    let fred = with_root(fred, config)?;
    let mut builder = Builder::from_config(fred);
    builder.with_connection_config(|connection| {
        // More than one would send commands again that were in flight when the connection broke.
        connection.max_command_attempts = 1;
        connection.connection_timeout = config.connect_timeout;
        connection.internal_command_timeout = config.connect_timeout;
        connection.max_command_buffer_len = BUFFER;
        // This check would close connections, and send again too.
        connection.unresponsive.max_timeout = None;
        connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
    });
    builder.with_performance_config(|performance| performance.default_command_timeout = config.call_timeout);
    // Without a policy the driver never connects again.
    builder.set_policy(ReconnectPolicy::new_exponential(0, 50, 1_000, 2));
    builder.build().map_err(|error| of_connecting(&error))
}

#[cfg(feature = "tls")]
fn with_root(mut fred: FredConfig, config: &Config) -> Result<FredConfig, Error> {
    use fred::types::config::TlsConnector;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let Some(pem) = config.root_certificate.as_ref().filter(|_| fred.uses_tls()) else { return Ok(fred) };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
        added.ok_or_else(|| refused("the root certificate can't be read"))?;
    }
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    fred.tls = Some(TlsConnector::from(tls).into());
    Ok(fred)
}

async fn open(client: &Client, node: bool) -> Result<Server, Error> {
    client.init().await.map_err(|error| of_connecting(&error))?;
    let mut info = String::new();
    for section in ["server", "memory", "replication"] {
        let command = CustomCommand::new_static("INFO", ClusterHash::Random, false);
        match client.custom::<String, _>(command, vec![section]).await {
            Ok(text) => info.push_str(&text),
            // A user who may run the script need not be one who may ask.
            Err(error) if error.details().starts_with("NOPERM") => {}
            Err(error) => return Err(of_connecting(&error)),
        }
    }
    let server = Server::of_info(&info);
    if let Some(warning) = server.warning() {
        tracing::warn!(engine = ENGINE, "{warning}");
    }
    match if node { server.unfit_node() } else { server.unfit() } {
        Some(why) => Err(refused(why)),
        None => Ok(server),
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The driver's own output would show the password.
        f.debug_struct("Link").field("config", &self.config).field("server", &self.server).finish_non_exhaustive()
    }
}
