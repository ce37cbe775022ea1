//! The command `limiter`: each subcommand is a module that reads its flags and says how it ended.

mod asked;
mod bench;
mod check_policy;
mod demo;
mod exit;
mod object;
mod replay;
#[cfg(feature = "serve")]
mod serve;
mod store;
mod svg;
mod terminal;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use limiter::Backend;
use limiter_conformance::{BoxError, command};

use crate::exit::{Exit, Failure};

/// Rate limits, tried out: replay a trace through them, or see why many nodes need one store.
#[derive(Debug, Parser)]
#[command(name = "limiter", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Replay(replay::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    CheckPolicy(check_policy::Args),
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    Conformance(command::Arguments),
}

fn main() -> ExitCode {
    // The conformance suite starts this program again, for further clients of one store.
    match command::is_worker(connect) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(failure) => return Failure::new(Exit::Failed, failure).report().into(),
    }
    // A flag that can't be read, `--help` and `--version` end in here, with status 2, 0 and 0.
    let cli = Cli::parse();
    let ended = match cli.command {
        Command::Conformance(arguments) => return command::run(&arguments, connect),
        Command::Replay(args) => runtime().and_then(|runtime| runtime.block_on(replay::run(args))),
        Command::CheckPolicy(args) => check_policy::run(args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => servers().and_then(|runtime| runtime.block_on(serve::run(args))),
        Command::Bench(args) => servers().and_then(|runtime| runtime.block_on(bench::run(args))),
        Command::Demo(args) => runtime().and_then(|runtime| runtime.block_on(demo::run(args))),
    };
    ended.unwrap_or_else(Failure::report).into()
}

/// A client for the conformance suite, which tests what a service gets: the engine, asked in groups.
async fn connect(url: String) -> Result<Arc<dyn Backend>, BoxError> {
    Ok(limiter::connect(&url).await?)
}

/// A command reads its input on the main thread, where it may block; what a store's driver has to do meanwhile runs on the
/// other.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("no threads to run on: {error}")))
}

/// A server runs on all processors, and so does a load.
fn servers() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("no threads to run on: {error}")))
}
