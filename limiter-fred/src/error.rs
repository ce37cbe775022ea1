//! What each of the driver's errors means: nothing was applied, or that is not known.

use fred::error::{Error as FredError, ErrorKind as Kind};
use limiter_core::script::{Elsewhere, refusal};
use limiter_core::{Error, ErrorKind};

use crate::ENGINE;

/// A call without a reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server lacks the script.
    NoScript,
    /// A node of a cluster refused, since the keys are to be asked for in another way.
    Elsewhere { error: Error, to: Elsewhere },
    /// Anything else. `lost` if the connection is of no more use, though the driver may not know.
    Failed { error: Error, lost: bool },
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
    let (error, lost) = match (error.kind(), code(error)) {
        (_, Some("NOSCRIPT")) => return Failure::NoScript,
        // The script writes last, and all at once: an error of the server means that it did not.
        (_, Some(code)) => {
            let rest = error.details().trim_start().strip_prefix(code).unwrap_or_default();
            if let Some(to) = Elsewhere::of_error(code, rest) {
                return Failure::Elsewhere { error: refused(refusal(code)), to };
            }
            // A primary that became a replica: another connection may lead to the new one.
            (refused(refusal(code)), matches!(code, "READONLY" | "MASTERDOWN"))
        }
        (Kind::Canceled | Kind::Backpressure, _) => (not_sent("no connection to the server"), false),
        (Kind::Timeout, _) => (unknown("the server did not answer in time"), true),
        _ => (unknown("the connection broke before the answer came"), false),
    };
    Failure::Failed { error, lost }
}

/// Of an attempt to connect.
pub(crate) fn of_connecting(error: &FredError) -> Error {
    match (error.kind(), code(error)) {
        (Kind::Auth, _) => refused("the server refused the user or the password"),
        (_, Some(code)) => refused(refusal(code)),
        (Kind::Config | Kind::Url, _) => refused("the address or the TLS settings can't be used"),
        (Kind::Timeout, _) => not_sent("the server did not answer while connecting"),
        // The driver tells these apart by its texts only.
        (Kind::Sentinel, _) if error.details().starts_with("Missing primary address") => {
            refused("the sentinels do not know the service")
        }
        (Kind::Sentinel, _) => not_sent("no sentinel answers, or they refuse the user or the password"),
        (Kind::IO, _) if error.details().contains("refused") => not_sent("nobody listens at the server's address"),
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
            (Kind::Canceled, "Canceled", ErrorKind::NotSent),
            (Kind::Backpressure, "Backpressure", ErrorKind::NotSent),
            (Kind::Timeout, "Request timed out.", unknown),
            (Kind::IO, "EOF", unknown),
            (Kind::Protocol, "Unexpected frame", unknown),
            (Kind::Unknown, "Unexpected", unknown),
        ] {
            let Failure::Failed { error, .. } = of_call(&FredError::new(kind, details)) else { panic!("{details}") };
            assert_eq!(error.kind(), class, "{details}");
            assert!(!error.to_string().contains("marker"), "{error}");
        }
        let moved = of_call(&FredError::new(Kind::Cluster, "MOVED 1 127.0.0.1:7"));
        let Failure::Elsewhere { to, .. } = moved else { panic!("{moved:?}") };
        assert_eq!(to, Elsewhere::Moved(Some(("127.0.0.1".to_owned(), 7))));
        let lacks = FredError::new(Kind::Unknown, "NOSCRIPT No matching script.");
        assert!(matches!(of_call(&lacks), Failure::NoScript));
        let wrong = FredError::new(Kind::Auth, "WRONGPASS invalid username-password pair");
        assert_eq!(of_connecting(&wrong).kind(), ErrorKind::Refused);
        assert_eq!(of_connecting(&FredError::new(Kind::IO, "refused")).kind(), ErrorKind::NotSent);
    }
}
