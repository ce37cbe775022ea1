//! TLS to a real server, with certificates that are made here: who is let in, and what is said to the others.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter_conformance::store::{Kind, Launch, Store};
use limiter_core::{Backend, Batch, Error, ErrorKind, Key, Request};
use limiter_etcd::{Config, Etcd};
use support::with_auth;
use tempfile::TempDir;

/// What an attempt may take: enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// In no error, whatever happens.
const MARKER: &str = "m4rk3r";

fn openssl(dir: &TempDir, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(dir.path()).output();
    let output = output.unwrap_or_else(|error| panic!("certificates are made by the program openssl: {error}"));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two authorities; the first vouches for a server, by the name `localhost` and by address, and for a client.
fn certificates() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n\
                 extendedKeyUsage=serverAuth,clientAuth\n";
    std::fs::write(dir.path().join("names"), names).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for authority in ["ca", "other"] {
        openssl(
            &dir,
            &format!(
                "req -x509 {key} -keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority} \
                 -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign"
            ),
        );
    }
    for (who, authority) in [("server", "ca"), ("client", "ca"), ("stranger", "other")] {
        openssl(&dir, &format!("req {key} -keyout {who}.key -out {who}.csr -subj /CN={who}"));
        openssl(
            &dir,
            &format!(
                "x509 -req -in {who}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {who}.pem \
                 -days 2 -extfile names"
            ),
        );
    }
    dir
}

/// What makes a server speak TLS on another port, and that port.
fn launch(certificates: &TempDir) -> (Launch, u16) {
    let file = |name: &str| certificates.path().join(name).display().to_string();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let launch = Launch::new(Kind::Etcd)
        .option("tls-port", port.to_string())
        .option("cert-file", file("server.pem"))
        .option("key-file", file("server.key"));
    (launch, port)
}

fn server(certificates: &TempDir) -> (Store, u16) {
    let (launch, port) = launch(certificates);
    (launch.start().unwrap(), port)
}

fn pem(certificates: &TempDir, name: &str) -> Vec<u8> {
    std::fs::read(certificates.path().join(name)).unwrap()
}

fn config(url: &str) -> Config {
    Config::from_url(url).unwrap().connect_timeout(PATIENCE).call_timeout(PATIENCE)
}

/// What is left of three after one more was taken.
async fn left(engine: &Etcd) -> u64 {
    let request = Request::take(Key::new("t", "tls", ["key"]), "3/1h fixed-window".parse().unwrap(), 1).unwrap();
    let batch = Arc::new(Batch::of(request));
    let outcome = engine.submit(Arc::clone(&batch)).await.remove(0);
    let decisions = outcome.decisions(batch.requests.first().unwrap());
    decisions.unwrap_or_else(|_| panic!("{outcome:?}")).layers().first().unwrap().remaining
}

/// An error within the timeout that says nothing of the user, the password and the address.
async fn fails(config: Config) -> Error {
    let began = Instant::now();
    let error = Etcd::connect(config).await.unwrap_err();
    println!("{error}");
    let took = began.elapsed();
    assert!(took < PATIENCE + Duration::from_secs(1), "{error} after {took:?}");
    let told = format!("{error} {error:?}");
    for secret in [MARKER, "limiter:", "localhost", "127.0.0.1"] {
        assert!(!told.contains(secret), "{told}");
    }
    error
}

#[tokio::test]
async fn a_server_is_reached_by_tls_and_is_who_it_says() {
    let certificates = certificates();
    let (_store, port) = server(&certificates);
    for (host, due) in [("localhost", 2), ("127.0.0.1", 1)] {
        let config = config(&format!("etcds://{host}:{port}")).root_certificate(pem(&certificates, "ca.pem"));
        let engine = Etcd::connect(config).await.unwrap();
        assert_eq!(left(&engine).await, due, "{host}");
    }
}

#[tokio::test]
async fn whom_the_authority_does_not_vouch_for_is_not_spoken_to() {
    let certificates = certificates();
    let (store, port) = server(&certificates);
    let url = format!("etcds://limiter:{MARKER}@localhost:{port}");
    // Another authority's word does not count, nor do the usual ones for this server.
    let error = fails(config(&url).root_certificate(pem(&certificates, "other.pem"))).await;
    assert!(error.kind() == ErrorKind::NotSent && error.to_string().contains("certificate"), "{error}");
    let error = fails(config(&url)).await;
    assert!(error.kind() == ErrorKind::NotSent && error.to_string().contains("certificate"), "{error}");
    // Something that is no certificate vouches for nobody.
    let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let error = fails(config(&url).root_certificate(nonsense)).await;
    assert!(error.kind() == ErrorKind::NotSent && error.to_string().contains("certificate"), "{error}");
    // No TLS where TLS is spoken, and the other way round.
    let error = fails(config(&format!("etcd://localhost:{port}"))).await;
    assert!(error.kind() == ErrorKind::NotSent, "{error}");
    let error = fails(config(&format!("etcd://limiter:{MARKER}@localhost:{port}"))).await;
    assert!(error.kind() == ErrorKind::NotSent, "{error}");
    let plain = format!("etcds://limiter:{MARKER}@{}", store.addr());
    let error = fails(config(&plain).root_certificate(pem(&certificates, "ca.pem"))).await;
    assert!(error.kind() == ErrorKind::NotSent && error.to_string().contains("TLS"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_one() {
    let certificates = certificates();
    let (launch, port) = launch(&certificates);
    let authority = certificates.path().join("ca.pem").display().to_string();
    let _store = launch.option("client-cert-auth", "true").option("trusted-ca-file", authority).start().unwrap();
    let config = || config(&format!("etcds://localhost:{port}")).root_certificate(pem(&certificates, "ca.pem"));
    let shown = |who: &str| {
        config().identity(pem(&certificates, &format!("{who}.pem")), pem(&certificates, &format!("{who}.key")))
    };
    assert_eq!(left(&Etcd::connect(shown("client")).await.unwrap()).await, 2);
    // None, one that another authority vouches for, and one whose key is not its own.
    for config in [config(), shown("stranger")] {
        let error = fails(config).await;
        assert!(error.kind() == ErrorKind::NotSent, "{error}");
    }
    let mixed = config().identity(pem(&certificates, "client.pem"), pem(&certificates, "stranger.key"));
    assert_eq!(fails(mixed).await.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn users_are_let_in_over_tls() {
    let certificates = certificates();
    let (store, port) = server(&certificates);
    with_auth(&store).await;
    let config =
        |user: &str| config(&format!("etcds://{user}localhost:{port}")).root_certificate(pem(&certificates, "ca.pem"));
    assert_eq!(left(&Etcd::connect(config("limiter:s3cr3t@")).await.unwrap()).await, 2);
    for (user, why) in [(format!("limiter:{MARKER}@"), "the user or the password"), (String::new(), "wants a user")] {
        let error = fails(config(&user)).await;
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains(why), "{error}");
    }
}
