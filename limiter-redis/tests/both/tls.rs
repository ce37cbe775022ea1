//! TLS, with certificates that are made here. Nothing in this test's program but the engine brings a cryptography provider.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use limiter_conformance::store::{Kind, Launch, Store};
use limiter_core::{Backend, Batch, ErrorKind, Key, Request};
use tempfile::TempDir;

use crate::{Config, Engine};

fn openssl(dir: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(dir).output();
    let output = output.unwrap_or_else(|error| panic!("certificates are made by the program openssl: {error}"));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and a server that it vouches for, by the name `localhost` and by address.
fn certificates() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |words: &str| openssl(dir.path(), words);
    std::fs::write(
        dir.path().join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n",
    )
    .unwrap();
    for authority in ["ca", "other"] {
        at(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {authority}.key -out {authority}.pem \
             -days 2 -subj /CN={authority} -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign"
        ));
    }
    at(
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
    );
    at("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names");
    dir
}

/// A server that speaks TLS on another port, and its TLS address.
fn server(certificates: &Path) -> (Store, u16) {
    let file = |name: &str| certificates.join(name).display().to_string();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let store = Launch::new(Kind::Redis)
        .option("tls-port", port.to_string())
        .option("tls-cert-file", file("server.pem"))
        .option("tls-key-file", file("server.key"))
        .option("tls-ca-cert-file", file("ca.pem"))
        .option("tls-auth-clients", "no")
        .start()
        .unwrap();
    (store, port)
}

fn pem(dir: &TempDir, name: &str) -> Vec<u8> {
    let path: PathBuf = dir.path().join(name);
    std::fs::read(path).unwrap()
}

#[tokio::test]
async fn a_server_is_reached_by_tls_and_is_who_it_says() {
    let certificates = certificates();
    let (store, port) = server(certificates.path());
    let config = |host: &str, authority: &str| {
        let config = Config::from_url(&format!("rediss://{host}:{port}/")).unwrap();
        config.connect_timeout(Duration::from_secs(5)).root_certificate(pem(&certificates, authority))
    };
    for (host, due) in [("localhost", 2), ("127.0.0.1", 1)] {
        let engine = Engine::connect(config(host, "ca.pem")).await.unwrap();
        let request = Request::take(Key::new("t", "tls", ["key"]), "3/1h fixed-window".parse().unwrap(), 1).unwrap();
        let batch = Arc::new(Batch::of(request));
        let outcome = engine.submit(Arc::clone(&batch)).await.remove(0);
        assert_eq!(outcome.decisions(&batch.requests[0]).unwrap().layers()[0].remaining, due, "{host}");
    }
    // Another authority's word does not count, nor do the system's for this server.
    for config in [config("localhost", "other.pem"), Config::from_url(&format!("rediss://localhost:{port}/")).unwrap()]
    {
        let error = Engine::connect(config).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Refused), "{error}");
    }
    // Something that is no certificate.
    let nonsense = Config::from_url(&format!("rediss://localhost:{port}/"))
        .unwrap()
        .root_certificate(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec());
    assert_eq!(Engine::connect(nonsense).await.unwrap_err().kind(), ErrorKind::Refused);
    // No TLS where TLS is spoken, and the other way round.
    for url in [format!("redis://localhost:{port}/"), format!("rediss://{}/", store.addr())] {
        let config = Config::from_url(&url).unwrap().connect_timeout(Duration::from_secs(2));
        assert_eq!(Engine::connect(config).await.unwrap_err().kind(), ErrorKind::NotSent, "{url}");
    }
}
