//! Three gateways in three processes on one store, under a load generator: together they admit exactly the limit.
//!
//! The gateway is the one of `examples/gateway`. This program starts itself again for each of them, so it has a `main` of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

#[path = "../examples/gateway/app.rs"]
mod app;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::{env, fs, thread};

use limiter_conformance::store::{Kind, start};

/// What all three admit together, before they refuse for as long as the test lasts.
const LIMITS: [(&str, u64); 3] =
    [("1/30d token-bucket burst=600", 600), ("500/1h sliding-log", 500), ("400/366d fixed-window", 400)];
const GATEWAYS: usize = 3;
/// A process that is told to be a gateway: its store, and its policy's file.
const STORE: &str = "LIMITER_TEST_GATEWAY_STORE";
const POLICY: &str = "LIMITER_TEST_GATEWAY_POLICY";

fn main() {
    if let (Ok(store), Ok(policy)) = (env::var(STORE), env::var(POLICY)) {
        return gateway(&store, &policy);
    }
    let stores = [
        (Kind::Redis, "redis", cfg!(feature = "redis")),
        (Kind::Redis, "fred+redis", cfg!(feature = "fred")),
        (Kind::Postgres, "postgres", cfg!(feature = "postgres")),
        (Kind::Etcd, "etcd", cfg!(feature = "etcd")),
    ];
    let mut tested = 0;
    for (kind, scheme, built) in stores {
        if !built {
            println!("{scheme}: this build has no engine for it");
            continue;
        }
        let store = start(kind).unwrap_or_else(|error| panic!("{error}"));
        let url = store.url().replacen("redis:", &format!("{scheme}:"), 1);
        for (number, (limit, granted)) in LIMITS.into_iter().enumerate() {
            let admitted = admitted(&url, &format!("{scheme}-{number}").replace('+', "-"), limit);
            let each = admitted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ");
            println!("{scheme}: {limit}: {each} admitted of {granted}");
            assert_eq!(admitted.iter().sum::<u64>(), granted, "{scheme}: {limit}");
            // Who wins at one key is no promise, but a limit that one gateway used up by itself would show nothing.
            assert!(admitted.iter().filter(|admitted| **admitted > 0).count() > 1, "several had their part: {each}");
            tested += 1;
        }
    }
    assert!(tested > 0, "no engine was tested");
    println!("test result: ok. {tested} passed");
}

/// This process is a gateway, until it is killed.
fn gateway(store: &str, policy: &str) {
    let policy = fs::read_to_string(policy).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let gateway = app::bind("127.0.0.1:0", store, &policy).await.unwrap_or_else(|error| panic!("{error}"));
        println!("{}", gateway.addr);
        gateway.run().await.unwrap();
    });
}

/// What each of three gateways admitted under load.
fn admitted(store: &str, name: &str, limit: &str) -> Vec<u64> {
    let policy = format!("{}/gateway-{name}.toml", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&policy, format!("[[rule]]\nname = \"{name}\"\nkey = \"global\"\nlimit = \"{limit}\"\n")).unwrap();
    let gateways: Vec<Gateway> = (0..GATEWAYS).map(|_| Gateway::start(store, &policy)).collect();
    let loads: Vec<_> = gateways
        .iter()
        .map(|gateway| {
            let addr = gateway.addr.clone();
            thread::spawn(move || load(&addr))
        })
        .collect();
    loads.into_iter().map(|load| load.join().unwrap()).collect()
}

struct Gateway {
    child: Child,
    addr: String,
}

impl Gateway {
    fn start(store: &str, policy: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        let mut child =
            command.env(STORE, store).env(POLICY, policy).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut addr = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut addr).unwrap();
        Self { child, addr: addr.trim().to_owned() }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Loads one gateway for four seconds, and gives how many requests were answered with 200.
///
/// The limit is used up long before the end, so that no request that is in flight when it ends was admitted.
fn load(addr: &str) -> u64 {
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", "8", "--duration", "4s", &format!("http://{addr}/")])
        .output()
        .unwrap_or_else(|error| panic!("wrk: {error}. Install it: apt-get install wrk"));
    let told = String::from_utf8(output.stdout).unwrap();
    let number = |before: &str, after: &str| -> Option<u64> {
        let line = told.lines().find(|line| line.contains(before) && line.contains(after))?;
        let rest = &line[line.find(before)? + before.len()..];
        rest.split_whitespace().next()?.trim_end_matches(',').parse().ok()
    };
    let line = told.lines().find(|line| line.contains(" requests in ")).unwrap_or_else(|| panic!("wrk: {told}"));
    let answered: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    // An answer that was lost may have been one that was admitted.
    assert!(!told.contains("Socket errors"), "{told}");
    answered - number("Non-2xx or 3xx responses: ", "").unwrap_or(0)
}
