//! `limiter replay`: a trace goes in, one decision a line comes out.

mod answer;
mod bins;
mod check;
mod clf;
mod jsonl;
mod lines;
mod plot;
mod progress;
mod report;
mod rules;
mod session;
mod tally;
mod top;

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use limiter::Limit;

use self::lines::Lines;
use self::progress::Progress;
use self::rules::{KeyFields, Rules};
use self::session::Session;
use self::tally::Tally;
use crate::exit::{Exit, Failure};
use crate::svg::Picture;
use crate::{store, terminal};

/// How much is written at once, in bytes.
const CHUNK: usize = 1 << 16;
/// How often the progress is looked at, in lines.
const LOOK: u64 = 1024;

/// Holds a trace against limits: what would have been allowed, what denied?
///
/// Each line is one check, decided at the line's own instant, in the order of the input. Where the time of a trace goes
/// back, the order of the input still rules.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The trace; `-` or nothing: standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,

    /// What the lines are
    #[arg(long, value_enum, default_value = "json")]
    format: Format,

    /// An access log's limit, such as "10/1m sliding-log". Given several times, a request has to pass all of them:
    /// either each is charged or none
    #[arg(long)]
    limit: Vec<Limit>,

    /// By what a limit counts an access log: ip, user, method, path (without its query), target (with it), status,
    /// referer, user-agent (also header:user-agent), or a combination of them such as `ip,path`; or `global`: all
    /// requests together. Given once it is for every --limit, else the nth is for the nth --limit [default: ip]
    #[arg(long, value_name = "FIELDS")]
    key: Vec<KeyFields>,

    /// Units that each line of an access log asks for [default: 1]
    #[arg(long, value_name = "UNITS")]
    cost: Option<u64>,

    /// Prints one line of JSON for each check, in place of the report
    #[arg(long)]
    json: bool,

    /// Writes an SVG of what was admitted and denied over time
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// How many of the keys denied most the report lists
    #[arg(long, value_name = "N", default_value = "10")]
    top: usize,

    /// Where the states are kept. Every run starts fresh, under keys of its own. `memory:` has room for 4,194,304 keys
    /// of some 300 bytes; those as good as never used go first
    #[arg(long, value_name = "URL", default_value = "memory:")]
    store: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One check a line, with its own limits and keys; see below
    Json,
    /// An access log in the common or the combined log format
    Clf,
}

const AFTER_HELP: &str = r#"Limits:
  <amount>/<period> <algorithm> [burst=N] [queue=N]
  fixed-window, sliding-log, sliding-counter, token-bucket, leaky-bucket
  periods in us, ms, s, m, h, d

JSON lines:
  {"t": 1764559423000000, "cost": 1, "limits": [
    {"limit": "10/1s token-bucket burst=20", "key": "a"}]}       (on one line)
  `t` is in whole microseconds since 1970; `cost` may be left out and is 1 then.
  A request has to pass all of its limits. Limits at different places of the
  list never share a state, even under one key. A field that is not known is
  refused, so that a misspelt one is no default.

What --json prints, a line for each line that is not blank, in the same order;
waits are in whole microseconds:
  {"allowed":true,"retry_after":null,"delay":0,"layers":[
    {"allowed":true,"limit":20,"remaining":19,"retry_after":null,
     "reset_after":100000,"delay":0}]}                           (on one line)
  {"error":"cost-exceeds-limit"}                nothing was charged: it can
                                                never pass
  {"error":"unreadable","line":7,"reason":"…"}  the line can't be read
  {"error":"not-sent","line":7,"reason":"…"}    the store did not decide, and
                                                charged nothing
  {"error":"unknown","line":7,"reason":"…"}     the store may have charged it
  After each of the four the others go on, and it is told on standard error
  too, with its line. A line of more than 1 MiB is unreadable.

Exit status:
  0  every line was decided, or answered with cost-exceeds-limit
  1  reading, writing or connecting failed, and the run stopped
  2  the command is not as it should be, or names a file that can't be used
  3  some lines could not be read, or there was none
  4  the store did not decide some checks

Examples:
  limiter replay access.log --format clf --key ip --limit "10/1m sliding-log"
  limiter replay access.log --format clf --plot out.svg \
    --key ip --limit "10/1m sliding-log" --key global --limit "500/1m fixed-window"
  limiter replay --json < trace.jsonl"#;

/// Whatever turns a line into a check.
enum Reader {
    Json(jsonl::Reader),
    Log(Rules),
}

impl Reader {
    fn new(args: &Args) -> Result<Self, Failure> {
        if args.format == Format::Clf {
            let ip = || "ip".parse().map(|key| vec![key]).map_err(Failure::usage);
            let keys = if args.key.is_empty() { ip()? } else { args.key.clone() };
            return Rules::new(&args.limit, &keys, args.cost.unwrap_or(1)).map(Self::Log).map_err(Failure::usage);
        }
        if !args.limit.is_empty() || !args.key.is_empty() || args.cost.is_some() {
            let fault = "--limit, --key and --cost are for --format clf: a line of JSON names its own";
            return Err(Failure::usage(fault));
        }
        Ok(Self::Json(jsonl::Reader::default()))
    }

    fn read(&mut self, line: &lines::Line<'_>) -> Result<check::Check, String> {
        let text = line.text.ok_or_else(|| format!("the line is over its bound of {} bytes", lines::MAX_LINE))?;
        match self {
            Self::Json(reader) => reader.read(text),
            Self::Log(rules) => rules.read(text),
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let mut reader = Reader::new(&args)?;
    let mut lines = Lines::open(&args.file)?;
    let plot = args.plot.as_deref().map(|plot| open_plot(plot, &args.file)).transpose()?;
    let store = store::open(&args.store).await?;
    let out = BufWriter::with_capacity(CHUNK, io::stdout().lock());
    let json = args.json.then_some(out);
    let mut session = Session::new(store, store::own_scope("replay"), json, Progress::new(args.json));
    let broken = loop {
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        let number = line.number;
        session.line(number, reader.read(&line)).await?;
        if !lines.is_ready() {
            // The next line may be long in coming, as from `tail -f`: what is known by now is shown.
            session.flush().await?;
            session.show(lines.progress())?;
        } else if number.is_multiple_of(LOOK) {
            session.look(lines.progress());
        }
    };
    session.finish().await?;
    let tally = &session.tally;
    let name = args
        .file
        .file_name()
        .filter(|name| *name != "-")
        .map_or("standard input".into(), |name| name.to_string_lossy());
    let heading = heading(&name, &reader, tally);
    if tally.lines == 0 {
        terminal::tell(&format!("{name} is empty: there is no check in it"));
    } else if !args.json {
        let mut out = io::stdout().lock();
        report::write(&mut out, tally, &heading, args.top).and_then(|()| out.flush()).map_err(Failure::output)?;
    }
    if let Some(plot) = plot {
        plot.draw(|out| plot::write(out, &tally.bins, &heading))?;
    }
    if tally.unreadable > 0 {
        terminal::tell(&format!("{} of {} lines could not be read", tally.unreadable, tally.lines));
    }
    if let Some(error) = broken {
        return Err(Failure::new(Exit::Failed, format!("{name} can't be read on: {error}")));
    }
    Ok(tally.exit())
}

/// Opens the picture's file, which must not be the trace.
fn open_plot(plot: &Path, input: &Path) -> Result<Picture, Failure> {
    if plot.canonicalize().is_ok_and(|plot| input.canonicalize().is_ok_and(|input| input == plot)) {
        return Err(Failure::usage(format!("{}: is the trace itself", plot.display())));
    }
    Picture::open(plot)
}

/// What was replayed, under which limits.
fn heading(name: &str, reader: &Reader, tally: &Tally) -> String {
    let limits = match reader {
        Reader::Log(rules) => rules.to_string(),
        Reader::Json(_) => {
            let mut limits: Vec<String> = tally.limits.iter().map(Limit::to_string).collect();
            if limits.len() == Tally::LIMITS {
                limits.pop();
                limits.push("more".to_owned());
            }
            limits.join(" and ")
        }
    };
    format!("{}: {limits}", terminal::printable(name, 60))
}
