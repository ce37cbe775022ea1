//! The command `limiter`: each subcommand is a module that reads its flags and says how it ended.

mod demo;
mod exit;
mod replay;
mod store;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

fn main() -> ExitCode {
    // A flag that can't be read, `--help` and `--version` end in here, with status 2, 0 and 0.
    let cli = Cli::parse();
    let ended = runtime().and_then(|runtime| {
        runtime.block_on(async {
            match cli.command {
                Command::Replay(args) => replay::run(args).await,
                Command::Demo(args) => demo::run(args).await,
            }
        })
    });
    ended.unwrap_or_else(Failure::report).into()
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
