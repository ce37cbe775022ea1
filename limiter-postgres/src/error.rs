//! What each of the driver's errors means: nothing was applied, or that is not known.

use limiter_core::{Error, ErrorKind};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::ENGINE;

/// A call without a result.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// The connection is of no more use.
    pub(crate) lost: bool,
    /// Nothing was applied, and the same call may well succeed now.
    pub(crate) again: bool,
}

pub(crate) fn not_sent(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::NotSent, message)
}

pub(crate) fn refused(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::Refused, message)
}

pub(crate) fn unknown(in_flight: bool, message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::Unknown { in_flight }, message)
}

/// Of a call that was handed to a connection.
///
/// A call is one statement and one transaction: an error of the server means that it was rolled back. But for the end of a
/// session: the server may say that after the commit too.
pub(crate) fn of_call(error: &sqlx::Error) -> Failure {
    match error {
        sqlx::Error::Database(database) => of_database(database.as_ref()),
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => {
            let error = unknown(true, "the connection broke before the answer came");
            Failure { error, lost: true, again: false }
        }
        // The arguments did not get as far as the wire.
        sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => {
            Failure { error: refused("the driver does not take the call"), lost: true, again: false }
        }
        _ => {
            let error = unknown(false, "the answer has not the form that the protocol asks for");
            Failure { error, lost: true, again: false }
        }
    }
}

fn of_database(database: &dyn DatabaseError) -> Failure {
    let code = database.code().unwrap_or_default();
    let severity = database.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    if matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic)) {
        return Failure { error: unknown(false, ended(&code)), lost: true, again: false };
    }
    let kind = match &*code {
        "40001" | "40P01" | "55P03" => ErrorKind::Contended,
        _ => ErrorKind::Refused,
    };
    Failure {
        error: Error::new(ENGINE, kind, refusal(&code)),
        // A primary that became a standby: the next connection may lead to the new one.
        lost: matches!(&*code, "25006" | "25P02"),
        again: matches!(&*code, "40001" | "40P01"),
    }
}

fn ended(code: &str) -> &'static str {
    match code {
        "57P01" => "the session was ended by an administrator",
        "57P02" | "57P03" => "the server is stopping or was stopped",
        "57P05" => "the session was ended since it was idle",
        _ => "the server ended the session",
    }
}

/// What it means that the server answered with this SQLSTATE: never the server's own text, which may hold anything.
fn refusal(code: &str) -> &'static str {
    match code {
        "25006" => "the server is read-only: a standby, or set so",
        "42883" | "42P01" | "3F000" => "the tables or functions are not there: `migrate` makes them",
        "42501" => "the user may not use the tables or functions",
        "53100" => "the server's disk is full",
        "53200" => "the server is out of memory",
        "53300" => "the server has no more room for connections",
        "53400" => "the server has reached a limit of its configuration",
        "55P03" => "others held the keys for longer than the lock timeout",
        "57014" => "the call took longer than the statement timeout, or was cancelled",
        "40001" | "40P01" => "others came in between each time",
        "22003" | "22004" | "2202E" => "a stored state is not sound",
        _ => "the server answered with an error",
    }
}

/// Of an attempt to connect.
pub(crate) fn of_connecting(error: &sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(database) => match &*database.code().unwrap_or_default() {
            "28000" | "28P01" => refused("the server refused the user or the password"),
            "3D000" => refused("the server has no such database"),
            "42501" => refused("the user may not connect"),
            "57P01" | "57P02" | "57P03" => not_sent("the server is starting or stopping"),
            "53300" => not_sent("the server has no more room for connections"),
            "08P01" => refused("the server, or the pooler before it, does not take a setting of the connection"),
            _ => refused("the server refused the connection"),
        },
        sqlx::Error::Tls(_) => refused("there is no agreement on TLS, or the certificate is not to be trusted"),
        sqlx::Error::Configuration(_) => refused("the address or the settings can't be used"),
        sqlx::Error::PoolTimedOut => not_sent("the pool gave no connection in time"),
        sqlx::Error::PoolClosed => not_sent("the pool is closed"),
        // A handshake that fails comes so from the driver.
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            refused("there is no agreement on TLS, or the certificate is not to be trusted")
        }
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            not_sent("nobody listens at the server's address")
        }
        _ => not_sent("no connection to the server"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_breaks_under_way_is_unknown_and_what_breaks_before_is_not() {
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof] {
            let failure = of_call(&io::Error::from(kind).into());
            assert_eq!(failure.error.kind(), ErrorKind::Unknown { in_flight: true }, "{kind}");
            assert!(failure.lost && !failure.again, "{kind}");
            assert_eq!(of_connecting(&io::Error::from(kind).into()).kind(), ErrorKind::NotSent, "{kind}");
        }
        assert_eq!(of_connecting(&sqlx::Error::PoolTimedOut).kind(), ErrorKind::NotSent);
        let failure = of_call(&sqlx::Error::Protocol("marker".into()));
        assert_eq!(failure.error.kind(), ErrorKind::Unknown { in_flight: false });
        assert!(!failure.error.to_string().contains("marker"));
    }
}
