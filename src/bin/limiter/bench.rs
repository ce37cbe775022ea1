//! `limiter bench`: what a store does under load, and how long its callers wait.

mod picture;

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use limiter::{Backend, BackendExt, Check, Key, Limit, Op, Request};
use limiter_conformance::load::{self, Load};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::svg::Picture;
use crate::{store, terminal};

/// Measures a store: checks a second, and how long they take.
///
/// Without `--rate` each task asks again as soon as it is answered. With it, checks come at that rate whether or not those
/// before are answered, and a wait counts from when the check was due.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Ctrl-C ends it with the rows that are done.\n\n\
                             Exit status: 0 done, 1 it could not be run, 2 a flag is wrong, \
                             4 the store did not decide some checks")]
pub(crate) struct Args {
    /// The store. The run has keys of its own there, which expire as the limit says
    #[arg(long, value_name = "URL", default_value = "memory:")]
    store: String,

    /// How many tasks ask at once: a row for each number
    #[arg(long, value_name = "N,…", default_value = "1,16,128", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: Vec<u32>,

    /// Over how many keys the checks go, in turn
    #[arg(long, value_name = "N,…", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    keys: Vec<u64>,

    /// How many limits are checked together
    #[arg(long, value_name = "N,…", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=8))]
    layers: Vec<u8>,

    /// The limit of each key
    #[arg(long, default_value = "1000000/1m fixed-window")]
    limit: Limit,

    /// Sends each check by itself, not with those that arrive while a call is in flight
    #[arg(long)]
    no_group_commit: bool,

    /// How long each row takes
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Checks a second, in place of tasks that wait for their answers
    #[arg(long, value_name = "N", conflicts_with = "tasks", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,

    /// Prints a JSON object a line for each row; waits are in ns
    #[arg(long)]
    json: bool,

    /// Draws how long the checks of each row wait, as an SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One row: what was asked, and what came of it.
#[derive(Serialize)]
struct Row {
    tasks: Option<u32>,
    rate: Option<u32>,
    keys: u64,
    layers: u8,
    per_second: u64,
    decided: u64,
    denied: u64,
    errors: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    /// For the picture: of each of its parts the longest wait.
    #[serde(skip)]
    waits: [u64; picture::PARTS.len()],
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let plot = args.plot.as_deref().map(Picture::open).transpose()?;
    let store = if args.no_group_commit { store::engine(&args.store).await? } else { store::open(&args.store).await? };
    let scope = store::own_scope("bench");
    // A store that answers nothing is told at once, not after a row of errors.
    let first = request(&scope, args.limit, 0, 1)?;
    if let Err(error) = decided(store.as_ref(), first).await {
        return Err(Failure::new(Exit::Failed, error));
    }
    let mut rows = Vec::new();
    let all = async {
        for &keys in &args.keys {
            for &layers in &args.layers {
                let loads = args.rate.map_or_else(|| args.tasks.iter().copied().map(Some).collect(), |_| vec![None]);
                for tasks in loads {
                    rows.push(row(&args, &store, &scope, tasks, keys, layers).await?);
                }
            }
        }
        Ok::<_, Failure>(())
    };
    let ended = {
        let (mut all, mut stop) = (pin!(all), pin!(tokio::signal::ctrl_c()));
        poll_fn(|context| match (all.as_mut().poll(context), stop.as_mut().poll(context)) {
            (Poll::Ready(ended), _) => Poll::Ready(ended),
            (_, Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
            (_, Poll::Ready(Err(error))) => Poll::Ready(Err(Failure::new(Exit::Failed, error))),
            _ => Poll::Pending,
        })
        .await
    };
    ended?;
    write(&rows, args.json).map_err(Failure::output)?;
    if let Some(plot) = plot {
        // A URL may hold a password.
        let scheme = args.store.split_once(':').map_or("a store", |(scheme, _)| scheme);
        plot.draw(|out| picture::write(out, scheme, &rows))?;
    }
    Ok(if rows.iter().any(|row| row.errors > 0) { Exit::Undecided } else { Exit::Done })
}

/// `layers` checks of the key `number`, all taken or none.
fn request(scope: &str, limit: Limit, number: u64, layers: u8) -> Result<Request, Failure> {
    let check = |layer| Check::new(Key::new(scope, format!("layer{layer}"), [number.to_string()]), limit, 1);
    Request::new(Op::Take, (0..layers).map(check)).map_err(Failure::usage)
}

/// Whether the store allowed it, or why it did not decide.
async fn decided(store: &dyn Backend, request: Request) -> Result<bool, String> {
    store.ask(request).await.map(|decisions| decisions.allowed).map_err(|error| error.to_string())
}

async fn row(
    args: &Args,
    store: &Arc<dyn Backend>,
    scope: &str,
    tasks: Option<u32>,
    keys: u64,
    layers: u8,
) -> Result<Row, Failure> {
    let requests: Result<Vec<_>, _> = (0..keys).map(|key| request(scope, args.limit, key, layers)).collect();
    let (requests, store, denied) = (Arc::new(requests?), Arc::clone(store), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&denied);
    let ask = move |turn: u64| {
        let (store, denied) = (Arc::clone(&store), Arc::clone(&counted));
        let request = usize::try_from(turn % keys).ok().and_then(|index| requests.get(index)).cloned();
        async move {
            // The memory engine never waits: without this, one task would keep a thread from the others and from Ctrl-C.
            tokio::task::consume_budget().await;
            let Some(request) = request else { return false };
            let decided = decided(store.as_ref(), request).await;
            if decided == Ok(false) {
                denied.fetch_add(1, Ordering::Relaxed);
            }
            decided.is_ok()
        }
    };
    let span = Duration::from_secs(args.seconds);
    let load = match (tasks, args.rate) {
        (None, Some(rate)) => load::open(rate, span, ask).await,
        (tasks, _) => load::closed(tasks.unwrap_or(1), span, ask).await,
    };
    let rate = if tasks.is_none() { args.rate } else { None };
    Ok(Row::new(&load, tasks, rate, keys, layers, denied.load(Ordering::Relaxed)))
}

impl Row {
    fn new(load: &Load, tasks: Option<u32>, rate: Option<u32>, keys: u64, layers: u8, denied: u64) -> Self {
        let wait = |part| u64::try_from(load.quantile(part).as_nanos()).unwrap_or(u64::MAX);
        Self {
            tasks,
            rate,
            keys,
            layers,
            per_second: load.per_second(),
            decided: load.answered(),
            denied,
            errors: load.failed,
            p50_ns: wait(0.5),
            p90_ns: wait(0.9),
            p99_ns: wait(0.99),
            p999_ns: wait(0.999),
            max_ns: wait(1.0),
            waits: picture::PARTS.map(|(_, part)| wait(part)),
        }
    }

    /// How it was asked.
    fn load(&self) -> String {
        match (self.tasks, self.rate) {
            (_, Some(rate)) => format!("{rate}/s"),
            (tasks, _) => format!("{} tasks", tasks.unwrap_or(1)),
        }
    }
}

fn write(rows: &[Row], json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for row in rows {
            serde_json::to_writer(&mut out, row)?;
            writeln!(out)?;
        }
        return out.flush();
    }
    let header =
        ["load", "keys", "layers", "checks/s", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs", "denied", "errors"];
    let mut table = terminal::table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], terminal::is_unicode());
    for row in rows {
        let mut cells = vec![row.load()];
        cells.extend([row.keys, row.layers.into(), row.per_second].map(terminal::grouped));
        cells.extend([row.p50_ns, row.p90_ns, row.p99_ns, row.p999_ns, row.max_ns].map(micros));
        cells.extend([row.denied, row.errors].map(terminal::grouped));
        table.add_row(cells);
    }
    writeln!(out, "{table}")?;
    out.flush()
}

/// Nanoseconds in µs, with one decimal, cut off.
fn micros(nanos: u64) -> String {
    format!("{}.{}", terminal::grouped(nanos / 1000), nanos % 1000 / 100)
}
