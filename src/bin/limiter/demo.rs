//! `limiter demo`: many nodes behind a balancer, once each with its own counters and once with one store.

mod picture;
mod run;

use std::io::{self, Write as _};
use std::sync::Arc;

use limiter::{Backend, Limit, Memory};
use serde::Serialize;

use self::picture::Style;
use self::run::{Outcome, Plan};
use crate::exit::{Exit, Failure};
use crate::{store, terminal};

/// Shows why many nodes need one store: ten times the limit against exactly the limit.
///
/// Some nodes behind a round-robin balancer serve the same traffic twice: first each node counts for itself, then all count
/// in one store. Every node is a thread, every check is asked of the engine and counted. The clock is simulated, so it takes
/// a moment and comes out the same every time.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Exit status: 0 done, 1 it could not be run, 2 a flag is wrong, \
                             4 the store did not decide some checks")]
pub(crate) struct Args {
    /// How many nodes there are
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: u16,

    /// The limit that they are to keep
    #[arg(long, default_value = "100/1m fixed-window")]
    limit: Limit,

    /// How many of the limit's periods it lasts
    #[arg(long, visible_alias = "minutes", value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=60))]
    periods: u32,

    /// Requests in each period, spread evenly over it and over the nodes
    #[arg(long, value_name = "N", default_value = "3000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests: u32,

    /// The store that all nodes share the second time. The run has keys of its own there
    #[arg(long, value_name = "URL", default_value = "memory:")]
    store: String,

    /// Prints the counts as JSON
    #[arg(long)]
    json: bool,

    /// Draws in ASCII, as it does where the locale is not UTF-8
    #[arg(long)]
    ascii: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Told<'a> {
    nodes: u16,
    limit: Limit,
    periods: u32,
    requests: u64,
    /// What the limit grants in all periods together.
    granted: u64,
    own: &'a Outcome,
    shared: &'a Outcome,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let plan = Plan::new(args.limit, args.nodes, args.periods, args.requests);
    let own: Vec<Arc<dyn Backend>> = (0..args.nodes).map(|_| -> Arc<dyn Backend> { Arc::new(Memory::new()) }).collect();
    let store = store::open(&args.store).await?;
    let own = plan.run(&own)?;
    let shared = plan.run(&vec![store; usize::from(args.nodes)])?;
    let mut out = io::stdout().lock();
    let written = if args.json {
        let (nodes, limit, periods) = (args.nodes, args.limit, args.periods);
        let told =
            Told { nodes, limit, periods, requests: plan.asked(), granted: plan.granted(), own: &own, shared: &shared };
        serde_json::to_writer(&mut out, &told).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        let style = Style { unicode: !args.ascii && terminal::is_unicode(), coloured: terminal::is_coloured() };
        picture::write(&mut out, &plan, &own, &shared, style)
    };
    written.and_then(|()| out.flush()).map_err(Failure::output)?;
    let undecided = own.undecided + shared.undecided;
    if undecided > 0 {
        let reason = shared.reason.as_deref().or(own.reason.as_deref()).unwrap_or_default();
        terminal::tell(&format!("{undecided} checks were not decided, such as one by reason of: {reason}"));
        return Ok(Exit::Undecided);
    }
    Ok(Exit::Done)
}
