//! A stand-in for a store: the memory engine behind a TCP port of this machine, and a client for it.
//!
//! It is what a cluster engine is to the suite (its clients are processes of their own, replies can get lost, it can be away),
//! without a database. So it proves the suite's own machinery, and shows how a networked engine is handed to it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use limiter_core::{Batch, Check, Instant, Key, Memory, Outcome, Request};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::case::Failure;
use crate::history::Answer;
use crate::history::line::{AnswerLine, OpLine};
use crate::subject::{Ability, Subject};

mod client;

pub use client::{Client, connect};

/// What stands before the address in a URL.
const SCHEME: &str = "stand-in://";

/// A batch in a line.
#[derive(Serialize, Deserialize)]
struct Asked {
    at: Option<u64>,
    requests: Vec<(OpLine, Vec<CheckLine>)>,
}

/// A key, a limit and a cost.
type CheckLine = (String, String, u64);

/// A running store. It ends when it is dropped.
pub struct Server {
    url: String,
    faults: Arc<Faults>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Faults {
    lose_reply: AtomicBool,
    away: AtomicBool,
    memory: Mutex<Arc<Memory>>,
}

impl Faults {
    fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Server {
    /// Starts a store on a free port.
    ///
    /// ```
    /// use limiter_conformance::stand_in::Server;
    ///
    /// assert!(Server::start()?.url().starts_with("stand-in://127.0.0.1:"));
    /// # Ok::<(), limiter_conformance::Failure>(())
    /// ```
    ///
    /// # Errors
    /// If there is no port or no thread to be had.
    pub fn start() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let url = format!("{SCHEME}{}", listener.local_addr()?);
        let faults = Arc::new(Faults::default());
        let (stop, stopped) = oneshot::channel();
        let serving = serve(listener, Arc::clone(&faults));
        let thread = std::thread::Builder::new().name("stand-in".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serving => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { url, faults, stop: Some(stop), thread: Some(thread) })
    }

    /// Goes away: connections end, and calls with them.
    pub(crate) fn go(&self) {
        self.faults.away.store(true, Ordering::SeqCst);
    }

    /// Comes back, as a store does that was killed and keeps nothing.
    pub(crate) fn come_back_empty(&self) {
        *self.faults.memory.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        self.faults.away.store(false, Ordering::SeqCst);
    }

    /// Where it listens, as [`connect`] takes it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at its next await. If it panicked, the tests that used it have failed.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A store of its own, as a subject.
///
/// # Errors
/// If the store can't be started.
pub fn subject() -> Result<Subject, Failure> {
    let server = Arc::new(Server::start()?);
    let url = server.url().to_owned();
    let [client, lost, cut] = std::array::from_fn(|_| Arc::clone(&server));
    Ok(Subject::new("stand-in", move || connect(client.url().to_owned()))
        .with_processes(url)
        .with_lost_replies(move || {
            lost.faults.lose_reply.store(true, Ordering::SeqCst);
            async { Ok(()) }
        })
        .with_outages(move |up| {
            cut.faults.away.store(!up, Ordering::SeqCst);
            async { Ok(()) }
        })
        .lacks(Ability::StoredKeys, "the table behind it has no expiry of its own to list")
        .lacks(Ability::ClientClock, "its client has no clock"))
}

async fn serve(listener: TcpListener, faults: Arc<Faults>) {
    loop {
        // An error here is of one client that is gone already.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let faults = Arc::clone(&faults);
        tokio::spawn(async move {
            // A client that breaks off has got what it asked for, or is told that it is not known.
            let _ = converse(stream, &faults).await;
        });
    }
}

/// Answers one client line by line, until it is gone.
async fn converse(stream: TcpStream, faults: &Faults) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        if faults.away.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut reply = answer(&line, &faults.memory())?;
        if faults.lose_reply.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        reply.push('\n');
        stream.get_mut().write_all(reply.as_bytes()).await?;
        line.clear();
    }
    Ok(())
}

fn answer(line: &str, memory: &Memory) -> Result<String, Failure> {
    let asked: Asked = serde_json::from_str(line)?;
    let at = asked.at.map(Instant::from_micros).transpose()?;
    let mut answers = Vec::with_capacity(asked.requests.len());
    for (op, checks) in asked.requests {
        let checks = checks.into_iter().map(|(key, limit, cost)| {
            // A name of a name: different keys stay different.
            Ok(Check::new(Key::new("", "", [key]), limit.parse()?, cost))
        });
        let request = Request::new(op.try_into()?, checks.collect::<Result<Vec<_>, Failure>>()?)?;
        let outcome: Outcome = memory.decide(&request, at);
        answers.push(AnswerLine::try_from(&Answer::from(&outcome))?);
    }
    Ok(serde_json::to_string(&answers)?)
}

/// The line that asks for a batch.
fn line(batch: &Batch) -> Result<String, Failure> {
    let requests = batch.requests.iter().map(|request| {
        let checks = request.checks().iter();
        let checks = checks.map(|check| (check.key.as_str().to_owned(), check.limit.to_string(), check.cost));
        Ok((OpLine::try_from(request.op())?, checks.collect()))
    });
    let at = batch.at.map(Instant::micros);
    let mut line = serde_json::to_string(&Asked { at, requests: requests.collect::<Result<_, Failure>>()? })?;
    line.push('\n');
    Ok(line)
}
