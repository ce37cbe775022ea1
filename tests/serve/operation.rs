//! Running it: health, figures, a policy that is read again, and the end.

use std::fs;
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Server;
use super::client::get;

const POLICY: &str = "[[rule]]\nname = \"all\"\nkey = \"user\"\nlimit = \"2/1h fixed-window\"\n";

#[tokio::test]
async fn health_and_figures_are_told() {
    let server = Server::start("health", POLICY, &[]);
    assert_eq!(get(server.http, "/health", &[]).await.body, r#"{"status":"ok"}"#);
    assert_eq!(get(server.http, "/ready", &[]).await.body, r#"{"status":"ready"}"#);
    for user in 0..30 {
        for _ in 0..3 {
            server.post("/check", &format!(r#"{{"user":"marker{user}\"\n}}"}}"#)).await;
        }
    }
    let figures = get(server.http, "/metrics", &[]).await.body;
    assert!(figures.contains("limiter_rule_decisions_total{rule=\"all\",outcome=\"allowed\"} 60\n"), "{figures}");
    assert!(figures.contains("limiter_rule_decisions_total{rule=\"all\",outcome=\"limited\"} 30\n"), "{figures}");
    // FAULTS: no key is a label, and no line is a client's.
    assert!(figures.lines().count() == 5 && !figures.contains("marker"), "{figures}");
}

#[tokio::test]
async fn a_policy_is_read_again_while_it_runs() {
    let server = Server::start("reload", POLICY, &[]);
    let remaining =
        async || server.post("/check", r#"{"user":"u"}"#).await.1["rules"][0]["remaining"].as_u64().unwrap();
    assert_eq!(remaining().await, 1);
    fs::write(&server.policy, POLICY.replace("2/1h", "0/1h")).unwrap();
    server.signal("HUP");
    assert!(server.said("limiter: ").ends_with("reload.toml:4:9: rule `all`: limit: amount 0 is under its bound of 1"));
    assert_eq!(server.said("limiter: "), "the policy that was in force stays");
    assert_eq!(remaining().await, 0);
    fs::write(&server.policy, POLICY.replace("2/1h", "5/1h")).unwrap();
    server.signal("HUP");
    assert_eq!(server.said("limiter: "), "the policy was read again; rules: 1");
    assert_eq!(remaining().await, 2, "what was counted counts");
}

#[tokio::test]
async fn a_signal_ends_it_once_its_requests_are_answered() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&format!("end-{signal}"), POLICY, &[]);
        let mut stream = TcpStream::connect(server.http).await.unwrap();
        let body = r#"{"user":"u"}"#;
        let head =
            format!("POST /check HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // A request that is half sent.
        stream.write_all(&body.as_bytes()[..5]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.signal(signal);
        tokio::time::sleep(Duration::from_millis(200)).await;
        stream.write_all(&body.as_bytes()[5..]).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("\"allowed\":true"), "{reply}");
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn what_can_t_be_served_is_told_and_no_secret_with_it() {
    let path = format!("{}/secret.toml", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&path, POLICY).unwrap();
    for (args, status) in [
        (&["--policy", "/no/such/file"][..], 2),
        (&["--policy", &path, "--store", "mysql://user:marker@host"], 2),
        (&["--policy", &path, "--store", "memory:marker"], 2),
        (&["--policy", &path, "--store", "redis://user:marker@127.0.0.1:1/marker"], 2),
        (&["--policy", &path, "--listen", "192.0.2.1:1"], 1),
        (&["--policy", &path, "--listen", "nowhere"], 2),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_limiter")).arg("serve").args(args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        // An engine that this build leaves out is a matter of the flags, one that is away is not.
        assert!(
            output.status.code().is_some_and(|code| code == status || (status == 2 && code == 1)),
            "{args:?}: {told}"
        );
        assert!(!told.is_empty() && !told.contains("marker"), "{args:?}: {told}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_limiter"))
        .args(["serve", "--help"])
        .env("LIMITER_STORE", "redis://user:marker@host")
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("marker"));
}
