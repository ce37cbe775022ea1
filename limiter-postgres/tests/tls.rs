//! TLS: the server's certificate is looked at, and without one that is trusted nothing is sent.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use limiter_conformance::store::{Kind, Launch};
use limiter_core::ErrorKind;
use limiter_postgres::Postgres;

use self::support::{config, number, submit, take};

/// A certificate of its own signing for 127.0.0.1, and its key, both the server's user's.
fn certificate(dir: &Path, name: &str) {
    let (key, cert) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.pem")));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args([
        "-subj",
        "/CN=limiter",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    let output = openssl.arg("-keyout").arg(&key).arg("-out").arg(&cert).output().expect("openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    if fs::metadata(&key).unwrap().uid() == 0 {
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let user = users.lines().find_map(|line| line.strip_prefix("postgres:")?.split(':').nth(1)?.parse().ok());
        chown(&key, user, None).unwrap();
    }
}

#[tokio::test]
async fn a_certificate_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    certificate(dir.path(), "server");
    certificate(dir.path(), "other");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let store = Launch::new(Kind::Postgres)
        .option("ssl", "on")
        .option("ssl_cert_file", path("server.pem"))
        .option("ssl_key_file", path("server.key"))
        .start()
        .unwrap();
    let url = |query: &str| format!("{}?{query}", store.url());
    let engine =
        Postgres::connect(config(&url(&format!("sslmode=verify-full&sslrootcert={}", path("server.pem"))))).await;
    let engine = engine.unwrap();
    assert!(submit(&engine, take("k", "5/1s fixed-window")).await.record().unwrap().allowed);
    let encrypted =
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'limiter'";
    assert_eq!(number(&store, encrypted), 1);
    for query in ["sslmode=verify-full".to_owned(), format!("sslmode=verify-ca&sslrootcert={}", path("other.pem"))] {
        let error = Postgres::connect(config(&url(&query))).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("certificate"), "{query}: {error}");
    }
    // A server without TLS, where TLS is asked for.
    let plain = support::server();
    let error = Postgres::connect(config(&format!("{}?sslmode=require", plain.url()))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}
