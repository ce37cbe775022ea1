//! What clients and proxies write of a client's address.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName};
use http::{HeaderMap, HeaderValue};
use limiter::http::{ForwardedHeader, TrustedProxies};

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));
const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 9));

/// Whatever lines a client sends, it is told from the address that our proxy wrote behind them.
///
/// # Panics
/// If not.
pub fn forwarded(bytes: &[u8]) {
    let lines: Vec<&[u8]> =
        bytes.split(|byte| *byte == b'\n').filter(|line| HeaderValue::from_bytes(line).is_ok()).collect();
    for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
        check(header, &lines);
    }
}

fn check(header: ForwardedHeader, lines: &[&[u8]]) {
    let proxies = TrustedProxies::new(["10.0.0.0/8", "fd00::/8"]).expect("networks").header(header);
    let is_standard = header == ForwardedHeader::Forwarded;
    let (name, other) = (HeaderName::from_static("x-forwarded-for"), FORWARDED);
    let (name, other) = if is_standard { (other, name) } else { (name, other) };
    let client = |peer: IpAddr, lines: &[&[u8]]| {
        let headers = |of: &HeaderName| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(of, HeaderValue::from_bytes(line).expect("asked before"));
            }
            headers
        };
        assert_eq!(proxies.client(Some(peer), &headers(&other)), Some(peer), "the other header is not read");
        assert_eq!(proxies.client(None, &headers(&name)), None, "nobody is no proxy of ours");
        proxies.client(Some(peer), &headers(&name)).expect("a peer has an address")
    };
    assert_eq!(client(STRANGER, lines), STRANGER, "nobody vouches for it");

    // Our proxy writes whom it heard on a line of its own, or behind the last line that it got.
    let wrote: &[&str] = if is_standard {
        &["for=203.0.113.7", "for=\"203.0.113.7:4711\";proto=https", "proto=http;by=10.0.0.1;for=203.0.113.7"]
    } else {
        &["203.0.113.7", "203.0.113.7:4711"]
    };
    for own in wrote {
        assert_eq!(client(PROXY, &[lines, &[own.as_bytes()]].concat()), CLIENT, "{own} on its own");
        let Some((last, before)) = lines.split_last() else { continue };
        let line = [last, &b", "[..], own.as_bytes()].concat();
        let told = client(PROXY, &[before, &[&line]].concat());
        // A quoted string that is not closed hides what follows it: then it is the proxy that is counted.
        let unreadable = is_standard && last.contains(&b'"') && told == PROXY;
        assert!(told == CLIENT || unreadable, "{told} of {own} behind {:?}", String::from_utf8_lossy(last));
    }

    // What stands further left than an address that is not trusted is never read.
    let told = client(PROXY, lines);
    let forged = if is_standard { &b"for=192.0.2.66"[..] } else { b"192.0.2.66" };
    let more = client(PROXY, &[&[forged], lines].concat());
    let trusted = told == PROXY
        || matches!(told, IpAddr::V4(told) if told.octets()[0] == 10)
        || matches!(told, IpAddr::V6(told) if told.octets()[0] == 0xfd);
    assert!(more == told || trusted && more == IpAddr::from([192, 0, 2, 66]), "{told} became {more}");
}
