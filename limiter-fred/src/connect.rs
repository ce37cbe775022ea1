//! The driver, set up so that it sends nothing twice and waits for nothing without end.

use std::fmt;
use std::time::Duration;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::interfaces::ClientLike;
use fred::types::config::{ReconnectPolicy, TcpConfig};
use fred::types::{Builder, ClusterHash, CustomCommand, Value};
use limiter_core::Error;
use limiter_core::script::{Command, Server};
use tokio::time::{Instant, timeout, timeout_at};

use crate::ENGINE;
use crate::config::Config;
use crate::error::{Failure, not_sent, of_call, of_connecting, refused, unknown};

/// Commands that may wait for the connection; one more is not sent.
const BUFFER: usize = 10_000;

pub(crate) struct Link {
    client: Client,
    config: Config,
    server: Server,
}

impl Link {
    /// Connects, and judges the server.
    pub(crate) async fn connect(config: Config) -> Result<Self, Error> {
        let client = client(&config).map_err(|error| of_connecting(&error))?;
        let opened = timeout(config.connect_timeout, open(&client)).await;
        let opened = opened.unwrap_or_else(|_| Err(not_sent("the server did not answer while connecting")));
        match opened {
            Ok(server) => Ok(Self { client, config, server }),
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

    pub(crate) fn call_timeout(&self) -> Duration {
        self.config.call_timeout
    }

    /// Sends a command of the script, and waits for its reply until the deadline.
    pub(crate) async fn call(&self, command: Command<'_>, deadline: Instant) -> Result<Vec<u8>, Failure> {
        let [word, program] = command.program.words();
        let mut values: Vec<Value> = Vec::with_capacity(command.keys.len() + 3);
        values.push(Value::from_static_str(program));
        values.push(Value::from(command.keys.len().to_string()));
        values.extend(command.keys.iter().map(|key| Value::from(key.as_str())));
        values.push(Value::from(command.argument));
        let command = CustomCommand::new_static(word, ClusterHash::FirstKey, false);
        match timeout_at(deadline, self.client.custom::<Value, _>(command, values)).await {
            Ok(Ok(Value::Bytes(reply))) => Ok(reply.to_vec()),
            // The driver makes a string of bytes that happen to be text.
            Ok(Ok(Value::String(reply))) => Ok(reply.as_bytes().to_vec()),
            Ok(Ok(_)) => Err(Failure::Failed(unknown("the answer is no string of bytes"))),
            Ok(Err(error)) => Err(of_call(&error)),
            Err(_) => Err(Failure::Failed(unknown("the server did not answer in time"))),
        }
    }
}

fn client(config: &Config) -> Result<Client, FredError> {
    let mut builder = Builder::from_config(config.fred.clone());
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
    builder.build()
}

async fn open(client: &Client) -> Result<Server, Error> {
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
    match server.unfit() {
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
