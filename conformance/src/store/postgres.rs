//! How a Postgres server is set up, and known to be ours.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::local::{Site, beside, words};
use super::process::Account;
use super::wire::Sql;
use super::{Launch, Role, StoreError};

/// Postgres refuses to run as root; then it runs as the user whom its package made.
pub(super) fn account() -> Result<Option<Account>, StoreError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(StoreError::io("read /etc/passwd"))?;
    let account = users.lines().find_map(|line| {
        let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { uid, gid })
    });
    account.map(Some).ok_or_else(|| StoreError::Answer {
        what: "Postgres refuses to run as root".to_owned(),
        expected: "a user `postgres` in /etc/passwd (the Debian package makes one), or tests not run as root"
            .to_owned(),
        got: "no such user".to_owned(),
    })
}

/// The version directories of Debian's packages, newest first.
pub(super) fn debian_dirs() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, dir)| dir).collect()
}

/// Fills the data directory, and gives the server's arguments.
pub(super) fn prepare(launch: &Launch, site: &Site<'_>) -> Result<Vec<OsString>, StoreError> {
    if let Some(Account { uid, gid }) = site.account {
        chown(site.dir, Some(uid), Some(gid)).map_err(StoreError::io("give Postgres its directory"))?;
    }
    let data = site.dir.join("data");
    match &launch.role {
        Role::Standby { of, name } => base_backup(site, &data, *of, name)?,
        _ => fresh(site, &data)?,
    }
    let mut args = vec![OsString::from("-D"), data.into()];
    let port = site.port().to_string();
    for (name, value) in [
        ("listen_addresses", "127.0.0.1"),
        ("port", port.as_str()),
        ("unix_socket_directories", ""),
        ("fsync", "off"),
        // In the data directory, where it goes when that goes, instead of in /dev/shm.
        ("dynamic_shared_memory_type", "mmap"),
    ] {
        args.extend(setting(name, value));
    }
    args.extend(launch.options.iter().flat_map(|(name, value)| setting(name, value)));
    Ok(args)
}

fn setting(name: &str, value: &str) -> [OsString; 2] {
    ["-c".into(), format!("{name}={value}").into()]
}

/// Whether the process `pid` has announced in its directory that it takes connections, and does.
pub(super) fn answers(addr: SocketAddr, pid: u32, dir: &Path) -> bool {
    let Ok(file) = fs::read_to_string(dir.join("data/postmaster.pid")) else {
        return false;
    };
    // First line: who; eighth line: how far. A crashed server leaves the file, with another pid.
    let ours = file.lines().next() == Some(&pid.to_string());
    let ready = matches!(file.lines().nth(7).map(str::trim), Some("ready" | "standby"));
    ours && ready && Sql::connect(addr).is_ok()
}

/// Removes the bit of System V shared memory that a killed server leaves in the system, if it
/// will not be restarted (which would do the same).
pub(super) fn forget(dir: &Path) {
    let Ok(file) = fs::read_to_string(dir.join("data/postmaster.pid")) else {
        return;
    };
    // Seventh line: key and id of the segment.
    if let Some(id) = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        let mut ipcrm = Command::new("ipcrm");
        ipcrm.args(["-m", id]).stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
    }
}

/// A new cluster: copied from the build's template if there is one, else made, and then kept as
/// the template (0.4 s against 0.03 s).
fn fresh(site: &Site<'_>, data: &Path) -> Result<(), StoreError> {
    let template = template(site);
    if let Some(template) = template.as_ref().filter(|template| template.is_dir()) {
        if copy(template, data) {
            return Ok(());
        }
        fs::remove_dir_all(data).ok();
    }
    let mut initdb = Command::new(beside(site.program, "initdb"));
    initdb.args(words(["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]));
    initdb.args(words(["--locale=C", "--encoding=UTF8", "-D"])).arg(data);
    run(initdb, site)?;
    if let Some(template) = template {
        keep(data, &template);
    }
    Ok(())
}

/// Where the build keeps a cluster to copy from: beside the test binaries, so that `cargo clean`
/// removes it. Outside of a build (an installed command) there is no such place.
fn template(site: &Site<'_>) -> Option<PathBuf> {
    let exe = env::current_exe().ok()?;
    let deps = exe.parent().filter(|dir| dir.file_name().is_some_and(|name| name == "deps"))?;
    let version = Command::new(site.program).arg("--version").output().ok()?;
    let mut hasher = DefaultHasher::new();
    version.stdout.hash(&mut hasher);
    let owner = match site.account {
        Some(account) => account.uid,
        None => rustix::process::geteuid().as_raw(),
    };
    Some(deps.with_file_name(format!("limiter-initdb-{owner}-{:016x}", hasher.finish())))
}

/// Keeps a copy of `data` as the template. It is only a cache: a failure costs time, no more.
fn keep(data: &Path, template: &Path) {
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let n = COPIES.fetch_add(1, Ordering::Relaxed);
    // In place only when it is whole; whoever renames first wins.
    let part = template.with_extension(format!("{}-{n}", process::id()));
    if !copy(data, &part) || fs::rename(&part, template).is_err() {
        fs::remove_dir_all(&part).ok();
    }
}

/// Copies a directory with modes and owners.
fn copy(from: &Path, to: &Path) -> bool {
    let mut cp = Command::new("cp");
    cp.arg("-Rp").args([from, to]).stdout(Stdio::null()).stderr(Stdio::null());
    cp.status().is_ok_and(|status| status.success())
}

/// A copy of a running server, set to follow it.
fn base_backup(site: &Site<'_>, data: &Path, of: SocketAddr, name: &str) -> Result<(), StoreError> {
    let (host, port) = (of.ip(), of.port());
    let source = format!("host={host} port={port} user=postgres application_name={name}");
    let mut backup = Command::new(beside(site.program, "pg_basebackup"));
    backup.args(words(["--checkpoint=fast", "--no-sync", "--wal-method=stream", "--write-recovery-conf"]));
    backup.args(words(["--dbname", &source, "-D"])).arg(data);
    run(backup, site)
}

/// Runs a helper of Postgres as the server's user.
fn run(mut command: Command, site: &Site<'_>) -> Result<(), StoreError> {
    Account::apply(site.account, &mut command);
    let program = PathBuf::from(command.get_program());
    command.current_dir(site.dir).stdin(Stdio::null());
    let output = command.output().map_err(StoreError::io(format!("run `{}`", program.display())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let output = format!("{}: {}", output.status, String::from_utf8_lossy(&said).trim());
    Err(StoreError::Program { program, output })
}
