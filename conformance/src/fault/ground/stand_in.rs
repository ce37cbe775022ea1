//! The stand-in for a store, which can go away and comes back empty.

use std::net::SocketAddr;

use crate::fault::ground::{Act, Ground, Means, Setting, cannot};
use crate::stand_in::Server;
use crate::subject::BoxError;

/// What can be done to the stand-in.
pub(crate) const MEANS: [Means; 3] = [Means::Road, Means::Processes, Means::Crash];

#[derive(Debug)]
struct StandIn(Server, SocketAddr);

/// Starts a stand-in.
pub(crate) fn prepare(_setting: &Setting) -> Result<Box<dyn Ground>, BoxError> {
    let server = Server::start().map_err(|failure| failure.to_string())?;
    let addr = server.url().rsplit('/').next().unwrap_or_default().parse()?;
    Ok(Box::new(StandIn(server, addr)))
}

impl Ground for StandIn {
    fn addr(&self) -> Option<SocketAddr> {
        Some(self.1)
    }

    fn url(&self, at: Option<SocketAddr>) -> String {
        format!("stand-in://{}", at.unwrap_or(self.1))
    }

    fn act(&self, act: Act) -> Result<(), BoxError> {
        match act {
            Act::Kill => self.0.go(),
            Act::Restart => self.0.come_back_empty(),
            _ => return Err(cannot("the stand-in", act)),
        }
        Ok(())
    }
}
