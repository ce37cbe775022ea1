//! The connection: to one member at a time, and to the next where that one fails.
//!
//! The driver can spread its calls over all members on one channel, but then each call meets a dead member again, and whether
//! it was sent can't be told. Here a connection is made in one place, so a call that finds none and gets none was not sent,
//! for certain; and a member that does not answer is left for the next.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, GetOptions, GetResponse, Txn, TxnResponse};
use limiter_core::Error;
use tokio::sync::Mutex as Turn;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Endpoint;

use crate::config::Config;
use crate::error::{Failure, not_sent, of_call, refused, unknown, why_unconnected};

/// How often a silent connection is asked whether it still leads anywhere, and how long the answer may take.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));
/// The longest answer that is read: the states of a whole transaction.
const LONGEST_ANSWER: usize = 64 << 20;

pub(crate) struct Link {
    config: Config,
    state: Mutex<State>,
    /// Whose turn it is to connect: the others wait, and use what that one gets.
    turn: Turn<()>,
}

#[derive(Default)]
struct State {
    client: Option<Client>,
    /// The member that is asked.
    member: usize,
    /// Grows with each connection, so that only the lost one is given up.
    number: u64,
}

impl Link {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, state: Mutex::default(), turn: Turn::default() }
    }

    /// How many members there are to ask.
    pub(crate) fn members(&self) -> usize {
        self.config.endpoints.len()
    }

    pub(crate) async fn txn(&self, txn: Txn, until: Instant) -> Result<TxnResponse, Failure> {
        let (client, number) = self.client(until).await?;
        let mut client = client.kv_client().max_decoding_message_size(LONGEST_ANSWER);
        self.answer(number, until, client.txn(txn)).await
    }

    /// A key as it was at a revision of the store, or as it is at 0.
    pub(crate) async fn get(&self, key: Vec<u8>, revision: i64, until: Instant) -> Result<GetResponse, Failure> {
        let (client, number) = self.client(until).await?;
        let mut client = client.kv_client().max_decoding_message_size(LONGEST_ANSWER);
        self.answer(number, until, client.get(key, Some(GetOptions::new().with_revision(revision)))).await
    }

    /// A lease of at least so many seconds: its number, and how long it lasts.
    pub(crate) async fn grant(&self, seconds: i64, until: Instant) -> Result<(i64, Duration), Failure> {
        let (client, number) = self.client(until).await?;
        let granted = self.answer(number, until, client.lease_client().grant(seconds, None)).await?;
        Ok((granted.id(), Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or_default())))
    }

    /// Waits for the answer of a call on the connection of this number.
    async fn answer<T>(
        &self,
        number: u64,
        until: Instant,
        call: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, Failure> {
        let failure = match timeout_at(until, call).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => of_call(&error),
            Err(_) => Failure::Unknown(unknown(true, "the server did not answer in time")),
        };
        // A member that answers is kept, unless it is cut off from the others. Of one that does not, it is not known whether
        // the road or the member is dead: a new connection finds out.
        if matches!(failure, Failure::Away(_) | Failure::NoLeader(_) | Failure::Unknown(_)) {
            self.give_up(number);
        }
        Err(failure)
    }

    async fn client(&self, until: Instant) -> Result<(Client, u64), Failure> {
        if let Some(client) = self.present() {
            return Ok(client);
        }
        let Ok(_turn) = timeout_at(until, self.turn.lock()).await else {
            return Err(Failure::Away(not_sent("no connection in time")));
        };
        // The one before may have got it.
        if let Some(client) = self.present() {
            return Ok(client);
        }
        let until = until.min(Instant::now() + self.config.connect_timeout);
        let connected = timeout_at(until, self.connect()).await;
        let connected =
            connected.unwrap_or_else(|_| Err(Failure::Away(not_sent("the member did not answer while connecting"))));
        let mut state = self.state();
        match connected {
            Ok(client) => {
                state.number += 1;
                state.client = Some(client.clone());
                Ok((client, state.number))
            }
            Err(failure) => {
                state.member += 1;
                Err(failure)
            }
        }
    }

    async fn connect(&self) -> Result<Client, Failure> {
        let member = self.state().member % self.config.endpoints.len().max(1);
        let url = self.config.endpoints.get(member).cloned().unwrap_or_default();
        let unusable = |_| Failure::Refused(refused("the address or the TLS settings can't be used"));
        let endpoint = Endpoint::from_shared(url).map_err(unusable)?;
        let endpoint = secured(endpoint, &self.config).map_err(unusable)?;
        let (every, within) = KEEP_ALIVE;
        let endpoint = endpoint
            .connect_timeout(self.config.connect_timeout)
            .tcp_nodelay(true)
            .keep_alive_while_idle(true)
            .http2_keep_alive_interval(every)
            .keep_alive_timeout(within);
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| Failure::Away(not_sent(why_unconnected(&error))))?;
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((user, password)) = &self.config.user {
            options = options.with_user(user, password).with_auto_token_refresh(true);
        }
        // With a user this asks for a token.
        let client = Client::from_channel(Channel::Tonic(channel), Some(options)).await;
        client.map_err(|error| match of_call(&error) {
            // Nothing was asked but to be let in.
            Failure::Unknown(_) => Failure::Away(not_sent("the member did not let the user in")),
            failure => failure,
        })
    }

    fn present(&self) -> Option<(Client, u64)> {
        let state = self.state();
        state.client.as_ref().map(|client| (client.clone(), state.number))
    }

    /// Leaves the member for the next, unless somebody already did.
    fn give_up(&self, number: u64) {
        let mut state = self.state();
        if state.number == number && state.client.take().is_some() {
            state.member += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("config", &self.config)
            .field("connected", &self.state().client.is_some())
            .finish_non_exhaustive()
    }
}

/// The failure of an attempt to connect, as it is told.
pub(crate) fn of_connecting(failure: Option<Failure>) -> Error {
    match failure {
        Some(Failure::Unknown(_)) => not_sent("the server did not answer while connecting"),
        Some(failure) => failure.error().clone(),
        None => refused("there is no member to connect to"),
    }
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "with TLS there is what can't be used")]
fn secured(endpoint: Endpoint, _config: &Config) -> Result<Endpoint, tonic::transport::Error> {
    Ok(endpoint)
}

#[cfg(feature = "tls")]
fn secured(endpoint: Endpoint, config: &Config) -> Result<Endpoint, tonic::transport::Error> {
    use etcd_client::{Certificate, Identity, TlsOptions};
    if endpoint.uri().scheme_str() != Some("https") {
        return Ok(endpoint);
    }
    let mut options = TlsOptions::new();
    options = match &config.root_certificate {
        Some(pem) => options.ca_certificate(Certificate::from_pem(pem)),
        None => options.with_webpki_roots(),
    };
    if let Some((certificate, key)) = &config.identity {
        options = options.identity(Identity::from_pem(certificate, key));
    }
    endpoint.tls_config(options)
}
