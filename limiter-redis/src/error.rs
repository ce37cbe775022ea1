//! What each of the driver's errors means: nothing was applied, or that is not known.

use limiter_core::script::{Elsewhere, refusal};
use limiter_core::{Error, ErrorKind};
use redis::{ErrorKind as Kind, RedisError, ServerErrorKind};

use crate::ENGINE;

/// A call without a reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server lacks the script.
    NoScript,
    /// Anything else. `lost` if the connection is of no more use.
    Failed { error: Error, lost: bool },
    /// A node of a cluster refused, since the keys are to be asked for in another way.
    Elsewhere { error: Error, to: Elsewhere },
}

pub(crate) fn not_sent(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::NotSent, message)
}

pub(crate) fn unknown(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::Unknown { in_flight: true }, message)
}

/// Of a call that was handed to a connection.
pub(crate) fn of_call(error: &RedisError) -> Failure {
    match error.kind() {
        Kind::Server(ServerErrorKind::NoScript) => Failure::NoScript,
        // The script writes last, and all at once: an error of the server means that it did not.
        Kind::Server(_) | Kind::Extension => {
            let code = error.code().unwrap_or_default();
            if let Some(to) = Elsewhere::of_error(code, error.detail().unwrap_or_default()) {
                return Failure::Elsewhere { error: Error::new(ENGINE, ErrorKind::Refused, refusal(code)), to };
            }
            // A primary that became a replica: the next connection may lead to the new one.
            let lost = matches!(code, "READONLY" | "MASTERDOWN" | "NOAUTH");
            Failure::Failed { error: Error::new(ENGINE, ErrorKind::Refused, refusal(code)), lost }
        }
        _ => Failure::Failed { error: unknown("the connection broke before the answer came"), lost: true },
    }
}

/// Of an attempt to connect.
pub(crate) fn of_connecting(error: &RedisError) -> Error {
    let refused = |message| Error::new(ENGINE, ErrorKind::Refused, message);
    match error.kind() {
        Kind::AuthenticationFailed => refused("the server refused the user or the password"),
        Kind::Server(_) | Kind::Extension => refused(refusal(error.code().unwrap_or_default())),
        Kind::InvalidClientConfig => refused("the address or the TLS settings can't be used"),
        _ if error.is_connection_refusal() => not_sent("nobody listens at the server's address"),
        _ if error.is_timeout() => not_sent("the server did not answer while connecting"),
        _ => not_sent("no connection to the server"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn server(line: &str) -> RedisError {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(value) => value.extract_error().unwrap_err(),
            Err(error) => error,
        }
    }

    #[test]
    fn each_error_of_a_call_has_its_class() {
        assert!(matches!(of_call(&server("NOSCRIPT No matching script.")), Failure::NoScript));
        for (line, message, lost) in [
            ("OOM command not allowed", "out of memory", false),
            ("READONLY You can't write", "read-only", true),
            ("NOREPLICAS Not enough good replicas", "too few replicas", false),
            ("WRONGTYPE Operation against", "something else", false),
            ("ERR user_script:1: marker-in-text", "an error", false),
            ("BUSY Redis is busy", "busy", false),
            ("LOADING Redis is loading", "loading", false),
            ("SOMETHING new", "an error", false),
        ] {
            let Failure::Failed { error, lost: is } = of_call(&server(line)) else { panic!("{line}") };
            assert_eq!((error.kind(), is), (ErrorKind::Refused, lost), "{line}");
            assert!(error.to_string().contains(message) && !error.to_string().contains("marker"), "{error}");
        }
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset, io::ErrorKind::TimedOut] {
            let Failure::Failed { error, lost } = of_call(&io::Error::from(kind).into()) else { panic!("{kind}") };
            assert_eq!((error.kind(), lost), (ErrorKind::Unknown { in_flight: true }, true), "{kind}");
        }
    }

    #[test]
    fn a_redirection_is_a_certain_refusal() {
        let to = Elsewhere::Moved(Some(("127.0.0.1".to_owned(), 6_381)));
        for (line, due) in [("MOVED 3999 127.0.0.1:6381", to), ("CLUSTERDOWN Hash slot not served", Elsewhere::Later)] {
            let Failure::Elsewhere { error, to } = of_call(&server(line)) else { panic!("{line}") };
            assert_eq!((error.kind(), to), (ErrorKind::Refused, due), "{line}");
        }
    }

    #[test]
    fn what_fails_while_connecting_was_not_sent() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused).into();
        assert_eq!(of_connecting(&refused).kind(), ErrorKind::NotSent);
        assert!(of_connecting(&refused).to_string().contains("nobody listens"));
        assert_eq!(of_connecting(&io::Error::from(io::ErrorKind::TimedOut).into()).kind(), ErrorKind::NotSent);
        let wrong = of_connecting(&server("WRONGPASS invalid username-password pair"));
        assert_eq!(wrong.kind(), ErrorKind::Refused);
        assert!(wrong.to_string().contains("password"));
    }
}
