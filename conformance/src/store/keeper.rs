//! What ends a server when the process that started it cannot.
//!
//! A guard's drop ends a server, also while a panic unwinds. But `exit`, an abort and SIGKILL drop
//! nothing. So each server has a *keeper*: a shell that reads from a pipe which only the starting
//! process can write to. When the pipe closes without a word, the keeper ends the server and
//! removes what it left.
//!
//! The kernel's parent-death signal would not do: it fires when the *thread* that started the
//! server ends, so a server that all tests share would die with the first of them; and it cannot
//! clean up. Ctrl-C does not reach keeper and server, which are in process groups of their own: it
//! ends the tests, and thereby closes the pipe.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::StoreError;

/// A keeper at work. Dropping it without [`leave`](Self::leave) lets it act.
#[derive(Debug)]
pub(super) struct Keeper {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// Starts `script`, which must read lines until their end or until one says `leave`.
    pub(super) fn start<'a>(script: &str, args: impl IntoIterator<Item = &'a OsStr>) -> Result<Self, StoreError> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", script, "limiter-keeper"])
            .args(args)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(StoreError::io("start /bin/sh to watch a server"))?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, pipe })
    }

    /// Tells the keeper something about its server.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), StoreError> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        writeln!(pipe, "{line}").map_err(StoreError::io("tell the keeper of a server"))
    }

    /// Lets the keeper go: its server has been ended.
    pub(super) fn leave(&mut self) -> Result<(), StoreError> {
        self.tell("leave")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.pipe = None;
        self.shell.wait().ok();
    }
}
