//! What each of the driver's errors means: nothing was applied, or that is not known.

use std::error::Error as StdError;

use etcd_client::Error as Driver;
use limiter_core::{Error, ErrorKind};
use tonic::{Code, Status};

use crate::ENGINE;

/// A call without an answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// There was no way to this member. Nothing was applied, and another may be asked.
    Away(Error),
    /// The cluster has no leader just now. Nothing was applied.
    NoLeader(Error),
    /// The server will not. Nothing was applied, and asking again is of no use.
    Refused(Error),
    /// More operations in one transaction than the server takes. Nothing was applied.
    TooMany(Error),
    /// More bytes in one request than the server takes. Nothing was applied.
    TooLarge(Error),
    /// A lease has gone. Nothing was applied.
    LeaseGone(Error),
    /// The database is full. Nothing was applied, unless this was the transaction that found it out: etcd applies that one, and
    /// answers it like those that it refuses. It is on its way no more.
    Full(Error),
    /// It may have been applied, or may yet be.
    Unknown(Error),
}

impl Failure {
    pub(crate) fn error(&self) -> &Error {
        match self {
            Self::Away(error)
            | Self::NoLeader(error)
            | Self::Refused(error)
            | Self::TooMany(error)
            | Self::TooLarge(error)
            | Self::LeaseGone(error)
            | Self::Full(error)
            | Self::Unknown(error) => error,
        }
    }
}

pub(crate) fn not_sent(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::NotSent, message)
}

pub(crate) fn refused(message: impl Into<std::sync::Arc<str>>) -> Error {
    Error::new(ENGINE, ErrorKind::Refused, message)
}

pub(crate) fn unknown(in_flight: bool, message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::Unknown { in_flight }, message)
}

/// Of a call on a connection. The server's own words are compared, and never repeated.
pub(crate) fn of_call(error: &Driver) -> Failure {
    match error {
        Driver::GRpcStatus(status) => of_status(status),
        _ => Failure::Unknown(unknown(true, "the call broke off before the answer came")),
    }
}

fn of_status(status: &Status) -> Failure {
    if never_connected(status) {
        return Failure::Away(not_sent("nobody listens at the member's address"));
    }
    let says = |words: &str| status.message().contains(words);
    match status.code() {
        Code::InvalidArgument if says("too many operations") => {
            Failure::TooMany(refused("the server takes fewer operations in one transaction (`--max-txn-ops`)"))
        }
        Code::InvalidArgument if says("request is too large") => {
            Failure::TooLarge(refused("the states are more bytes than the server takes (`--max-request-bytes`)"))
        }
        Code::InvalidArgument if says("user name is empty") => Failure::Refused(refused("the server wants a user")),
        Code::InvalidArgument if says("authentication failed") => {
            Failure::Refused(refused("the server refused the user or the password"))
        }
        Code::NotFound if says("lease not found") => Failure::LeaseGone(refused("the lease has gone")),
        Code::ResourceExhausted if says("database space exceeded") => {
            Failure::Full(refused("the server's database is full: its NOSPACE alarm is on"))
        }
        // Told before the request is proposed to the others.
        Code::ResourceExhausted if says("too many requests") => {
            Failure::Refused(refused("the server has too many requests in hand"))
        }
        Code::PermissionDenied => {
            Failure::Refused(refused("the user may not read and write the keys below the prefix"))
        }
        Code::Unauthenticated => Failure::Refused(refused("the server wants a user")),
        Code::Unavailable if says("etcdserver: no leader") => {
            Failure::NoLeader(Error::new(ENGINE, ErrorKind::Refused, "the cluster has no leader"))
        }
        Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented | Code::OutOfRange
            if says("etcdserver: ") =>
        {
            Failure::Refused(refused("the server answered with an error"))
        }
        Code::Unavailable if says("request timed out") => {
            Failure::Unknown(unknown(true, "the cluster did not agree on it in time"))
        }
        _ => Failure::Unknown(unknown(true, "the connection broke before the answer came")),
    }
}

/// Why there is no connection. The causes' own words are compared, and never repeated: they may hold an address.
pub(crate) fn why_unconnected(error: &(dyn StdError + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let words = error.to_string();
        if words.contains("invalid peer certificate") {
            return "the member's certificate is not by an authority that is trusted, or not for this address";
        }
        // What is not TLS, or the end of the stream where TLS should begin: a server of plain text does either.
        if words.contains("InvalidContentType") || words.contains("tls handshake eof") {
            return "the member ended the TLS handshake: it may speak plain text there";
        }
        cause = error.source();
    }
    "no connection to the member"
}

/// Whether the call failed because there was no connection to send it on.
fn never_connected(status: &Status) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_the_server_has_its_class() {
        for (status, class, text) in [
            (Status::invalid_argument("etcdserver: too many operations in txn request"), "TooMany", "max-txn-ops"),
            (Status::invalid_argument("etcdserver: request is too large"), "TooLarge", "max-request-bytes"),
            (Status::not_found("etcdserver: requested lease not found"), "LeaseGone", "lease"),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), "Full", "NOSPACE"),
            (Status::resource_exhausted("etcdserver: too many requests"), "Refused", "too many"),
            (Status::permission_denied("etcdserver: permission denied"), "Refused", "may not"),
            (Status::unauthenticated("etcdserver: invalid auth token"), "Refused", "user"),
            (
                Status::invalid_argument("etcdserver: authentication failed, invalid user ID or password"),
                "Refused",
                "password",
            ),
            (Status::invalid_argument("etcdserver: user name is empty"), "Refused", "wants a user"),
            (Status::invalid_argument("etcdserver: something new marker"), "Refused", "an error"),
            (Status::unavailable("etcdserver: no leader"), "NoLeader", "no leader"),
            (Status::unavailable("etcdserver: request timed out"), "Unknown", "agree"),
            (
                Status::unavailable("etcdserver: request timed out, possibly due to previous leader failure"),
                "Unknown",
                "",
            ),
            (Status::unavailable("etcdserver: leader changed"), "Unknown", ""),
            (Status::unavailable("etcdserver: server stopped"), "Unknown", ""),
            (Status::cancelled("Timeout expired"), "Unknown", ""),
            (Status::unknown("transport error marker"), "Unknown", ""),
            (Status::internal("h2 protocol error"), "Unknown", ""),
            (Status::resource_exhausted("marker"), "Unknown", ""),
        ] {
            let failure = of_status(&status);
            let told = format!("{failure:?}");
            assert!(told.starts_with(class) && told.contains(text), "{status:?} is {told}");
            assert!(!failure.error().to_string().contains("marker"), "{told}");
            assert_eq!(failure.error().kind().is_certain(), class != "Unknown", "{told}");
        }
    }

    #[tokio::test]
    async fn a_call_that_finds_nobody_was_not_sent() {
        let endpoint = tonic::transport::Endpoint::from_static("http://127.0.0.1:1");
        let channel = etcd_client::Channel::Tonic(endpoint.connect_lazy());
        let client = etcd_client::Client::from_channel(channel, None).await.unwrap();
        let failure = of_call(&client.kv_client().get("key", None).await.unwrap_err());
        assert!(matches!(&failure, Failure::Away(error) if error.kind() == ErrorKind::NotSent), "{failure:?}");
    }
}
