//! Whose address a request came from: the peer's, or what trusted proxies say.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

use crate::policy::ConditionError;

/// Where a proxy writes whom it speaks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For: client, proxy`.
    #[default]
    XForwardedFor,
    /// `Forwarded: for=client;proto=https, for=proxy` (RFC 7239).
    Forwarded,
}

/// The proxies whose word on a client's address is taken.
///
/// The walk goes **from the right**, over all lines of the header: each proxy appends whom it heard, so only what trusted ones
/// wrote is believed, and the first address that is not trusted is the client. Whatever a client writes itself lies further left
/// and is never read. An entry that is no address ends the walk at the proxy that reported it, and so does a line of `Forwarded` with
/// a quoted string that is not closed.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use limiter::http::TrustedProxies;
///
/// let proxies = TrustedProxies::new(["10.0.0.0/8"])?;
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 203.0.113.7"));
/// let client = |peer: [u8; 4]| proxies.client(Some(peer.into()), &headers).map(|address| address.to_string());
/// assert_eq!(client([10, 0, 0, 1]).as_deref(), Some("203.0.113.7"));
/// assert_eq!(client([198, 51, 100, 9]).as_deref(), Some("198.51.100.9"), "no proxy of ours: not believed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    header: ForwardedHeader,
    unknown_peer: bool,
}

impl TrustedProxies {
    /// Proxies by their networks or addresses, which write `X-Forwarded-For`.
    ///
    /// # Errors
    /// A text that is no network.
    pub fn new<'t>(networks: impl IntoIterator<Item = &'t str>) -> Result<Self, ConditionError> {
        let networks: Result<Vec<IpNet>, String> = networks.into_iter().map(crate::policy::network).collect();
        let networks = networks.map_err(ConditionError::new)?;
        Ok(Self { networks, header: ForwardedHeader::default(), unknown_peer: false })
    }

    /// The header that they write. Only this one is read: the other may come from the client.
    #[must_use]
    pub const fn header(mut self, header: ForwardedHeader) -> Self {
        self.header = header;
        self
    }

    /// Whether a peer without an address, as on a Unix socket, is a proxy that is trusted.
    #[must_use]
    pub const fn trust_unknown_peer(mut self, trusted: bool) -> Self {
        self.unknown_peer = trusted;
        self
    }

    /// The client of a request that `peer` sent with these headers.
    #[must_use]
    pub fn client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let mut client = peer.map(|peer| peer.to_canonical());
        let trusted = |address: IpAddr| self.networks.iter().any(|network| network.contains(&address));
        if !client.map_or(self.unknown_peer, trusted) {
            return client;
        }
        let name = match self.header {
            ForwardedHeader::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ForwardedHeader::Forwarded => FORWARDED,
        };
        // `DoubleEndedIterator`: the last line is the nearest proxy's.
        for line in headers.get_all(name).iter().rev() {
            let text = String::from_utf8_lossy(line.as_bytes());
            let entries = match self.header {
                ForwardedHeader::XForwardedFor => text.split(',').collect(),
                // A quote that a client left open would make one entry of its own and of what the proxy wrote behind it.
                ForwardedHeader::Forwarded if !is_quoted_well(&text) => return client,
                ForwardedHeader::Forwarded => split_quoted(&text, ','),
            };
            for entry in entries.into_iter().rev() {
                let address = match self.header {
                    ForwardedHeader::XForwardedFor => read_address(entry),
                    ForwardedHeader::Forwarded => forwarded_for(entry),
                };
                let Some(address) = address else { return client };
                client = Some(address);
                if !trusted(address) {
                    return client;
                }
            }
        }
        client
    }
}

/// The `for=` of one element.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let pairs = split_quoted(element, ';');
    let mut named = pairs.iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
    });
    let value = named.next()?;
    // Twice: which of them the proxy meant is a guess.
    if named.next().is_some() {
        return None;
    }
    read_address(&unquoted(value))
}

/// Whether each quoted string of a line is a whole value: it follows `=`, is closed, and a separator or the end comes after it.
fn is_quoted_well(line: &str) -> bool {
    enum At {
        Text,
        Value,
        Quoted,
        Escaped,
        Closed,
    }
    let mut at = At::Text;
    for character in line.chars() {
        at = match (at, character) {
            (At::Quoted, '\\') => At::Escaped,
            (At::Quoted, '"') | (At::Closed, ' ' | '\t') => At::Closed,
            (At::Quoted | At::Escaped, _) | (At::Value, '"') => At::Quoted,
            (At::Closed, ';' | ',') => At::Text,
            (At::Closed, _) | (At::Text, '"') => return false,
            (At::Text | At::Value, '=') | (At::Value, ' ' | '\t') => At::Value,
            (At::Text | At::Value, _) => At::Text,
        };
    }
    !matches!(at, At::Quoted | At::Escaped)
}

/// The parts of a text between separators that lie in no quoted string.
fn split_quoted(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(|character| {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return character == separator && !quoted,
        }
        false
    })
    .collect()
}

fn unquoted(value: &str) -> Cow<'_, str> {
    match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        Some(inner) if inner.contains('\\') => inner.replace('\\', "").into(),
        Some(inner) => inner.into(),
        None => value.into(),
    }
}

/// An address as proxies write it: with a port, in brackets, with a zone, or none of it.
fn read_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let address = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !port.is_empty() && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err()) {
            return None;
        }
        IpAddr::V6(without_zone(address).parse().ok()?)
    } else if let Ok(SocketAddr::V4(address)) = text.parse() {
        IpAddr::V4(*address.ip())
    } else {
        without_zone(text).parse().ok()?
    };
    Some(address.to_canonical())
}

/// A zone names an interface of the proxy's, not a client.
fn without_zone(text: &str) -> &str {
    match text.split_once('%') {
        Some((address, zone)) if address.contains(':') && !zone.is_empty() => address,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{ForwardedHeader, TrustedProxies};
    use http::{HeaderMap, HeaderValue};

    fn client(header: ForwardedHeader, peer: &str, lines: &[&[u8]]) -> String {
        let proxies = TrustedProxies::new(["10.0.0.0/8", "fd00::/8"]).unwrap().header(header);
        let mut headers = HeaderMap::new();
        for line in lines {
            let name = if header == ForwardedHeader::Forwarded { "forwarded" } else { "x-forwarded-for" };
            headers.append(name, HeaderValue::from_bytes(line).unwrap());
        }
        // What is not read, so as not to be believed.
        headers.append("x-real-ip", HeaderValue::from_static("9.9.9.9"));
        proxies.client(Some(peer.parse().unwrap()), &headers).unwrap().to_string()
    }

    #[test]
    fn only_what_trusted_proxies_wrote_is_believed() {
        let x = |peer: &str, lines: &[&[u8]]| client(ForwardedHeader::XForwardedFor, peer, lines);
        for (peer, lines, expected) in [
            ("10.0.0.1", &[&b"6.6.6.6, 203.0.113.7"[..]][..], "203.0.113.7"),
            ("198.51.100.9", &[b"203.0.113.7"], "198.51.100.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[b"203.0.113.7, 10.0.0.3 , 10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &[b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Several lines are one list, in their order.
            ("10.0.0.1", &[b"6.6.6.6", b"203.0.113.7", b"10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &[b"203.0.113.7", b"6.6.6.6"], "6.6.6.6"),
            ("::ffff:10.0.0.1", &[b"::ffff:203.0.113.7"], "203.0.113.7"),
            ("fd00::1", &[b"2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &[b"203.0.113.7:4711"], "203.0.113.7"),
            ("10.0.0.1", &[b"[2001:db8::7]:4711"], "2001:db8::7"),
            ("10.0.0.1", &[b"[2001:db8::7]"], "2001:db8::7"),
            ("10.0.0.1", &[b"fe80::7%eth0"], "fe80::7"),
            ("10.0.0.1", &[b"\t203.0.113.7 "], "203.0.113.7"),
            // This header has no quoted strings: a quote of the client's does not hide what the proxy wrote behind it.
            ("10.0.0.1", &[b"\", 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &[b"6.6.6.6, \"6.6.6.6, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        ] {
            assert_eq!(x(peer, lines), expected, "{peer} {lines:?}");
        }
        // Junk ends the walk at the proxy that reported it.
        for junk in [
            &b"unknown"[..],
            b"",
            b",",
            b"\xff\xfe",
            b"203.0.113.7 6.6.6.6",
            b"1.2.3",
            b"1.2.3.4.5",
            b"01.2.3.4",
            b"[::1",
            b"[::1]x",
            b"[::1]:99999",
            b"::1]",
            b"203.0.113.7:x",
            b"203.0.113.7:99999",
            b"_hidden",
            b"localhost",
            b"%eth0",
            b"1.2.3.4%e",
            b"0x7f000001",
        ] {
            assert_eq!(x("10.0.0.1", &[b"6.6.6.6", junk]), "10.0.0.1", "{junk:?}");
            let line = [b"6.6.6.6, ", junk, b", 10.0.0.2"].concat();
            // (an empty entry too)
            assert_eq!(x("10.0.0.1", &[&line]), "10.0.0.2", "{junk:?}");
        }
    }

    #[test]
    fn the_standard_header_is_read_by_its_grammar() {
        let forwarded = |line: &str| client(ForwardedHeader::Forwarded, "10.0.0.1", &[line.as_bytes()]);
        for (line, expected) in [
            ("for=6.6.6.6, for=203.0.113.7;proto=https;by=10.0.0.1", "203.0.113.7"),
            ("For=\"[2001:db8::7]:4711\"", "2001:db8::7"),
            ("proto=http; for = 203.0.113.7", "203.0.113.7"),
            // A comma or a semicolon in a quoted string separates nothing.
            ("for=203.0.113.7;host=\"a,for=6.6.6.6;for=6.6.6.6\"", "203.0.113.7"),
            ("for=203.0.113.7;host=\"a\\\",for=6.6.6.6\"", "203.0.113.7"),
            ("for=6.6.6.6;for=203.0.113.7", "10.0.0.1"),
            ("for=_hidden", "10.0.0.1"),
            ("for=unknown", "10.0.0.1"),
            ("proto=http", "10.0.0.1"),
            ("for=\"203.0.113.7", "10.0.0.1"),
            // A client's quoted string that is not closed swallows what the proxy wrote behind it: nothing is read then.
            ("for=6.6.6.6;host=\", for=203.0.113.7", "10.0.0.1"),
            ("for=6.6.6.6;host=\", for=\"203.0.113.7:4711\"", "10.0.0.1"),
            ("for=6.6.6.6;host=\"\\, for=203.0.113.7;host=\"a\"", "10.0.0.1"),
            ("for=6.6.6.6, host=\", for=203.0.113.7", "10.0.0.1"),
            // Nor where a quote that the proxy escaped closes the client's.
            ("for=6.6.6.6;host=\", for=203.0.113.7;host=\"a\\\"b\"", "10.0.0.1"),
            ("for=6.6.6.6;host=\", for=203.0.113.7;host=\";x=\"", "10.0.0.1"),
            ("for=203.0.113.7;host = \t\"a\" ;proto=\"https\" , for=10.0.0.2", "203.0.113.7"),
        ] {
            assert_eq!(forwarded(line), expected, "{line}");
        }
    }

    #[test]
    fn a_peer_without_an_address_is_trusted_only_when_told_so() {
        let proxies = TrustedProxies::new(["10.0.0.0/8"]).unwrap();
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", HeaderValue::from_static("203.0.113.7"));
        assert_eq!(proxies.client(None, &headers), None);
        let client = proxies.trust_unknown_peer(true).client(None, &headers);
        assert_eq!(client, Some([203, 0, 113, 7].into()));
        assert!(TrustedProxies::new(["10.0.0.0/40"]).is_err());
    }
}
