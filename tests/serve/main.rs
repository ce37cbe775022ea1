//! `limiter serve`, run as an operator runs it and asked as other services ask it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

#[path = "../http/client.rs"]
#[expect(dead_code, reason = "the tests of the layer ask for more")]
mod client;
#[cfg(feature = "envoy")]
mod envoy;
mod json;
mod operation;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A server, its addresses, and what it says.
struct Server {
    child: Child,
    lines: mpsc::Receiver<String>,
    http: SocketAddr,
    #[cfg(feature = "envoy")]
    envoy: SocketAddr,
    policy: String,
}

impl Server {
    fn start(name: &str, policy: &str, args: &[&str]) -> Self {
        let path = format!("{}/{name}.toml", env!("CARGO_TARGET_TMPDIR"));
        fs::write(&path, policy).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_limiter"));
        command.args(["serve", "--policy", &path, "--listen", "127.0.0.1:0"]).args(args);
        #[cfg(feature = "envoy")]
        command.args(["--envoy", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let mut server = Self {
            child,
            lines,
            http: ([0, 0, 0, 0], 0).into(),
            #[cfg(feature = "envoy")]
            envoy: ([0, 0, 0, 0], 0).into(),
            policy: path,
        };
        server.http = server.said("limiter: decisions at http://").parse().unwrap();
        #[cfg(feature = "envoy")]
        {
            server.envoy = server.said("limiter: Envoy's rate limit service at ").parse().unwrap();
        }
        server
    }

    /// What follows `start` on the next line that the server says.
    fn said(&self, start: &str) -> String {
        let line = self.lines.recv_timeout(Duration::from_secs(30)).unwrap();
        line.strip_prefix(start).unwrap_or_else(|| panic!("{start}: {line}")).to_owned()
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    async fn post(&self, path: &str, body: &str) -> (u16, serde_json::Value) {
        let bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = client::raw(self.http, bytes.as_bytes()).await.unwrap();
        (reply.status, serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
