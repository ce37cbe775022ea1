//! HTTP/1.1 for etcd's health page and JSON gateway.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

use super::{LONGEST, connect, garbled, read_vec};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Fetches `path` (such as `/health`) from the server at `addr`: status code and body.
///
/// # Errors
///
/// The operating system's, or `InvalidData` if the answer is not HTTP/1.
pub fn http_get(addr: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    exchange(addr, &format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n"))
}

/// Sends `json` to `path` (such as `/v3/kv/put`) of the server at `addr`: status code and body.
/// etcd's gateway wants keys and values in [`base64`].
///
/// # Errors
///
/// The operating system's, or `InvalidData` if the answer is not HTTP/1.
pub fn http_post(addr: SocketAddr, path: &str, json: &str) -> io::Result<(u16, String)> {
    let n = json.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nContent-Length: {n}\r\n\r\n");
    exchange(addr, &(head + json))
}

/// Standard base64 with padding, as JSON gateways want for bytes.
///
/// ```
/// assert_eq!(limiter_conformance::store::wire::base64(b"key!"), "a2V5IQ==");
/// ```
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (digit, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let value = usize::try_from(bits >> shift & 63).unwrap_or(0);
            match DIGITS.get(value) {
                Some(letter) if digit <= three.len() => out.push(char::from(*letter)),
                _ => out.push('='),
            }
        }
    }
    out
}

/// The bytes of standard base64, up to the first letter that is none of its digits.
///
/// ```
/// assert_eq!(limiter_conformance::store::wire::unbase64("a2V5IQ=="), b"key!");
/// ```
#[must_use]
pub fn unbase64(text: &str) -> Vec<u8> {
    let (mut out, mut bits, mut held) = (Vec::with_capacity(text.len() / 4 * 3), 0_u32, 0);
    for letter in text.bytes() {
        let Some(digit) = DIGITS.iter().position(|known| *known == letter) else { break };
        bits = bits << 6 | u32::try_from(digit).unwrap_or_default();
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).unwrap_or_default());
        }
    }
    out
}

fn exchange(addr: SocketAddr, request: &str) -> io::Result<(u16, String)> {
    let mut stream = BufReader::new(connect(addr)?);
    stream.get_mut().write_all(request.as_bytes())?;
    let status_line = line(&mut stream)?;
    let status = status_line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status = status.ok_or_else(|| garbled(format!("`{status_line}` where HTTP was due")))?;
    let (mut length, mut chunked) = (None, false);
    loop {
        let header = line(&mut stream)?.to_ascii_lowercase();
        match header.split_once(':').map(|(name, value)| (name, value.trim())) {
            _ if header.is_empty() => break,
            Some(("content-length", value)) => length = value.parse().ok(),
            Some(("transfer-encoding", "chunked")) => chunked = true,
            _ => {}
        }
    }
    let body = match length {
        _ if chunked => chunks(&mut stream)?,
        Some(n) => read_vec(&mut stream, n)?,
        None => {
            let mut body = Vec::new();
            stream.take(u64::try_from(LONGEST).unwrap_or(u64::MAX)).read_to_end(&mut body)?;
            body
        }
    };
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn chunks(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(stream)?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        let n = usize::from_str_radix(digits, 16).map_err(|_| garbled(format!("a chunk of `{size}` bytes")))?;
        if n == 0 {
            return Ok(body);
        }
        body.extend(read_vec(stream, n)?);
        read_vec(stream, 2)?;
    }
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(64 << 10).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(unbase64(text), bytes.as_bytes());
        }
        assert_eq!(base64(&[0xff, 0xfe, 0x00]), "//4A");
        assert_eq!(unbase64("//4A"), [0xff, 0xfe, 0x00]);
    }
}
