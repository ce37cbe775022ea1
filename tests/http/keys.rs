//! By whom a request is counted.

use limiter::http::{ForwardedHeader, TrustedProxies};

use super::client::get;
use super::{by_ip, layer, page};

/// The status of requests with these header lines, in turn.
async fn statuses(addr: std::net::SocketAddr, lines: &[&[&str]]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for lines in lines {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        statuses.push(get(addr, "/", &lines).await.status);
    }
    statuses
}

#[tokio::test]
async fn a_forwarded_address_is_not_believed_unless_told_so() {
    let addr = page(layer(&by_ip("1/1h sliding-log"))).await;
    let lines: &[&[&str]] =
        &[&["X-Forwarded-For: 1.1.1.1"], &["X-Forwarded-For: 2.2.2.2"], &["Forwarded: for=3.3.3.3"]];
    assert_eq!(statuses(addr, lines).await, [200, 429, 429]);
    // A proxy of somebody else's.
    let proxies = TrustedProxies::new(["10.0.0.0/8"]).unwrap();
    let addr = page(layer(&by_ip("1/1h sliding-log")).trusted_proxies(proxies)).await;
    assert_eq!(statuses(addr, lines).await, [200, 429, 429]);
}

/// BUGS B78, through a socket: the peer is a trusted proxy.
#[tokio::test]
async fn a_trusted_proxy_tells_its_client_by_the_last_word() {
    let proxies = TrustedProxies::new(["127.0.0.0/8", "10.0.0.0/8"]).unwrap();
    let addr = page(layer(&by_ip("1/1h sliding-log")).trusted_proxies(proxies.clone())).await;
    let lines: &[&[&str]] = &[
        &["X-Forwarded-For: 6.6.6.6, 203.0.113.7"],
        // What a client writes to the left gains nothing, on one line or on several.
        &["X-Forwarded-For: 7.7.7.7, 203.0.113.7"],
        &["X-Forwarded-For: 8.8.8.8", "X-Forwarded-For: 203.0.113.7"],
        &["X-Forwarded-For: 9.9.9.9, 203.0.113.7:999, 10.0.0.9"],
        &["X-Forwarded-For: ::ffff:203.0.113.7"],
        &["Forwarded: for=1.2.3.4", "X-Forwarded-For: 203.0.113.7"],
        // A network of IPv6 is one client.
        &["X-Forwarded-For: 2001:db8::1"],
        &["X-Forwarded-For: 2001:db8::2"],
        &["X-Forwarded-For: [2001:db8::3]:80"],
        &["X-Forwarded-For: 2001:db8:0:1::1"],
        // Junk counts for the proxy.
        &["X-Forwarded-For: junk"],
        &["X-Forwarded-For: 5.5.5.5, more junk"],
    ];
    assert_eq!(statuses(addr, lines).await, [200, 429, 429, 429, 429, 429, 200, 429, 429, 200, 200, 429]);
    let standard = proxies.header(ForwardedHeader::Forwarded);
    let addr = page(layer(&by_ip("1/1h sliding-log")).trusted_proxies(standard)).await;
    let lines: &[&[&str]] =
        &[&["Forwarded: for=6.6.6.6, for=\"[2001:db8::1]:4\""], &["Forwarded: for=\"[2001:db8::2]\""]];
    assert_eq!(statuses(addr, lines).await, [200, 429]);
}

#[tokio::test]
async fn a_header_keys_what_it_names() {
    let policy = "[[rule]]\nname = \"key\"\nkey = \"header:x-api-key\"\nlimit = \"1/1h sliding-log\"\n";
    let addr = page(layer(policy)).await;
    let lines: &[&[&str]] = &[
        &["X-Api-Key: a"],
        &["x-api-key: a"],
        &["X-Api-Key: b"],
        // Twice names nobody: counted by the address, with those that tell none.
        &["X-Api-Key: c", "X-Api-Key: a"],
        &["X-Api-Key: a", "X-Api-Key: d"],
        &[],
        &["X-Api-Key: c"],
    ];
    assert_eq!(statuses(addr, lines).await, [200, 429, 200, 200, 429, 429, 200]);
}

#[tokio::test]
async fn a_function_tells_who_it_is() {
    let policy = "[[rule]]\nname = \"user\"\nkey = \"tenant,user\"\nlimit = \"1/1h sliding-log\"\n";
    let layer = layer(policy).identify(|parts, query| {
        let token = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        match token.and_then(|token| token.strip_prefix("Bearer ")?.split_once('.')) {
            Some((tenant, user)) => query.tenant(tenant).user(user.to_lowercase()),
            None => query,
        }
    });
    let addr = page(layer).await;
    let lines: &[&[&str]] = &[
        &["Authorization: Bearer acme.Ann"],
        &["Authorization: Bearer acme.ann"],
        &["Authorization: Bearer acme.bob"],
        &["Authorization: Bearer zeta.ann"],
        &["Authorization: Basic x"],
        &[],
    ];
    assert_eq!(statuses(addr, lines).await, [200, 429, 200, 200, 200, 429]);
}

/// BUGS B79: the endpoint is the route's pattern, so that path elements give no fresh quota.
#[tokio::test]
async fn a_route_is_counted_by_its_pattern() {
    let policy = "[[rule]]\nname = \"route\"\nkey = \"ip,endpoint\"\nlimit = \"2/1h sliding-log\"\n";
    let addr = page(layer(policy)).await;
    let mut seen = Vec::new();
    for path in ["/items/1", "/items/2", "/items/3", "/", "/items/%34", "/items/5?x=1"] {
        seen.push(get(addr, path, &[]).await.status);
    }
    assert_eq!(seen, [200, 200, 429, 200, 429, 429]);
}
