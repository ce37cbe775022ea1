//! One server process: started, watched, stopped, killed, and never left behind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::StoreError;
use super::keeper::Keeper;

/// How long an orderly end may take before it becomes a SIGKILL.
const ORDERLY: Duration = Duration::from_secs(6);
/// How often a state is looked at while waiting for it to change.
pub(super) const POLL: Duration = Duration::from_millis(3);

/// What the keeper does: reads lines with the server's pid; at their end, ends the last one named.
/// `$1` is the server's directory, `$2` the signal to end it with. A server works inside its
/// directory, so a foreign process that was given the same pid meanwhile is told apart by that.
const KEEPER: &str = r#"
pid=0
# Where nobody waits for orphans, an ended server stays as a zombie, which still takes signals.
lives() {
    kill -s 0 "$pid" && ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status"
}
while read -r line; do
    [ "$line" = leave ] && exit 0
    pid=$line
done
if [ "$pid" -gt 0 ]; then
    case "$(readlink "/proc/$pid/cwd")" in
    "" | "$1"*)
        kill -s "$2" "$pid"
        kill -s CONT "$pid"
        pkill -CONT -P "$pid" # where there is one: stopped children hold up an orderly end
        n=0
        while lives && [ $n -lt 160 ]; do
            sleep 0.05
            n=$((n + 1))
        done
        kill -s KILL "$pid"
        ;;
    esac
fi
rm -rf -- "$1"
"#;

/// How a server is asked to end when it is no longer wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It leaves nothing in the system, so it is killed outright.
    Kill,
    /// It has children and shared memory to see to first (Postgres' immediate shutdown).
    Quit,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "KILL",
            Self::Quit => "QUIT",
        }
    }
}

/// The user that a server runs as where it refuses to run as root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// Lets `command` run as this user, with no other groups.
    pub(super) fn apply(account: Option<Self>, command: &mut Command) {
        if let Some(Self { uid, gid }) = account {
            command.uid(uid).gid(gid);
        }
    }
}

/// What to start: everything that a restart repeats.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) account: Option<Account>,
    /// The server's directory, in which it works; with links resolved.
    pub(super) dir: PathBuf,
    pub(super) end: End,
}

impl Plan {
    /// Where the server's standard output and error go.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }
}

/// A server process and its keeper.
#[derive(Debug)]
pub(super) struct Process {
    plan: Plan,
    child: Option<Child>,
    keeper: Keeper,
}

impl Process {
    /// Starts the keeper, then the server.
    pub(super) fn start(plan: Plan) -> Result<Self, StoreError> {
        let keeper = Keeper::start(KEEPER, [plan.dir.as_os_str(), OsStr::new(plan.end.name())])?;
        let mut process = Self { plan, child: None, keeper };
        process.spawn()?;
        Ok(process)
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The server's pid, if it was not killed.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The server's exit status, if it ended by itself.
    pub(super) fn exited(&mut self) -> Result<Option<ExitStatus>, StoreError> {
        match &mut self.child {
            Some(child) => child.try_wait().map_err(StoreError::io("look after a server")),
            None => Ok(None),
        }
    }

    /// Starts the server as it was started the first time, if it does not run.
    pub(super) fn spawn(&mut self) -> Result<(), StoreError> {
        if self.child.is_some() {
            return Ok(());
        }
        let what = || format!("start `{}`", self.plan.program.display());
        let log = OpenOptions::new().create(true).append(true).open(self.plan.log()).map_err(StoreError::io(what()))?;
        let also = log.try_clone().map_err(StoreError::io(what()))?;
        let mut command = Command::new(&self.plan.program);
        command
            .args(&self.plan.args)
            .envs(self.plan.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.plan.dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also);
        Account::apply(self.plan.account, &mut command);
        let child = command.spawn().map_err(StoreError::io(what()))?;
        let pid = child.id();
        self.child = Some(child);
        self.keeper.tell(&pid.to_string())
    }

    /// Stops the server and its children where they stand (SIGSTOP).
    pub(super) fn pause(&self) -> Result<(), StoreError> {
        // The father first, so that it has no more children meanwhile.
        self.signal_all(Signal::STOP, false)?;
        // The signal is sent, not yet obeyed: a thread on another core may still answer.
        let deadline = Instant::now() + ORDERLY;
        while self.pid().is_some_and(|pid| !stopped(pid)) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Lets a stopped server go on (SIGCONT).
    pub(super) fn resume(&self) -> Result<(), StoreError> {
        self.signal_all(Signal::CONT, true)
    }

    /// Kills the server and its children with SIGKILL, as a crash would.
    pub(super) fn kill(&mut self) -> Result<(), StoreError> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let pid = Pid::from_child(&child);
        // Children that outlive the server might still answer. Stopped, it can have no new ones.
        kill_process(pid, Signal::STOP).ok();
        let children = children(child.id());
        for pid in children.iter().copied().chain([pid]) {
            kill_process(pid, Signal::KILL).ok();
        }
        child.wait().map_err(StoreError::io("wait for a killed server"))?;
        let deadline = Instant::now() + ORDERLY;
        while children.iter().any(|pid| lives(*pid)) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        self.keeper.tell("0")
    }

    /// Ends the server in the way that suits it; SIGKILL if it does not obey.
    fn end(&mut self) -> Result<(), StoreError> {
        if self.plan.end == End::Quit
            && let Some(child) = &mut self.child
        {
            kill_process(Pid::from_child(child), Signal::QUIT).ok();
            for pid in children(child.id()).into_iter().chain([Pid::from_child(child)]) {
                kill_process(pid, Signal::CONT).ok();
            }
            let deadline = Instant::now() + ORDERLY;
            while Instant::now() < deadline {
                if let Ok(Some(_)) = child.try_wait() {
                    self.child = None;
                    return self.keeper.tell("0");
                }
                thread::sleep(POLL);
            }
        }
        self.kill()
    }

    fn signal_all(&self, signal: Signal, children_first: bool) -> Result<(), StoreError> {
        let Some(child) = &self.child else {
            return Ok(());
        };
        let father = Pid::from_child(child);
        let send = || kill_process(father, signal).map_err(StoreError::errno(format!("signal server {}", child.id())));
        if !children_first {
            send()?;
        }
        for pid in children(child.id()) {
            // One that has just ended is no failure.
            kill_process(pid, signal).ok();
        }
        if children_first {
            send()?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody is left to tell of a failure; the keeper, not told to leave, will try again.
        if self.end().is_ok() && self.keeper.leave().is_ok() {
            remove(&self.plan.dir);
        }
    }
}

/// Removes a server's directory; a server's child that just ends may still be writing into it.
fn remove(dir: &Path) {
    for _ in 0..20 {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(POLL),
            _ => return,
        }
    }
}

/// Whether a process still runs; one that is only not yet waited for does not.
fn lives(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !matches!(after_name(&stat).next(), Some("Z" | "X")),
        Err(_) if Path::new("/proc/self").exists() => false,
        Err(_) => rustix::process::test_kill_process(pid).is_ok(),
    }
}

/// Whether every thread of a process and of its children stands still; true where nobody can tell.
fn stopped(father: u32) -> bool {
    let still = |pid: String| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        stats.all(|stat| matches!(after_name(&stat).next(), Some("T" | "t" | "Z" | "X")))
    };
    let children = children(father).into_iter().map(|pid| pid.to_string());
    children.chain([father.to_string()]).all(still)
}

/// The fields of a `stat` file behind "pid (name)"; the name may hold blanks and brackets.
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// The direct children of a process.
fn children(father: u32) -> Vec<Pid> {
    let pairs = proc_pairs().unwrap_or_else(ps_pairs);
    let of_father = pairs.into_iter().filter(|(_, of)| *of == i64::from(father));
    of_father.filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}

/// All (process, father) pairs by Linux' `/proc`, if there is one.
fn proc_pairs() -> Option<Vec<(i32, i64)>> {
    let mut pairs = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // state, father
        if let Some(father) = after_name(&stat).nth(1).and_then(|father| father.parse().ok()) {
            pairs.push((pid, father));
        }
    }
    (!pairs.is_empty()).then_some(pairs)
}

/// The same by `ps`, where there is no `/proc`.
fn ps_pairs() -> Vec<(i32, i64)> {
    let Ok(output) = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// The first and the last lines of a server's log: what it complained about is at one of the ends.
pub(super) fn excerpt(log: &Path) -> String {
    const FIRST: usize = 6;
    const LAST: usize = 20;
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    match lines.len().checked_sub(FIRST + LAST) {
        Some(left_out @ 1..) => {
            let (first, last) = (lines.iter().take(FIRST), lines.iter().skip(FIRST + left_out));
            first.chain([&"[...]"]).chain(last).copied().collect::<Vec<_>>().join("\n")
        }
        _ => lines.join("\n"),
    }
}
