//! What a refusal looks like.

use axum::body::Bytes;
use axum::http::{Response, StatusCode};
use limiter::http::Refusal;

use super::client::{get, send};
use super::{by_ip, layer, page};

const POLICY: &str = "[[rule]]\nname = \"login\"\nkey = \"ip\"\nlimit = \"2/1h sliding-log\"\n[endpoints]\n\"/items/*\" = 3\n\
                      [deny]\nheader.x-bad = \"*\"\n";

fn policy() -> String {
    // Kept from the check at load by a condition, as a real one may be.
    POLICY.replace("limit =", "when = { endpoint = \"*\" }\nlimit =")
}

#[tokio::test]
async fn a_refusal_is_json_by_default() {
    let addr = page(layer(&policy())).await;
    get(addr, "/", &[]).await;
    get(addr, "/", &[]).await;
    let refused = get(addr, "/", &[]).await;
    assert_eq!((refused.status, refused.one("content-type")), (429, Some("application/json")));
    let body: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    let wait = refused.number("retry-after");
    assert_eq!(body, serde_json::json!({"error": "rate-limited", "rule": "login", "retry_after": wait}));
    assert_eq!(refused.one("content-length"), Some(refused.body.len().to_string().as_str()));
    let listed = get(addr, "/", &[b"X-Bad: 1"]).await;
    assert_eq!((listed.status, listed.body.as_str()), (403, r#"{"error":"denied"}"#));
    assert!(listed.one("retry-after").is_none() && listed.limits().is_empty());
    let costly = get(addr, "/items/1", &[]).await;
    assert_eq!((costly.status, costly.body.as_str()), (400, r#"{"error":"cost-exceeds-limit","rule":"login"}"#));
    assert!(costly.one("retry-after").is_none(), "no wait would help");
    let head = send(addr, "HEAD", "/", &[]).await.unwrap();
    assert_eq!((head.status, head.body.as_str()), (429, ""));
}

#[tokio::test]
async fn a_refusal_may_be_problem_details() {
    let addr = page(layer(&by_ip("1/1h sliding-log")).refusal(Refusal::Problem)).await;
    get(addr, "/", &[]).await;
    let refused = get(addr, "/", &[]).await;
    assert_eq!((refused.status, refused.one("content-type")), (429, Some("application/problem+json")));
    let body: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&body["status"], &body["violated-policies"]), (&429.into(), &serde_json::json!(["all"])));
}

#[tokio::test]
async fn a_refusal_may_be_the_users_own() {
    let refusal = Refusal::own(|answer| {
        let rule = answer.refused_by.as_deref().unwrap_or_default().to_owned();
        Response::builder().status(StatusCode::IM_A_TEAPOT).header("x-own", "yes").body(Bytes::from(rule)).unwrap()
    });
    let addr = page(layer(&by_ip("1/1h sliding-log")).refusal(refusal)).await;
    get(addr, "/", &[]).await;
    let refused = get(addr, "/", &[]).await;
    assert_eq!((refused.status, refused.body.as_str(), refused.one("x-own")), (418, "all", Some("yes")));
    assert!(refused.number("retry-after") > 3_590 && refused.limits().len() == 5);
}

#[tokio::test]
async fn grpc_has_its_own_refusal() {
    let addr = page(layer(&by_ip("1/1h sliding-log")).refusal(Refusal::Problem)).await;
    get(addr, "/", &[]).await;
    for (kind, expected) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web-text; x=y", "application/grpc-web-text"),
    ] {
        let refused = get(addr, "/", &[format!("Content-Type: {kind}").as_bytes()]).await;
        assert_eq!((refused.status, refused.one("content-type")), (200, Some(expected)));
        assert_eq!((refused.one("grpc-status"), refused.body.as_str()), (Some("8"), ""));
        assert!(refused.one("grpc-status-details-bin").is_some());
    }
}
