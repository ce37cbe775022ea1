//! How a command ends: one place for the exit statuses, which are part of its interface.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// The exit statuses, as `--help` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done.
    Done = 0,
    /// Reading, writing or connecting failed, and the run stopped there.
    Failed = 1,
    /// The command was not given as it should be, or names a file that can't be used. Nothing was done.
    Usage = 2,
    /// Some lines could not be read, or there was none. All others were done.
    Unreadable = 3,
    /// The store did not decide some checks. All others were done.
    Undecided = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Unreadable => 3,
            Exit::Undecided => 4,
        })
    }
}

/// What ends a command before it is done.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// None if nobody is there to be told.
    message: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: Some(message.to_string()) }
    }

    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A failure to write the results. Whoever closed the pipe (`| head`) has seen enough: that is a quiet end.
    #[expect(clippy::needless_pass_by_value, reason = "so that `map_err(Failure::output)` is all there is to write")]
    pub(crate) fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Done, message: None };
        }
        Self::new(Exit::Failed, format!("the results can't be written: {error}"))
    }

    pub(crate) fn report(self) -> Exit {
        if let Some(message) = self.message {
            crate::terminal::tell(&message);
        }
        self.exit
    }
}
