//! Why a store could not be had, or not be stopped, killed or asked.

use std::io;
use std::path::PathBuf;

use super::{Kind, Road};

/// Why a store could not be had, or could not be handled as asked.
///
/// Every message names what failed, with which value, and what to do about it. No message holds
/// a URL, since a URL may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Neither a URL, nor a server binary, nor a container engine is there.
    #[error(
        "no {kind} for the tests. Do one of these: install the Debian package `{package}` (or put `{binary}` on PATH); \
         or set {variable} to the URL of a server that tests may write to; \
         or build with the feature `limiter-conformance/containers` where a Docker engine runs \
         (the image is named by {image}). This time: {tried}",
        package = kind.package(),
        binary = kind.binary(),
        variable = kind.url_variable(),
        image = kind.image_variable(),
    )]
    Unavailable {
        /// The store that was asked for.
        kind: Kind,
        /// What was tried, and why each road ended.
        tried: String,
    },
    /// `LIMITER_STORES` forces a road that this launch cannot take.
    #[error("{kind} was to come by the road `{road}`, which is closed here: {why}")]
    Closed {
        /// The store that was asked for.
        kind: Kind,
        /// The road that was forced.
        road: Road,
        /// What closes it, and how to open it.
        why: String,
    },
    /// `LIMITER_STORES` holds a word that names no road.
    #[error("LIMITER_STORES is `{value}`; it may be `env`, `local` or `docker`, or be unset")]
    UnknownRoad {
        /// What the variable holds.
        value: String,
    },
    /// The server was started, and did not come to answer.
    #[error("{kind} did not start: {why}. Its log:\n{log}")]
    NotStarted {
        /// The store that was asked for.
        kind: Kind,
        /// What was seen instead of an answer.
        why: String,
        /// The first and last lines that the server wrote.
        log: String,
    },
    /// The store is not one that this process started, so it is not ours to stop or kill.
    #[error(
        "cannot {what} this {kind}: it came from {variable}, and only what was started here may be touched. \
         Ask for a server of its own with `Launch::own`",
        variable = kind.url_variable(),
    )]
    NotOurs {
        /// The store that it is about.
        kind: Kind,
        /// What was asked.
        what: &'static str,
    },
    /// The server is not running: it was killed and not restarted.
    #[error("cannot {what} this {kind}: it does not run; call `restart` first")]
    Down {
        /// The store that it is about.
        kind: Kind,
        /// What was asked.
        what: &'static str,
    },
    /// A helper program failed.
    #[error("`{program}` failed: {output}")]
    Program {
        /// The program's path.
        program: PathBuf,
        /// What it wrote, or its exit status.
        output: String,
    },
    /// The store answered something else than was expected.
    #[error("{what}: expected {expected}, got {got}")]
    Answer {
        /// What was asked.
        what: String,
        /// What should have come.
        expected: String,
        /// What came.
        got: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The refusal.
        source: io::Error,
    },
}

impl StoreError {
    /// Wraps an operating system error with what was being done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Wraps an errno of a system call with what was being done.
    pub(super) fn errno(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let what = what.into();
        move |errno| Self::Io { what, source: errno.into() }
    }
}
