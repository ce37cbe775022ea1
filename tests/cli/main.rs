//! The command `limiter`, run as people and programs run it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops on the first thing that is not as it should be"
)]

mod access_log;
mod bad_input;
mod bench;
mod check_policy;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod commands;
mod conformance;
mod demo;
mod help;
#[cfg(any(feature = "redis", feature = "fred"))]
mod stores;
mod streams;
mod vectors;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// How a run ended.
#[derive(Debug)]
struct Ended {
    status: i32,
    out: String,
    err: String,
}

impl Ended {
    /// The lines of `--json`.
    fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The words of the first line of output that begins with `name`.
    fn row(&self, name: &str) -> Vec<&str> {
        let line = self.out.lines().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no line {name}: {}", self.out)).split_whitespace().collect()
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limiter"));
    command.args(args).env_remove("LC_ALL").env_remove("LC_CTYPE").env("LANG", "C.UTF-8");
    command
}

/// Runs `limiter` with these bytes on standard input.
fn limiter(args: &[&str], input: impl AsRef<[u8]>) -> Ended {
    let mut child = command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_vec();
    // Written beside the reading: a long answer would fill its pipe before a long input is read.
    let writer = thread::spawn(move || {
        // Who has seen enough stops reading: that is no fault of the test.
        let _closed = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A path in the tests' own folder.
fn scratch(name: &str) -> String {
    format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"))
}
