//! What each of the driver's errors means: nothing was applied, or that is not known.

use fred::error::{Error as FredError, ErrorKind as Kind};
use limiter_core::script::refusal;
use limiter_core::{Error, ErrorKind};

use crate::ENGINE;

/// A call without a reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server lacks the script.
    NoScript,
    /// Anything else.
    Failed(Error),
}

pub(crate) fn not_sent(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::NotSent, message)
}

pub(crate) fn refused(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::Refused, message)
}

pub(crate) fn unknown(message: &'static str) -> Error {
    Error::new(ENGINE, ErrorKind::Unknown { in_flight: true }, message)
}

/// The first word of a server's error. The driver gives its own errors and the server's the same kinds; only the server's begin
/// with a word in capitals.
fn code(error: &FredError) -> Option<&str> {
    let word = error.details().split_whitespace().next()?;
    let capitals = word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let driver =
        matches!(error.kind(), Kind::IO | Kind::Timeout | Kind::Canceled | Kind::Backpressure | Kind::Protocol);
    (capitals && !driver).then_some(word)
}

/// Of a call.
pub(crate) fn of_call(error: &FredError) -> Failure {
    Failure::Failed(match (error.kind(), code(error)) {
        (_, Some("NOSCRIPT")) => return Failure::NoScript,
        // The script writes last, and all at once: an error of the server means that it did not.
        (_, Some(code)) => refused(refusal(code)),
        (Kind::Canceled | Kind::Backpressure, _) => not_sent("no connection to the server"),
        (Kind::Timeout, _) => unknown("the server did not answer in time"),
        _ => unknown("the connection broke before the answer came"),
    })
}

/// Of an attempt to connect.
pub(crate) fn of_connecting(error: &FredError) -> Error {
    match (error.kind(), code(error)) {
        (Kind::Auth, _) => refused("the server refused the user or the password"),
        (_, Some(code)) => refused(refusal(code)),
        (Kind::Config | Kind::Url, _) => refused("the address or the TLS settings can't be used"),
        (Kind::Timeout, _) => not_sent("the server did not answer while connecting"),
        _ => not_sent("no connection to the server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_class() {
        let unknown = ErrorKind::Unknown { in_flight: true };
        for (kind, details, class) in [
            (Kind::Unknown, "OOM command not allowed", ErrorKind::Refused),
            (Kind::Unknown, "READONLY You can't write", ErrorKind::Refused),
            (Kind::InvalidArgument, "WRONGTYPE Operation against", ErrorKind::Refused),
            (Kind::Unknown, "ERR user_script:1: marker-in-text", ErrorKind::Refused),
            (Kind::Cluster, "MOVED 1 127.0.0.1:1", ErrorKind::Refused),
            (Kind::Canceled, "Canceled", ErrorKind::NotSent),
            (Kind::Backpressure, "Backpressure", ErrorKind::NotSent),
            (Kind::Timeout, "Request timed out.", unknown),
            (Kind::IO, "EOF", unknown),
            (Kind::Protocol, "Unexpected frame", unknown),
            (Kind::Unknown, "Unexpected", unknown),
        ] {
            let Failure::Failed(error) = of_call(&FredError::new(kind, details)) else { panic!("{details}") };
            assert_eq!(error.kind(), class, "{details}");
            assert!(!error.to_string().contains("marker"), "{error}");
        }
        let lacks = FredError::new(Kind::Unknown, "NOSCRIPT No matching script.");
        assert!(matches!(of_call(&lacks), Failure::NoScript));
        let wrong = FredError::new(Kind::Auth, "WRONGPASS invalid username-password pair");
        assert_eq!(of_connecting(&wrong).kind(), ErrorKind::Refused);
        assert_eq!(of_connecting(&FredError::new(Kind::IO, "refused")).kind(), ErrorKind::NotSent);
    }
}
