//! Whatever a client sends, the service goes on, nobody else's limit is touched, and nothing of it comes back in a header.

use super::client::{get, raw, send};
use super::{layer, page};

/// `closed`: an error of the store would be a 503, and seen.
const POLICY: &str = "on_failure = \"closed\"\n[[rule]]\nname = \"key\"\nkey = \"header:x-key,endpoint,method\"\nlimit = \"1/1h sliding-log\"\n\
                      when = { header.x-when = \"*\" }\n[[rule]]\nname = \"all\"\nkey = \"global\"\nlimit = \"100000/1h fixed-window\"\n";

#[tokio::test]
async fn bytes_of_any_kind_are_a_key() {
    let addr = page(layer(POLICY)).await;
    for value in [
        &b"}{"[..],
        b"{}",
        b"a{b}c",
        b"%00",
        b"\x80\xfe\xff",
        b"\"\\,;=",
        b"",
        b"a:b",
        &b"x".repeat(129),
        &b"x".repeat(3_000),
        &b"x".repeat(60_000),
    ] {
        let line = [b"X-Key: ", value].concat();
        let reply = get(addr, "/", &[b"X-When: 1", &line]).await;
        assert_eq!(reply.status, 200, "{value:?}");
        assert_eq!(get(addr, "/", &[b"X-When: 1", &line]).await.status, 429, "a key of its own: {value:?}");
        for (name, text) in &reply.headers {
            assert!(text.is_ascii() && !text.contains("x".repeat(129).as_str()), "{name}: {text}");
        }
    }
    // `}{` in the path is no path that a router has; it is counted all the same.
    assert_eq!(get(addr, "/%7D%7B", &[b"X-When: 1"]).await.status, 404);
}

#[tokio::test]
async fn what_is_no_request_harms_nobody() {
    let addr = page(layer(POLICY)).await;
    let big =
        [b"GET / HTTP/1.1\r\nHost: t\r\nX-When: 1\r\nX-Key: ".to_vec(), vec![b'x'; 2 << 20], b"\r\n\r\n".to_vec()]
            .concat();
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\nHost: t\r\nX-K\x80y: 1\r\n\r\n"[..], 400),
        (b"GET / HTTP/1.1\r\nHost: t\r\nX-Key: a\0b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: t\r\nX-Key: a\rX-Evil: 1\r\n\r\n", 400),
        (b"\xff\xff\xff\xff / HTTP/1.1\r\n\r\n", 400),
        (&big, 431),
    ] {
        // A server may close before all of it is read; what it says is a refusal, and never a 503 of ours.
        if let Some(reply) = raw(addr, bytes).await {
            assert_eq!(reply.status, expected, "{:?}", &bytes[..40.min(bytes.len())]);
        }
        assert_eq!(get(addr, "/", &[]).await.status, 200, "the service goes on");
    }
    // A split line is two headers, and comes back in none.
    let reply = get(addr, "/", &[b"X-When: 1", b"X-Key: a\r\nX-RateLimit-Limit: 7\r\nSet-Cookie: evil=1"]).await;
    assert_eq!((reply.status, reply.one("set-cookie")), (200, None));
    // A method of one's own is a method.
    assert_eq!(send(addr, "X", "/", &[b"X-When: 1"]).await.unwrap().status, 405);
}

#[tokio::test]
async fn many_header_lines_are_no_way_around() {
    let proxies = limiter::http::TrustedProxies::new(["127.0.0.0/8"]).unwrap();
    let addr = page(layer(&super::by_ip("1/1h sliding-log")).trusted_proxies(proxies)).await;
    let spoofed: Vec<String> = (0..60).map(|last| format!("X-Forwarded-For: 9.9.9.{last}, 8.8.8.{last}")).collect();
    let mut lines: Vec<&[u8]> = spoofed.iter().map(String::as_bytes).collect();
    lines.push(b"X-Forwarded-For: 203.0.113.7");
    assert_eq!(get(addr, "/", &lines).await.status, 200);
    lines.rotate_left(7);
    lines.retain(|line| !line.ends_with(b"203.0.113.7"));
    lines.push(b"X-Forwarded-For: 203.0.113.7");
    assert_eq!(get(addr, "/", &lines).await.status, 429);
}
