//! The command: the suite on a store of one's own, from the command line.
//!
//! This crate knows no engines but memory, so whoever does hands in how to connect to a URL. The crate's own binary and
//! the facade's `limiter conformance` are a few lines around [`run`].

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use limiter_core::{Backend, Memory};

use crate::case::{Case, Failure, cases};
use crate::report::{CaseReport, Report, Verdict};
use crate::store::topology::{RedisCluster, RedisSentinel};
use crate::store::{self, Kind, Store, StoreError};
use crate::subject::{BoxError, Subject};
use crate::suite::{Options, applicable, run_with};
use crate::worker;

mod chaos;

/// Proves a store exact: runs the conformance suite on it, under keys of its own, and leaves nothing behind.
#[derive(Clone, Debug, Args)]
#[non_exhaustive]
pub struct Arguments {
    /// The store: `memory:`, the URL of one that this build has an engine for, or `redis`, `redis-cluster`, `redis-sentinel`, the
    /// same with `fred+` before it, `postgres` or `etcd` for one that is found or started for this run
    #[arg(long, value_name = "URL", default_value = "memory:")]
    pub store: String,
    /// Only cases whose `group::name` contains this, with `--chaos` only the rows of these numbers; may be given more than once
    #[arg(value_name = "FILTER")]
    pub filters: Vec<String>,
    /// Seeds all that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Calls in each recorded history, which ends after 3 s whatever is left
    #[arg(long, value_name = "N", default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(24..=10_000_000))]
    pub calls: u32,
    /// The fewest cases that have to run [default: each selected one that applies to every engine]
    #[arg(long, value_name = "N")]
    pub at_least: Option<usize>,
    /// Prints the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Where the report is written too, as `JUnit` XML.
    #[arg(long, value_name = "FILE", help = "Writes the report to a file too, as JUnit XML")]
    pub junit: Option<PathBuf>,
    /// Lists the cases, or the plan of `--chaos`, and runs none
    #[arg(long)]
    pub list: bool,
    /// Disturbs a store that is started for it, by faults drawn from this seed, while clients ask
    #[arg(long, value_name = "SEED", conflicts_with_all = ["calls", "at_least", "junit"])]
    pub chaos: Option<u64>,
    /// For about how long
    #[arg(long, value_name = "N", default_value_t = 10, requires = "chaos", value_parser = clap::value_parser!(u64).range(1..=1_440))]
    pub minutes: u64,
    /// One long load with a fault now and then, and how much memory this process has after 2 minutes and at the end
    #[arg(long, requires = "chaos", conflicts_with = "filters")]
    pub soak: bool,
}

/// Runs the command: progress on the standard error output, the report on the standard output. `connect` makes a client of
/// the store at a URL.
///
/// The program has to ask [`is_worker`] before anything else, so that it can be started again as a further client.
///
/// The status is 0 if the store passed, 1 if it did not, and 2 if the suite could not be run. Whoever closes the pipe that the report
/// is written to has seen enough: that ends it quietly.
///
/// ```
/// use clap::Parser;
/// use limiter_conformance::command;
///
/// #[derive(Parser)]
/// struct Cli {
///     #[command(flatten)]
///     arguments: command::Arguments,
/// }
///
/// let cli = Cli::parse_from(["conformance", "--list", "layers"]);
/// let status = command::run(&cli.arguments, command::memory);
/// assert_eq!(format!("{status:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
/// ```
pub fn run<F, Fut, B>(arguments: &Arguments, connect: F) -> ExitCode
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
    B: Backend,
{
    match run_report(arguments, connect) {
        Ok(true) | Err(Ended::Unread) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(Ended::Failed(failure)) => {
            let _ = writeln!(std::io::stderr(), "{}: {failure}", program());
            ExitCode::from(2)
        }
    }
}

/// How a run ends that gives no verdict.
enum Ended {
    /// Nobody reads the report any more.
    Unread,
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Of writing the report, which is all that is written to the standard output.
#[expect(clippy::needless_pass_by_value, reason = "so that `map_err(unread)` is all there is to write")]
fn unread(error: std::io::Error) -> Ended {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => Ended::Unread,
        _ => Ended::Failed(Failure::new(format!("the report can't be written: {error}"))),
    }
}

/// What this program is called: its messages begin with that.
fn program() -> String {
    let name = std::env::args_os().next();
    let name = name.as_deref().map(Path::new).and_then(Path::file_stem);
    name.map_or_else(|| "limiter".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Connects to `memory:`, the one store that this crate has an engine for.
///
/// # Errors
/// If the URL is another.
#[expect(clippy::unused_async, reason = "it stands where a connection is made")]
pub async fn memory(url: String) -> Result<Arc<dyn Backend>, BoxError> {
    if url == "memory:" {
        return Ok(Arc::new(Memory::new()));
    }
    // Not the URL: it may hold a password.
    Err("this build has no engine but memory; the command `limiter conformance` has those of its features".into())
}

/// Does a worker's task if this process was started for one. A program that reads its arguments by itself calls this first;
/// true: the program is to end.
///
/// # Errors
/// As [`worker::serve`].
pub fn is_worker<F, Fut, B>(connect: F) -> Result<bool, Failure>
where
    F: FnOnce(String) -> Fut,
    Fut: Future<Output = Result<B, BoxError>>,
    B: Backend,
{
    worker::serve(connect)
}

fn run_report<F, Fut, B>(arguments: &Arguments, connect: F) -> Result<bool, Ended>
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, BoxError>> + Send + 'static,
    B: Backend,
{
    if let Some(seed) = arguments.chaos {
        return chaos::run(arguments, seed, connect);
    }
    let options = Options {
        seed: arguments.seed,
        filters: arguments.filters.clone(),
        calls: arguments.calls,
        at_least: arguments.at_least,
        ..Options::default()
    };
    known(&options)?;
    if arguments.list {
        return list(&options);
    }
    // Before the run, so that a wrong path is no surprise at its end.
    let junit = arguments.junit.as_deref().map(|path| Ok::<_, Failure>((path, create(path)?))).transpose()?;
    let (url, _started) = find(&arguments.store)?;
    // Its scheme, and no more of the URL: it may hold a password.
    let scheme = url.split_once(':').map_or("store", |(scheme, _)| scheme).to_owned();
    let processes = url.clone();
    let subject = Subject::new(scheme, move || connect(url.clone())).with_processes(processes);
    // A store that is not there is not one that failed the suite.
    applicable(&subject).map_err(|failure| Failure::new(format!("no client of the store: {failure}")))?;
    let report = run_with(&subject, &options, progress);
    let written = junit.map(|(path, mut file)| {
        let xml = report.to_junit()?;
        file.write_all(xml.as_bytes()).map_err(|error| unusable(path, &error))
    });
    print(arguments, &report)?;
    written.transpose()?;
    Ok(report.passed())
}

/// The URL of the store that is asked for, and the servers that were started for the run: they end when those are dropped.
fn find(store: &str) -> Result<(String, Vec<Store>), Failure> {
    let (driver, name) = store.strip_prefix("fred+").map_or(("", store), |name| ("fred+", name));
    let failed = |error: StoreError| Failure::new(error.to_string());
    let (url, started) = match name {
        "redis-cluster" => {
            let nodes = RedisCluster::start().map_err(failed)?;
            (nodes.url(), nodes.nodes)
        }
        "redis-sentinel" => {
            let set = RedisSentinel::start().map_err(failed)?;
            (set.url(), set.sentinels.into_iter().chain([set.pair.primary, set.pair.replica]).collect())
        }
        _ => {
            let Some((_, kind)) = kind(store) else { return Ok((store.to_owned(), Vec::new())) };
            let store = store::start(kind).map_err(failed)?;
            (store.url().to_owned(), vec![store])
        }
    };
    Ok((format!("{driver}{url}"), started))
}

/// The kind of store that is to be started, if it is named in place of a URL, and what stands before the URLs of its driver.
fn kind(store: &str) -> Option<(&'static str, Kind)> {
    let (driver, name) = store.strip_prefix("fred+").map_or(("", store), |name| ("fred+", name));
    match name {
        "redis" => Some((driver, Kind::Redis)),
        "postgres" => Some((driver, Kind::Postgres)),
        "etcd" => Some((driver, Kind::Etcd)),
        _ => None,
    }
}

/// That each filter selects something: a misspelt one beside others would be left out in silence.
fn known(options: &Options) -> Result<(), Failure> {
    let paths: Vec<String> = cases().iter().map(Case::path).collect();
    match options.filters.iter().find(|filter| !paths.iter().any(|path| path.contains(filter.as_str()))) {
        Some(filter) => Err(Failure::new(format!("no case has `{filter}` in its name; --list shows all"))),
        None => Ok(()),
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

fn list(options: &Options) -> Result<bool, Ended> {
    let mut output = std::io::stdout().lock();
    for case in cases().iter().filter(|case| options.selects(case)) {
        writeln!(output, "{:<50} {}", Case::path(case), case.about()).map_err(unread)?;
    }
    Ok(true)
}

fn progress(case: &CaseReport) {
    let (word, why) = match &case.verdict {
        Verdict::Passed => ("ok", ""),
        Verdict::Failed { .. } => ("FAILED", ""),
        Verdict::NotApplicable { reason } => ("n/a", reason.as_str()),
    };
    let path = format!("{}::{}", case.group, case.name);
    let _ = writeln!(std::io::stderr(), "{word:>6}  {path:<50} {:>8.2} s  {why}", case.took.as_secs_f64());
}

fn print(arguments: &Arguments, report: &Report) -> Result<(), Ended> {
    let mut output = std::io::stdout().lock();
    if arguments.json {
        let json = report.to_json().map_err(Failure::from)?;
        writeln!(output, "{json}").map_err(unread)
    } else {
        writeln!(output, "{}", report.text(crate::report::is_unicode())).map_err(unread)
    }
}
