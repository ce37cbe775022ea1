//! What a client sends is a key like any other: no error, no other's key, no fresh key for free.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use limiter::policy::{Query, Verdict};
use proptest::prelude::*;

use super::{limiter, policy};

const BY_ALL: &str = r#"
[[rule]]
name = "all"
key = "tenant,user,ip,method,endpoint,header:x-key"
limit = "5/1h fixed-window"
"#;

/// The key that a query gets.
fn key(text: &str, query: &Query<'_>) -> String {
    let told = policy(text).explain(query).to_string();
    told.rsplit_once(", key ").unwrap().1.split(' ').next().unwrap().to_owned()
}

fn parts(parts: &[Vec<u8>; 5]) -> Query<'_> {
    let [tenant, user, method, endpoint, header] = parts;
    let query = Query::new().tenant(&tenant[..]).user(&user[..]).method(&method[..]);
    query.endpoint(&endpoint[..]).header("x-key", &header[..]).address([192, 0, 2, 1])
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..6),
        proptest::sample::select(vec![
            &b"}{"[..],
            b"{}",
            b"a{b}c",
            b"\0",
            b"a\0",
            b"\0a",
            b"a:b",
            b"%",
            b"%41",
            b"A",
            b"\r\nX: y",
            b"\xff\xfe",
            b"t=",
            b"",
        ])
        .prop_map(<[u8]>::to_vec),
    ]
}

proptest! {
    #[test]
    fn different_parts_are_different_keys(
        a in proptest::array::uniform5(hostile()),
        b in proptest::array::uniform5(hostile()),
    ) {
        // An endpoint is a path: several spellings of one path are one.
        let endpoint = |parts: &[Vec<u8>; 5]| String::from_utf8_lossy(&parts[3]).contains(['%', '/', '?', '#']);
        prop_assume!(!endpoint(&a) && !endpoint(&b));
        let (one, other) = (key(BY_ALL, &parts(&a)), key(BY_ALL, &parts(&b)));
        prop_assert_eq!(a == b, one == other, "{} {}", one, other);
        prop_assert!(one.bytes().all(|byte| byte.is_ascii_graphic()) && one.len() <= limiter::Key::MAX_LEN);
    }

    /// Keys of one tenant lie in one slot of a cluster, whatever the tenant is called.
    #[test]
    fn one_tenant_has_one_slot(tenant in hostile(), user in hostile()) {
        let text = "[[rule]]\nname = \"a\"\nkey = \"tenant\"\nlimit = \"5/1h fixed-window\"\n\
                    [[rule]]\nname = \"b\"\nkey = \"tenant,user,endpoint\"\nlimit = \"5/1h fixed-window\"\n";
        let told = policy(text).explain(&Query::new().tenant(tenant).user(user).endpoint("}{")).to_string();
        let tags: HashSet<&str> = told.lines().filter(|line| line.starts_with("rule")).map(|line| {
            let key = line.rsplit_once(", key ").unwrap().1;
            // As Redis reads a tag: from the first `{` to the first `}` after it.
            key.split_once('{').unwrap().1.split_once('}').unwrap().0
        }).collect();
        prop_assert_eq!(tags.len(), 1, "{}", told);
    }
}

#[tokio::test]
async fn nothing_that_is_sent_is_an_error_of_the_store() {
    let limiter = limiter(BY_ALL);
    let long = vec![b'x'; 2 << 20];
    for value in [
        &b""[..],
        b"\0",
        b"a\0b",
        b"}{",
        b"{",
        b"\r\n",
        b"\x80\xff",
        b"%",
        &long[..128],
        &long[..129],
        &long[..3_000],
        &long,
    ] {
        let query = Query::new().tenant(value).user(value).method(value).endpoint(value).header("x-key", value);
        let query = query.address([192, 0, 2, 1]);
        let answer = limiter.check(&query).await;
        assert_eq!(answer.verdict, Verdict::Allowed);
        assert_eq!(limiter.peek(&query).await.rules[0].decision.remaining, 4, "a key of its own");
        assert!(key(BY_ALL, &query).len() <= limiter::Key::MAX_LEN);
    }
}

#[test]
fn an_address_is_counted_by_its_network() {
    let text = "[[rule]]\nname = \"a\"\nkey = \"ip\"\nlimit = \"5/1h fixed-window\"\n";
    let key = |address: &str| key(text, &Query::new().address(address.parse::<IpAddr>().unwrap()));
    assert_eq!(key("2001:db8::1"), "rl:{i=2001%3Adb8%3A%3A/64}:a");
    assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
    assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    let wide = format!("ipv6_prefix = 48\n{text}");
    let key = |address: &str| super::security::key(&wide, &Query::new().address(address.parse::<IpAddr>().unwrap()));
    assert_eq!(key("2001:db8::1"), key("2001:db8:0:1::1"));
}

#[test]
fn a_value_of_one_kind_is_none_of_another() {
    let text = |key: &str| format!("[[rule]]\nname = \"a\"\nkey = \"{key}\"\nlimit = \"5/1h fixed-window\"\n");
    let query = Query::new().tenant("192.0.2.1").user("192.0.2.1").address([192, 0, 2, 1]).header("x", "192.0.2.1");
    let keys: HashSet<String> =
        ["tenant", "user", "ip", "header:x", "tenant,user"].iter().map(|recipe| key(&text(recipe), &query)).collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
}

#[tokio::test]
async fn leaving_a_field_out_or_telling_it_twice_gains_nothing() {
    let limiter = limiter("[[rule]]\nname = \"a\"\nkey = \"header:x-key\"\nlimit = \"2/1h fixed-window\"\n");
    let from = |last| Query::new().address([192, 0, 2, last]);
    let mut allowed = 0;
    for round in 0..10 {
        allowed += u8::from(limiter.check(&from(1)).await.is_allowed());
        let twice = from(1).header("x-key", "mine").header("x-key", format!("{round}"));
        allowed += u8::from(limiter.check(&twice).await.is_allowed());
    }
    assert_eq!(allowed, 2, "all are counted by the address");
    assert!(limiter.check(&from(2)).await.is_allowed());
    assert!(limiter.check(&from(1).header("x-key", "mine")).await.is_allowed(), "the key's own quota is untouched");
    // Nor is the address of one the header of another.
    assert!(limiter.check(&from(3).header("x-key", "192.0.2.1")).await.is_allowed());
}

#[tokio::test]
async fn made_up_paths_give_no_fresh_keys() {
    let limiter = limiter(
        "[[rule]]\nname = \"a\"\nkey = \"user,endpoint\"\nlimit = \"2/1h fixed-window\"\n[endpoints]\n\"/orders/*\" = 1\n",
    );
    let mut allowed = HashMap::new();
    for round in 0..10 {
        for path in [format!("/orders/{round}"), format!("/{round}"), format!("/%0{round}")] {
            let answer = limiter.check(&Query::new().user("u").endpoint(&path)).await;
            *allowed.entry(path.starts_with("/orders")).or_insert(0) += u8::from(answer.is_allowed());
        }
    }
    assert_eq!((allowed[&true], allowed[&false]), (2, 2));
}

/// FAULTS B80 and the row on many keys: a sprayer of keys has a wide rule before it, and a victim that is exhausted stays so.
#[tokio::test]
async fn sprayed_keys_do_not_wake_an_exhausted_one_and_are_no_labels() {
    let limiter = limiter("[[rule]]\nname = \"a\"\nkey = \"user\"\nlimit = \"1/1h fixed-window\"\n");
    assert!(limiter.check(&Query::new().user("victim")).await.is_allowed());
    for number in 0..100_000_u32 {
        let _answer = limiter.check(&Query::new().user(&number.to_be_bytes()[..])).await;
    }
    assert!(!limiter.check(&Query::new().user("victim")).await.is_allowed());
    assert_eq!(limiter.counts().len(), 1, "one label, whatever the keys");
}

#[test]
fn who_asks_is_in_no_debug_output() {
    let query = Query::new().tenant("marker-t").user("marker-u").header("x", "marker-h").address([192, 0, 2, 77]);
    let limiter = limiter(BY_ALL);
    let answer = futures_now(limiter.check(&query));
    let shown = format!("{query:?} {limiter:?} {answer:?}");
    assert!(!shown.contains("marker") && !shown.contains("192.0.2.77"), "{shown}");
}

fn futures_now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}
