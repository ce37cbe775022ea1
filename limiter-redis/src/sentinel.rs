//! Who is the primary, by the sentinels.

use std::sync::atomic::{AtomicUsize, Ordering};

use limiter_core::script::Node;
use limiter_core::{Error, ErrorKind};
use redis::{AsyncConnectionConfig, ConnectionInfo, Value};
use tokio::time::timeout;

use crate::ENGINE;
use crate::config::Config;
use crate::connect::client;
use crate::error::{not_sent, of_connecting};

/// The sentinels that watch one primary. They are asked whenever a connection is made, and kept no connection to: a failover shows
/// itself by a connection that is lost, or by a server that became a replica.
pub(crate) struct Sentinels {
    all: Vec<ConnectionInfo>,
    service: String,
    /// The one that answered last, and is asked first.
    first: AtomicUsize,
}

impl Sentinels {
    pub(crate) fn new(all: Vec<ConnectionInfo>, service: String) -> Self {
        Self { all, service, first: AtomicUsize::new(0) }
    }

    /// Where the primary is, by the first sentinel that knows.
    pub(crate) async fn primary(&self, config: &Config) -> Result<Node, Error> {
        // One that does not answer must not use up the time that is there for the others, and for the primary.
        let each = config.connect_timeout / u32::try_from(self.all.len() + 1).unwrap_or(u32::MAX);
        let first = self.first.load(Ordering::Relaxed);
        let mut told = not_sent("no sentinel answers");
        for (index, sentinel) in self.all.iter().enumerate().cycle().skip(first).take(self.all.len()) {
            let asked = timeout(each, self.ask(sentinel, config)).await;
            match asked.unwrap_or_else(|_| Err(not_sent("no sentinel answers in time"))) {
                Ok(node) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(node);
                }
                // That one refuses says more than that another is not there.
                Err(error) if error.kind() == ErrorKind::Refused => told = error,
                Err(_) => {}
            }
        }
        Err(told)
    }

    async fn ask(&self, sentinel: &ConnectionInfo, config: &Config) -> Result<Node, Error> {
        let refused = |message| Error::new(ENGINE, ErrorKind::Refused, message);
        let settings = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let asked = async {
            let client = client(sentinel.clone(), config)?;
            let mut connection = client.get_multiplexed_async_connection_with_config(&settings).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
            question.query_async::<Value>(&mut connection).await
        };
        match asked.await {
            Ok(Value::Nil) => Err(refused("the sentinels do not know the service")),
            Ok(value) => redis::from_redis_value(value).map_err(|_| refused("a sentinel's answer names no server")),
            Err(error) if error.code() == Some("IDONTKNOW") => {
                Err(not_sent("the sentinels do not know the primary yet"))
            }
            Err(error) if matches!(error.kind(), redis::ErrorKind::AuthenticationFailed) => {
                Err(refused("the sentinels refused the user or the password"))
            }
            Err(error) => Err(of_connecting(&error)),
        }
    }
}
