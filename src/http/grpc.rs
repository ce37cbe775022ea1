//! A refusal as gRPC has it: HTTP 200, and a status in the trailers, which are the headers of an answer without a body.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::fields::insert;
use crate::policy::Verdict;

/// The kinds of gRPC, the longest name first.
const KINDS: [&str; 3] = ["application/grpc-web-text", "application/grpc-web", "application/grpc"];

/// The kind of gRPC in which a request wants its answer. What it says itself is not repeated.
pub(super) fn kind(headers: &HeaderMap) -> Option<&'static str> {
    let value = headers.get(CONTENT_TYPE)?.as_bytes();
    KINDS.into_iter().find(|kind| value.starts_with(kind.as_bytes()))
}

/// The time that the caller gives itself, of `grpc-timeout`: at most 8 digits and a unit.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_hours(number),
        "M" => Duration::from_mins(number),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The status of a verdict: its number and what it says.
pub(super) const fn status(verdict: Verdict) -> (u32, &'static str) {
    match verdict {
        Verdict::Limited => (8, "rate limited"),
        Verdict::TooCostly => (3, "the cost is over the limit"),
        Verdict::Unavailable => (14, "the rate limiter is unavailable"),
        _ => (7, "not allowed"),
    }
}

/// Writes the status, with a `RetryInfo` where it makes sense to come back.
pub(super) fn write(headers: &mut HeaderMap, kind: &'static str, verdict: Verdict, retry_after: Option<Duration>) {
    let (code, message) = status(verdict);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    insert(headers, HeaderName::from_static("grpc-status"), code);
    insert(headers, HeaderName::from_static("grpc-message"), message);
    if let Some(wait) = retry_after {
        let details = base64(&details(code, message, wait));
        insert(headers, HeaderName::from_static("grpc-status-details-bin"), details);
    }
}

/// A `google.rpc.Status` with one detail, a `google.rpc.RetryInfo`.
fn details(code: u32, message: &str, wait: Duration) -> Vec<u8> {
    let mut duration = Vec::new();
    number(&mut duration, 1, wait.as_secs());
    number(&mut duration, 2, u64::from(wait.subsec_nanos()));
    let mut retry_info = Vec::new();
    bytes(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    number(&mut status, 1, u64::from(code));
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

/// A number field of protobuf's wire format; 0 is left out.
fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        out.push(field << 3);
        varint(out, value);
    }
}

/// A field of bytes, text or a message.
fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, u64::try_from(value.len()).unwrap_or_default());
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// Base64 without padding, as gRPC's binary headers are written.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..=chunk.len() {
            let digit = usize::try_from(group >> (18 - 6 * index) & 63).unwrap_or_default();
            text.push(DIGITS.get(digit).copied().map_or('=', char::from));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{base64, timeout};
    use http::{HeaderMap, HeaderValue};
    use std::time::Duration;

    #[test]
    fn base64_is_as_everybodys() {
        let pairs = [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (text, expected) in pairs {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_static(text));
            timeout(&headers)
        };
        assert_eq!(read("99999999H"), Some(Duration::from_hours(99_999_999)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        for wrong in ["", "m", "100000000S", "-1S", "+1S", "1x", "1", "1.5S", "1 S"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
