//! `limiter check-policy`: whether a policy file is sound, and what a given request would meet.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use limiter::policy::Policy;

use crate::asked::Asked;
use crate::exit::{Exit, Failure};
use crate::terminal;

/// Reads a policy file, and explains what a request would meet.
///
/// Without a request it says whether the file is sound. No store is asked: it tells which rules apply, under which limit and
/// key, and not how much of them is left.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Exit status: 0 the file is sound, 1 it can't be told, 2 a flag is wrong or the file is not sound"
)]
pub(crate) struct Args {
    /// The policy: a TOML file
    file: PathBuf,

    #[command(flatten)]
    request: Asked,
}

/// The policy in a file.
pub(crate) fn read(file: &Path) -> Result<Policy, Failure> {
    let name = file.to_string_lossy();
    let name = terminal::printable(&name, 256);
    let bytes = fs::read(file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let bytes = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = bytes.split(|byte| *byte == b'\n').count();
        Failure::usage(format!("{name}:{line}: it is not UTF-8"))
    })?;
    Policy::parse(&text).map_err(|error| Failure::usage(error.in_file(&name)))
}

#[expect(clippy::needless_pass_by_value, reason = "as of every command")]
pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let policy = read(&args.file)?;
    let text = if args.request.is_none() {
        let rules = policy.rules();
        let shadow = rules.iter().filter(|rule| rule.is_shadow()).count();
        format!("sound; rules: {}, in shadow mode: {shadow}", rules.len())
    } else {
        policy.explain(&args.request.query()).to_string()
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::output)?;
    Ok(Exit::Done)
}
