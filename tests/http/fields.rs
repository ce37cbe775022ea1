//! What a client is told of its limits: each field once, in its syntax, of the tightest limit.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get as route;
use limiter::http::{Fields, Reset};

use super::client::{Reply, get};
use super::{by_ip, layer, page, serve};

/// Reads a list of the structured fields' kind that ours are: strings with parameters that are whole numbers.
fn items(field: &str) -> Vec<(String, Vec<(String, u64)>)> {
    let item = |item: &str| {
        let mut parts = item.split(';');
        let name = parts.next().unwrap().strip_prefix('"').unwrap().strip_suffix('"').unwrap();
        assert!(name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'), "{item}");
        let parameters = parts.map(|parameter| {
            let (key, number) = parameter.split_once('=').unwrap();
            assert!(key.bytes().all(|byte| byte.is_ascii_lowercase()) && number.len() <= 15, "{item}");
            assert!(number.bytes().all(|byte| byte.is_ascii_digit()), "{item}");
            (key.to_owned(), number.parse().unwrap())
        });
        (name.to_owned(), parameters.collect())
    };
    field.split(", ").map(item).collect()
}

fn x(reply: &Reply) -> [u64; 3] {
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| reply.number(name))
}

#[tokio::test]
async fn every_answer_tells_the_limit_and_a_refusal_the_wait() {
    let addr = page(layer(&by_ip("3/1h sliding-log"))).await;
    for left in [2, 1, 0] {
        let reply = get(addr, "/", &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "page"));
        assert_eq!(x(&reply)[..2], [3, left]);
        assert!((3_590..=3_600).contains(&x(&reply)[2]));
        assert_eq!(reply.one("ratelimit-policy"), Some("\"all\";q=3;w=3600"));
        assert!(reply.one("ratelimit").unwrap().starts_with(&format!("\"all\";r={left};t=3")));
        assert_eq!((reply.one("retry-after"), reply.one("x-ratelimit-latency-ms")), (None, None));
    }
    let refused = get(addr, "/", &[]).await;
    assert_eq!((refused.status, x(&refused)[1]), (429, 0));
    let wait = refused.number("retry-after");
    assert!((3_590..=3_600).contains(&wait));
    assert_eq!(refused.one("ratelimit").unwrap(), format!("\"all\";r=0;t={wait}"));
    assert_eq!(x(&refused)[2], wait);
}

/// BUGS B66: the header is rounded up and never 0, and who waits exactly that long is admitted.
#[tokio::test]
async fn who_waits_as_long_as_told_is_admitted() {
    let addr = page(layer(&by_ip("5/1s token-bucket burst=1"))).await;
    assert_eq!(get(addr, "/", &[]).await.status, 200);
    for _ in 0..2 {
        let refused = get(addr, "/", &[]).await;
        assert_eq!((refused.status, refused.one("retry-after")), (429, Some("1")));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reply = get(addr, "/", &[]).await;
        assert_eq!(reply.status, 200);
        // 5 a second with room for one: full again in a fifth of a second, which no field can tell.
        assert_eq!(reply.one("ratelimit-policy"), Some("\"all\";q=1"));
    }
}

/// BUGS B71: of several limits, the fields tell the tightest, once.
#[tokio::test]
async fn several_limits_are_told_by_the_tightest() {
    let policy = "[[rule]]\nname = \"wide\"\nkey = \"global\"\nlimit = \"20/1m fixed-window\"\n\
                  [[rule]]\nname = \"narrow\"\nkey = \"ip\"\nlimit = \"2/1h sliding-log\"\n";
    let addr = page(layer(policy)).await;
    for (status, left) in [(200, 1), (200, 0), (429, 0)] {
        let reply = get(addr, "/", &[]).await;
        assert_eq!((reply.status, x(&reply)[..2].to_vec()), (status, vec![2, left]));
        let names =
            |field: &str| items(reply.one(field).unwrap()).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("ratelimit"), ["narrow", "wide"], "the tightest first");
        assert_eq!(names("ratelimit-policy"), ["narrow", "wide"]);
    }
    let wide = &items(get(addr, "/", &[]).await.one("ratelimit").unwrap())[1].1;
    assert_eq!(wide[0], ("r".to_owned(), 18), "a refused request was charged nowhere");
}

#[tokio::test]
async fn nested_layers_tell_each_field_once() {
    let inner = "[[rule]]\nname = \"inner\"\nkey = \"ip\"\nlimit = \"9/1h sliding-log\"\n";
    for (outer, expected) in [("5/1h sliding-log", [5, 4]), ("50/1h sliding-log", [9, 8])] {
        let router = Router::new().route("/", route(async || "page")).layer(layer(inner)).layer(layer(&by_ip(outer)));
        let reply = get(serve(router).await, "/", &[]).await;
        assert_eq!(x(&reply)[..2], expected);
        let told = items(reply.one("ratelimit").unwrap());
        assert_eq!((told.len(), told[0].1[0].1), (2, expected[1]), "the tightest first: {told:?}");
        assert_eq!(items(reply.one("ratelimit-policy").unwrap()).len(), 2);
    }
    // The same layer twice charges twice, and tells its rule once.
    let twice = layer(&by_ip("9/1h sliding-log"));
    let router = Router::new().route("/", route(async || "page")).layer(twice.clone()).layer(twice);
    let reply = get(serve(router).await, "/", &[]).await;
    assert_eq!((x(&reply)[1], items(reply.one("ratelimit").unwrap()).len()), (7, 1));
    // What an inner layer refuses is told as it refused it.
    let router = Router::new().route("/", route(async || "page"));
    let router = router
        .layer(layer(&inner.replace("9/1h", "1/1h")))
        .layer(layer(&by_ip("1/1m fixed-window burst=1").replace(" burst=1", "")));
    let addr =
        serve(router.layer(layer("[[rule]]\nname = \"far\"\nkey = \"ip\"\nlimit = \"99/1h sliding-log\"\n"))).await;
    get(addr, "/", &[]).await;
    let refused = get(addr, "/", &[]).await;
    assert_eq!((refused.status, x(&refused)[1]), (429, 0));
    refused.number("retry-after");
}

#[tokio::test]
async fn a_stricter_word_of_the_service_stays() {
    let service = |remaining: &'static str| async move {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-limit", "77".parse().unwrap());
        headers.insert("x-ratelimit-remaining", remaining.parse().unwrap());
        headers.insert("x-ratelimit-reset", "7".parse().unwrap());
        headers.append("ratelimit", "\"db\";r=1;t=2".parse().unwrap());
        headers.append("ratelimit", "\"disk\";r=3;t=4".parse().unwrap());
        (headers, "page")
    };
    for (remaining, expected) in [("1", [77, 1]), ("76", [9, 8]), ("none", [9, 8])] {
        let router =
            Router::new().route("/", route(move || service(remaining))).layer(layer(&by_ip("9/1h sliding-log")));
        let reply = get(serve(router).await, "/", &[]).await;
        assert_eq!(x(&reply)[..2], expected);
        let told: HashSet<String> = items(reply.one("ratelimit").unwrap()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(told, HashSet::from(["all", "db", "disk"].map(str::to_owned)));
    }
}

#[tokio::test]
async fn the_fields_are_chosen() {
    let with = async |fields: Fields| {
        let addr = page(layer(&by_ip("1/1h sliding-log")).fields(fields)).await;
        (get(addr, "/", &[]).await, get(addr, "/", &[]).await)
    };
    let (passed, refused) = with(Fields::none()).await;
    assert!(passed.limits().is_empty() && refused.limits().is_empty());
    assert!(refused.number("retry-after") > 3_590, "a refusal says when, all the same");
    let (passed, _) = with(Fields::none().ietf(true)).await;
    assert_eq!(passed.limits().len(), 2);
    let (passed, _) = with(Fields::none().x_rate_limit(Some(Reset::Epoch)).latency(true)).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!((now + 3_500..=now + 3_601).contains(&x(&passed)[2]));
    let (whole, decimals) = passed.one("x-ratelimit-latency-ms").unwrap().split_once('.').unwrap();
    assert!(whole.parse::<u64>().is_ok() && decimals.len() == 3 && decimals.parse::<u64>().is_ok());
}

/// FAULTS, retry stampede: jitter spreads, and only upwards.
#[tokio::test]
async fn jitter_spreads_who_comes_back() {
    let fields = Fields::default().jitter(Duration::from_secs(30));
    let addr = page(layer(&by_ip("1/1h fixed-window")).fields(fields)).await;
    get(addr, "/", &[]).await;
    let mut waits = HashSet::new();
    for _ in 0..60 {
        let refused = get(addr, "/", &[]).await;
        let (wait, told) = (refused.number("retry-after"), x(&refused)[2]);
        assert!((told..=told + 31).contains(&wait), "{wait} {told}");
        waits.insert(wait - told);
    }
    assert!(waits.len() > 10, "{waits:?}");
}
