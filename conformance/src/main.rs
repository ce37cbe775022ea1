//! The suite as a command of its own. It has no engines but memory; `limiter conformance` has them all.

use std::process::ExitCode;

use clap::Parser;
use limiter_conformance::command::{self, Arguments};

/// Proves a rate limiting engine exact.
#[derive(Debug, Parser)]
#[command(name = "limiter-conformance", version)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    match command::is_worker(command::memory) {
        Ok(false) => command::run(&Cli::parse().arguments, command::memory),
        Ok(true) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("limiter-conformance: {failure}");
            ExitCode::FAILURE
        }
    }
}
