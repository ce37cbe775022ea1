//! Decisions over JSON.

use serde_json::json;

use super::Server;
use super::client::get;

const POLICY: &str = r#"
[[rule]]
name = "tenant"
key = "tenant"
limit = "4/1h fixed-window"
[[rule]]
name = "user"
key = "tenant,user"
limit = "3/1h sliding-log"
[[rule]]
name = "watched"
key = "header:x-device"
limit = "1/1h sliding-log"
shadow = true
[endpoints]
"POST /search" = 2
[deny]
ip = "192.0.2.0/24"
"#;

#[tokio::test]
async fn a_request_is_decided_peeked_and_refunded() {
    let server = Server::start("json", POLICY, &[]);
    let asked = r#"{"tenant":"acme","user":"7","endpoint":"/search","method":"POST","ip":"198.51.100.1","headers":{"X-Device":"d"}}"#;
    let (status, answer) = server.post("/check", asked).await;
    assert_eq!((status, &answer["allowed"], &answer["verdict"]), (200, &json!(true), &json!("allowed")));
    let rules = answer["rules"].as_array().unwrap();
    assert_eq!(
        rules.iter().map(|rule| (&rule["rule"], &rule["cost"], &rule["remaining"])).collect::<Vec<_>>(),
        [(&json!("tenant"), &json!(2), &json!(2)), (&json!("user"), &json!(2), &json!(1)),]
    );
    assert_eq!(rules[1]["limit"], "3/1h sliding-log");
    assert_eq!(answer["shadow"].as_array().unwrap().len(), 0, "a cost that can never pass counts nothing");
    assert_eq!(answer["receipt"][1]["rule"], "user");
    let (_, refused) = server.post("/check", asked).await;
    assert_eq!(
        (&refused["allowed"], &refused["refused_by"], &refused["receipt"]),
        (&json!(false), &json!("user"), &json!([]))
    );
    assert!(refused["retry_after"].as_u64().unwrap() > 3_590_000_000);
    let receipt = &answer["receipt"];
    let (status, refunded) = server.post("/refund", &format!(r#"{{"request":{asked},"receipt":{receipt}}}"#)).await;
    assert_eq!((status, refunded), (200, json!({"refunded": 2})));
    let (_, peeked) = server.post("/peek", r#"{"tenant":"acme","user":"7","headers":{"x-device":"d"}}"#).await;
    assert_eq!((&peeked["rules"][1]["remaining"], &peeked["receipt"]), (&json!(3), &json!([])));
    assert_eq!(peeked["shadow"][0]["remaining"], 1);
    let (_, listed) = server.post("/check", r#"{"ip":"192.0.2.5"}"#).await;
    assert_eq!((&listed["verdict"], &listed["field"]), (&json!("denied"), &json!("ip")));
    let (_, costly) = server.post("/check", r#"{"tenant":"acme","cost":18446744073709551615}"#).await;
    assert_eq!((&costly["verdict"], &costly["refused_by"]), (&json!("cost-exceeds-limit"), &json!("tenant")));
}

#[tokio::test]
async fn what_can_t_be_read_is_told_and_harms_nobody() {
    let server = Server::start("unreadable", POLICY, &[]);
    for body in [
        "",
        "{",
        "[]",
        r#"{"tenant":7}"#,
        r#"{"cost":-1}"#,
        r#"{"cost":1.5}"#,
        r#"{"cost":1e400}"#,
        r#"{"ip":"x"}"#,
        r#"{"tenannt":"a"}"#,
        "{\"tenant\":\"\u{0}\"}",
    ] {
        let (status, answer) = server.post("/check", body).await;
        assert_eq!(status, 400, "{body}: {answer}");
        assert!(answer["error"].is_string());
    }
    let (status, answer) =
        server.post("/refund", r#"{"request":{},"receipt":[{"rule":"user","at":9007199254740992,"cost":1}]}"#).await;
    assert_eq!(
        (status, answer["error"].as_str().unwrap()),
        (400, "receipt: instant 9007199254740992 µs is over its bound of 9007199254740991 µs")
    );
    // A refund of more than anybody took fills no key above full.
    for cost in [0, 1_000_000_000_001, u64::MAX] {
        let body = format!(
            r#"{{"request":{{"tenant":"t","user":"u"}},"receipt":[{{"rule":"tenant","at":0,"cost":{cost}}}]}}"#
        );
        assert_eq!(server.post("/refund", &body).await.0, 200);
    }
    let (_, peeked) = server.post("/peek", r#"{"tenant":"t","user":"u"}"#).await;
    assert_eq!(peeked["rules"][0]["remaining"], 4);
    let long = format!(r#"{{"tenant":"{}"}}"#, "x".repeat(64 * 1024));
    let head =
        format!("POST /check HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", long.len());
    let reply = super::client::raw(server.http, format!("{head}{long}").as_bytes()).await;
    assert!(reply.is_none_or(|reply| reply.status == 413));
    for tenant in ["}{", "\\u0000", "\\ud83d\\ude00", "a:b", "\\r\\nX: y"] {
        let (status, answer) = server.post("/check", &format!(r#"{{"tenant":"{tenant}","user":"{tenant}"}}"#)).await;
        assert_eq!((status, &answer["allowed"]), (200, &json!(true)), "{tenant}");
    }
    assert_eq!(get(server.http, "/check", &[]).await.status, 405);
    assert_eq!(get(server.http, "/nothing", &[]).await.status, 404);
}
