//! Further processes that use the same store: this program, started again.
//!
//! The suite starts the program with the variable [`VARIABLE`] in its environment, which names a file with the task.
//! The program has to call [`serve`] then, which does the task and tells so; a test binary does that in a test of its own
//! that [`conformance_suite!`](crate::conformance_suite) makes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limiter_core::Backend;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tempfile::{NamedTempFile, TempPath};

use crate::case::Failure;
use crate::history::Call;
use crate::subject::{BoxError, Workers};
use crate::workload::{PROCESSES, Plan, Stop};

/// The environment variable that makes a process a worker.
pub const VARIABLE: &str = "LIMITER_CONFORMANCE_WORKER";

/// What a worker says when it has a client, what it then waits for, and what ends it before its time.
const READY: &str = "limiter-conformance: ready";
const GO: &str = "go";
const STOP: &str = "stop";

/// How long a worker may take to get ready, and to end after the time of its plan.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker's task, as it lies in its file.
#[derive(Serialize, Deserialize)]
struct Task {
    plan: Plan,
    process: u32,
    url: String,
    calls: PathBuf,
    /// Whether calls are written while they are made.
    journal: bool,
}

/// Does a worker's task, if this process was started for one: true then, and the program is to end.
///
/// `connect` makes a client of the store at a URL.
///
/// ```
/// use limiter_conformance::worker;
/// use limiter_core::Memory;
///
/// // In `main`, before anything else. Here nobody asks for a worker:
/// let was_worker = worker::serve(|_url| async { Ok(Memory::new()) })?;
/// assert!(!was_worker);
/// # Ok::<(), limiter_conformance::Failure>(())
/// ```
///
/// # Errors
/// [`Failure`] if the task can't be read, the store not be reached, or the calls not be written.
pub fn serve<F, Fut, B>(connect: F) -> Result<bool, Failure>
where
    F: FnOnce(String) -> Fut,
    Fut: Future<Output = Result<B, BoxError>>,
    B: Backend,
{
    let Some(path) = std::env::var_os(VARIABLE) else { return Ok(false) };
    let task: Task = serde_json::from_reader(BufReader::new(File::open(path)?))?;
    // All that takes a while comes before it is told to be ready: whoever kills it soon after means to meet it at work.
    let prepared = task.plan.prepare()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client: Arc<dyn Backend> = Arc::new(runtime.block_on(connect(task.url))?);
    let mut output = std::io::stdout();
    // A line of its own, whatever a test harness has written before it.
    write!(output, "\n{READY}\n")?;
    output.flush()?;
    let mut go = String::new();
    std::io::stdin().read_line(&mut go)?;
    if go.trim() != GO {
        return Err(Failure::new("the suite that started this worker is gone"));
    }
    let stop = Stop::default();
    let told = stop.clone();
    // Not waited for: it reads until the suite says something, or is gone.
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ended = std::io::stdin().read_line(&mut line);
        told.stop();
    });
    let journal = if task.journal { Some(Arc::new(Mutex::new(File::create(&task.calls)?))) } else { None };
    let calls = runtime.block_on(prepared.run_process(task.process, client, &stop, &journal))?;
    let mut file = BufWriter::new(File::create(task.calls)?);
    for call in calls {
        writeln!(file, "{}", call.to_line()?)?;
    }
    file.flush()?;
    Ok(true)
}

/// Runs the plan in as many processes as it has, and collects what they saw.
pub(crate) fn run(plan: &Plan, workers: &Workers) -> Result<Vec<Call>, Failure> {
    let directory = tempfile::tempdir()?;
    let mut running: Vec<Worker> = (0..PROCESSES)
        .map(|process| Worker::start(plan, workers, process, directory.path(), false))
        .collect::<Result<_, _>>()?;
    running.iter_mut().try_for_each(Worker::ready)?;
    running.iter_mut().try_for_each(Worker::go)?;
    let mut calls = Vec::new();
    for worker in &mut running {
        calls.append(&mut worker.calls()?);
    }
    Ok(calls)
}

/// A running process; it is ended on drop, also after a failure.
pub(crate) struct Worker {
    child: Child,
    lines: Receiver<String>,
    calls: PathBuf,
    /// The time of its plan.
    lasts: Duration,
    /// Kept until the worker has read it.
    _task: TempPath,
}

impl Worker {
    /// Starts a process with the plan's tasks. With a journal, its calls are known also if it is killed.
    pub(crate) fn start(
        plan: &Plan,
        workers: &Workers,
        process: u32,
        directory: &Path,
        journal: bool,
    ) -> Result<Self, Failure> {
        let calls = directory.join(format!("calls-{process}"));
        // The URL may hold a password: unlike the folder, a temporary file is this user's alone.
        let mut file = NamedTempFile::new_in(directory)?;
        let task = Task { plan: plan.clone(), process, url: workers.url.clone(), calls: calls.clone(), journal };
        serde_json::to_writer(&mut file, &task)?;
        let task = file.into_temp_path();
        let mut child = Command::new(std::env::current_exe()?)
            .args(&workers.args)
            .envs(workers.env.iter().map(|(name, value)| (name, value)))
            .env(VARIABLE, &task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take();
        let (sender, lines) = channel();
        // A thread of its own, so that a worker that says nothing can be given up; it ends with the worker's output.
        std::thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, calls, lasts: plan.lasts(), _task: task })
    }

    /// Waits until it has a client.
    pub(crate) fn ready(&mut self) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(started.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == READY => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(Failure::new("a worker process did not get ready")),
            }
        }
    }

    /// Lets it begin.
    pub(crate) fn go(&mut self) -> Result<(), Failure> {
        self.say(GO)
    }

    /// Lets it end before its time. One that has ended by itself is not to be told.
    pub(crate) fn stop(&mut self) {
        let _ended = self.say(STOP);
    }

    fn say(&mut self, word: &str) -> Result<(), Failure> {
        let input = self.child.stdin.as_mut().ok_or_else(|| Failure::new("a worker without an input"))?;
        writeln!(input, "{word}")?;
        Ok(input.flush()?)
    }

    /// Stops it where it stands, or lets it go on.
    pub(crate) fn stand_still(&self, still: bool) -> Result<(), Failure> {
        let signal = if still { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| Failure::new(format!("signal a worker: {error}")))
    }

    /// Kills it where it stands, and reads what its journal has.
    pub(crate) fn kill(mut self) -> Result<Vec<Call>, Failure> {
        self.child.kill()?;
        self.child.wait()?;
        let mut calls = BTreeMap::new();
        let text = std::fs::read_to_string(&self.calls)?;
        for line in text.split_inclusive('\n') {
            // The last one may be cut in the middle.
            if let Some(line) = line.strip_suffix('\n') {
                let call = Call::from_line(line)?;
                calls.insert((call.task, call.id), call);
            }
        }
        Ok(calls.into_values().collect())
    }

    /// Waits until it has ended, and reads its calls.
    pub(crate) fn calls(&mut self) -> Result<Vec<Call>, Failure> {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if started.elapsed() > self.lasts + PATIENCE {
                return Err(Failure::new("a worker process does not end"));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if !status.success() {
            return Err(Failure::new(format!("a worker process failed: {status}")));
        }
        BufReader::new(File::open(&self.calls)?).lines().map(|line| Call::from_line(&line?)).collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
