//! The local road: a server binary of this machine, on a free loopback port.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::process::{Account, End, POLL, Plan, Process, excerpt};
use super::{Kind, Launch, Role, StoreError, etcd, port, postgres, redis};

/// How long a server may take to answer. Far beyond what it takes, for machines under load.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often another port is tried when somebody was quicker.
const DRAWS: u32 = 8;

/// Where a server is put before it starts.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) program: &'a Path,
    pub(super) dir: &'a Path,
    pub(super) ports: &'a [u16],
    pub(super) account: Option<Account>,
}

impl Site<'_> {
    /// The port that clients use.
    pub(super) fn port(&self) -> u16 {
        self.ports.first().copied().unwrap_or(0)
    }
}

/// A server started from a local binary.
#[derive(Debug)]
pub(super) struct Local {
    kind: Kind,
    addr: SocketAddr,
    process: Process,
}

impl Local {
    /// Starts `program` and waits until it answers; on another port if this one is taken.
    pub(super) fn start(launch: &Launch, program: &Path) -> Result<Self, StoreError> {
        let mut draw = 1;
        loop {
            let mut local = Self::begin(launch, program)?;
            match local.wait() {
                // An address given by the caller is not ours to change.
                Err(StoreError::NotStarted { log, .. })
                    if taken(&log) && draw < DRAWS && !matches!(launch.role, Role::Member { .. }) =>
                {
                    draw += 1;
                }
                result => return result.map(|()| local),
            }
        }
    }

    /// Starts `program` and does not wait: the members of a cluster answer only together.
    pub(super) fn begin(launch: &Launch, program: &Path) -> Result<Self, StoreError> {
        let kind = launch.kind;
        let dir = tempfile::Builder::new()
            .prefix(&format!("limiter-{}-", kind.binary()))
            .tempdir()
            .map_err(StoreError::io("make a temporary directory"))?;
        let path = dir.path().canonicalize().map_err(StoreError::io("resolve the temporary directory"))?;
        let ports = match &launch.role {
            Role::Member { ports, .. } => ports.to_vec(),
            Role::ClusterNode => port::several(2).map_err(StoreError::io("find free ports"))?,
            _ if kind == Kind::Etcd => port::several(2).map_err(StoreError::io("find free ports"))?,
            _ => port::several(1).map_err(StoreError::io("find a free port"))?,
        };
        let account = match kind {
            Kind::Postgres => postgres::account()?,
            Kind::Redis | Kind::Etcd => None,
        };
        let site = Site { program, dir: &path, ports: &ports, account };
        let args = match kind {
            Kind::Redis => redis::prepare(launch, &site)?,
            Kind::Postgres => postgres::prepare(launch, &site)?,
            Kind::Etcd => etcd::prepare(launch, &site),
        };
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, site.port()));
        let process = Process::start(Plan {
            program: program.to_owned(),
            args,
            env: launch.env.clone(),
            account,
            dir: path,
            end: match kind {
                Kind::Postgres => End::Quit,
                Kind::Redis | Kind::Etcd => End::Kill,
            },
        })?;
        // From here on it is the process that removes the directory.
        let _: PathBuf = dir.keep();
        Ok(Self { kind, addr, process })
    }

    /// Waits until our own child answers on the port.
    pub(super) fn wait(&mut self) -> Result<(), StoreError> {
        self.wait_until(Self::answers)
    }

    /// Waits until the child, running under this pid, is as far as that.
    pub(super) fn wait_until(&mut self, far: impl Fn(&Self, u32) -> bool) -> Result<(), StoreError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.exited()? {
                return Err(self.not_started(format!("it ended at once ({status})")));
            }
            if self.process.pid().is_some_and(|pid| far(self, pid)) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.not_started(format!("no answer on {} within {PATIENCE:?}", self.addr)));
            }
            thread::sleep(POLL);
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn kill(&mut self) -> Result<(), StoreError> {
        self.process.kill()
    }

    pub(super) fn restart(&mut self) -> Result<(), StoreError> {
        self.process.kill()?;
        self.process.spawn()?;
        self.wait()
    }

    fn answers(&self, pid: u32) -> bool {
        let dir = &self.process.plan().dir;
        match self.kind {
            Kind::Redis => redis::answers(self.addr, pid),
            Kind::Postgres => postgres::answers(self.addr, pid, dir),
            Kind::Etcd => etcd::answers(self.addr, dir),
        }
    }

    fn not_started(&self, why: String) -> StoreError {
        StoreError::NotStarted { kind: self.kind, why, log: excerpt(&self.process.plan().log()) }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if self.kind == Kind::Postgres && self.process.pid().is_none() {
            postgres::forget(&self.process.plan().dir);
        }
    }
}

/// Whether a server's log says that its port was taken meanwhile.
pub(super) fn taken(log: &str) -> bool {
    log.to_ascii_lowercase().contains("address already in use")
}

/// The server binary of this machine, or why there is none.
pub(super) fn find(kind: Kind) -> Result<PathBuf, String> {
    let variable = kind.binary_variable();
    if let Some(file) = env::var_os(variable).filter(|file| !file.is_empty()).map(PathBuf::from) {
        // Who names one means that one: another version in its place would prove nothing.
        return if executable(&file) { Ok(file) } else { Err(format!("no program at the path in {variable}")) };
    }
    let binary = kind.binary();
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::split_paths(&path).collect();
    let mut places = "PATH".to_owned();
    if kind == Kind::Postgres {
        // Debian keeps the servers of all versions out of PATH, each in a directory of its own.
        dirs.extend(postgres::debian_dirs());
        places.push_str(" or in /usr/lib/postgresql/*/bin");
    }
    let found = dirs.into_iter().map(|dir| dir.join(binary)).find(|file| executable(file));
    found.ok_or_else(|| format!("no `{binary}` on {places}"))
}

/// A program that comes with the server, beside it if it is there, else by PATH.
pub(super) fn beside(server: &Path, name: &str) -> PathBuf {
    // On PATH the server may be a link, and its companions beside the real one only.
    let real = server.canonicalize().unwrap_or_else(|_| server.to_owned());
    let both = [server, &real].map(|server| server.with_file_name(name));
    both.into_iter().find(|file| executable(file)).unwrap_or_else(|| PathBuf::from(name))
}

fn executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Arguments from text.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}
