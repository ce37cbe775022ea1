//! The docker road: a container, on a loopback port that stays its own.
//!
//! A container lives on a thread with a runtime of its own, so that it can be started, killed and
//! dropped from blocking and async code alike.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc as blocking;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testcontainers::bollard::models::HostConfig;
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::{ContainerPort, IntoContainerPort};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};
use tokio::sync::mpsc;

use super::keeper::Keeper;
use super::local::taken;
use super::road::{closed, variable};
use super::wire::{Resp, Sql, http_get};
use super::{Kind, Launch, Road, StoreError, port, redis};

/// How long a container may take to answer: the image may have to be fetched, and made a cluster.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(20);
const DRAWS: u32 = 8;

/// Removes the container whose name is `$1` if the process that started it is gone. (Where there
/// is an engine but no `docker` command, only the guard does.)
const KEEPER: &str = r#"
while read -r line; do
    [ "$line" = leave ] && exit 0
done
docker rm -f -v "$1"
"#;

/// What to do with a running container.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Pause,
    Resume,
    Kill,
    Restart,
}

/// A deed, and whom to tell how it went.
type Order = (Deed, blocking::SyncSender<Result<(), String>>);

/// A running container.
#[derive(Debug)]
pub(super) struct Container {
    kind: Kind,
    addr: SocketAddr,
    up: bool,
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<bool>>,
    keeper: Keeper,
}

impl Container {
    /// Starts a container of the image that the environment names, or of the public one.
    pub(super) fn start(launch: &Launch) -> Result<Self, StoreError> {
        let mut draw = 1;
        loop {
            let port = port::free().map_err(StoreError::io("find a free port"))?;
            match Self::start_on(launch, port) {
                Err(StoreError::Closed { why, .. }) if port_taken(&why) && draw < DRAWS => {
                    draw += 1;
                }
                result => return result,
            }
        }
    }

    fn start_on(launch: &Launch, port: u16) -> Result<Self, StoreError> {
        let kind = launch.kind;
        let name = format!("limiter-test-{}-{port}-{}", kind.binary(), std::process::id());
        let request = request(launch, &name, port);
        let keeper = Keeper::start(KEEPER, [OsStr::new(&name)])?;
        let (orders, inbox) = mpsc::unbounded_channel();
        let (started, wait) = blocking::sync_channel(1);
        let live = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(live(request, kind, port, name, started, inbox)),
            Err(error) => started.send(Err(error.to_string())).is_err(),
        };
        let thread = thread::Builder::new()
            .name("limiter-container".to_owned())
            .spawn(live)
            .map_err(StoreError::io("start a thread for a container"))?;
        let mut container = Self {
            kind,
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            up: true,
            orders: Some(orders),
            thread: Some(thread),
            keeper,
        };
        // Dropping the container on the way out removes what there is of it.
        container.addr = wait.recv().unwrap_or_else(|_| Err(gone())).map_err(|why| {
            let (image, variable) = (image(kind), kind.image_variable());
            let why = format!(
                "a container of the image `{image}` did not start ({variable} names another image; \
                     `scripts/store-images` makes one where no registry is in reach): {why}"
            );
            closed(kind, Road::Docker, why)
        })?;
        Ok(container)
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn pause(&mut self) -> Result<(), StoreError> {
        self.running("pause")?;
        self.order(Deed::Pause, "docker pause")
    }

    pub(super) fn resume(&mut self) -> Result<(), StoreError> {
        self.running("resume")?;
        self.order(Deed::Resume, "docker unpause")
    }

    pub(super) fn kill(&mut self) -> Result<(), StoreError> {
        if self.up {
            self.order(Deed::Kill, "docker kill")?;
            self.up = false;
        }
        Ok(())
    }

    pub(super) fn restart(&mut self) -> Result<(), StoreError> {
        self.kill()?;
        self.order(Deed::Restart, "docker start")?;
        self.up = true;
        Ok(())
    }

    fn running(&self, what: &'static str) -> Result<(), StoreError> {
        let kind = self.kind;
        if self.up { Ok(()) } else { Err(StoreError::Down { kind, what }) }
    }

    fn order(&self, deed: Deed, what: &str) -> Result<(), StoreError> {
        let (done, wait) = blocking::sync_channel(1);
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send((deed, done)).is_ok());
        let result = if sent { wait.recv().unwrap_or_else(|_| Err(gone())) } else { Err(gone()) };
        result.map_err(|got| StoreError::Answer { what: what.to_owned(), expected: "success".to_owned(), got })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.orders = None;
        let removed = self.thread.take().is_some_and(|thread| thread.join().unwrap_or(false));
        // Not told to leave, the keeper tries again.
        if removed {
            self.keeper.leave().ok();
        }
    }
}

/// The container's life, on its thread. Whether nothing is left of it at the end.
async fn live(
    request: ContainerRequest<GenericImage>,
    kind: Kind,
    port: u16,
    name: String,
    started: blocking::SyncSender<Result<SocketAddr, String>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> bool {
    let container = match request.start().await {
        Ok(container) => container,
        Err(error) => {
            // One that was created and could not start is still there: the keeper knows its name.
            started.send(Err(chain(&error))).ok();
            return false;
        }
    };
    let ready = async {
        let addr = address(&container, port).await?;
        answer(&container, kind, addr).await.map(|()| addr)
    };
    let ready = ready.await;
    let addr = ready.clone().unwrap_or_else(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    if started.send(ready).is_ok() {
        while let Some((deed, done)) = orders.recv().await {
            let result = perform(&container, deed, kind, addr, &name).await;
            done.send(result).ok();
        }
    }
    container.rm().await.is_ok()
}

async fn perform(
    container: &ContainerAsync<GenericImage>,
    deed: Deed,
    kind: Kind,
    addr: SocketAddr,
    name: &str,
) -> Result<(), String> {
    match deed {
        Deed::Pause => container.pause().await.map_err(|error| chain(&error)),
        Deed::Resume => container.unpause().await.map_err(|error| chain(&error)),
        Deed::Kill => {
            let docker = docker_client_instance().await.map_err(|error| chain(&error))?;
            // A paused one takes no signal before it goes on; not paused, it says so.
            docker.unpause_container(name).await.ok();
            docker.kill_container(name, None).await.map_err(|error| chain(&error))?;
            while container.is_running().await.map_err(|error| chain(&error))? {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        }
        Deed::Restart => {
            container.start().await.map_err(|error| chain(&error))?;
            answer(container, kind, addr).await
        }
    }
}

/// What to ask the engine for.
fn request(launch: &Launch, name: &str, port: u16) -> ContainerRequest<GenericImage> {
    let kind = launch.kind;
    let inner = kind.usual_port().tcp();
    let image = image(kind);
    // The tag is behind the last colon, unless that is the port of a registry.
    let (repository, tag) = match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (image.as_str(), "latest"),
    };
    let mut request = GenericImage::new(repository, tag)
        .with_container_name(name)
        .with_cmd(command(launch, port))
        .with_mapped_port(port, inner)
        .with_startup_timeout(PATIENCE);
    if kind == Kind::Postgres {
        request = request.with_env_var("POSTGRES_HOST_AUTH_METHOD", "trust");
    }
    for (name, value) in &launch.env {
        request = request.with_env_var(name.to_string_lossy(), value.to_string_lossy());
    }
    if remote() { request } else { request.with_host_config_modifier(move |config| loopback_only(config, inner)) }
}

/// Keeps the store, which has no password, from the machine's network.
fn loopback_only(config: &mut HostConfig, inner: ContainerPort) {
    let bindings = config.port_bindings.iter_mut().filter_map(|all| all.get_mut(&inner.to_string()));
    for binding in bindings.flatten().flatten() {
        binding.host_ip = Some(Ipv4Addr::LOCALHOST.to_string());
    }
}

/// Whether the engine is on another machine, or may be.
fn remote() -> bool {
    variable("DOCKER_HOST").is_some_and(|host| !host.starts_with("unix:"))
}

/// The image that the environment names, or a public one.
fn image(kind: Kind) -> String {
    let public = match kind {
        Kind::Redis => "redis:7",
        Kind::Postgres => "postgres:17",
        Kind::Etcd => "quay.io/coreos/etcd:v3.5.17",
    };
    variable(kind.image_variable()).unwrap_or_else(|| public.to_owned())
}

/// The server's command line within the container.
fn command(launch: &Launch, port: u16) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut command = vec![launch.kind.binary().to_owned()];
    match launch.kind {
        Kind::Redis => {
            command.extend(words(&["--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no"]));
            command.extend(redis::options(&launch.options).map(|word| word.to_string_lossy().into_owned()));
        }
        Kind::Postgres => {
            command.extend(words(&["-c", "listen_addresses=*", "-c", "fsync=off"]));
            let settings = launch.options.iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]);
            command.extend(settings);
        }
        Kind::Etcd => {
            let seen = format!("http://127.0.0.1:{port}");
            command.extend(words(&["--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls", &seen]));
            command.extend(words(&["--heartbeat-interval=10", "--election-timeout=100"]));
            command.extend(launch.options.iter().map(|(name, value)| format!("--{name}={value}")));
        }
    }
    command
}

/// Where the container's port is seen from here.
async fn address(container: &ContainerAsync<GenericImage>, port: u16) -> Result<SocketAddr, String> {
    let host = container.get_host().await.map_err(|error| chain(&error))?.to_string();
    let host = if remote() { host } else { Ipv4Addr::LOCALHOST.to_string() };
    let addrs = (host.as_str(), port).to_socket_addrs();
    let mut addrs = addrs.map_err(|error| format!("the Docker host `{host}`: {error}"))?;
    addrs.next().ok_or_else(|| format!("the Docker host `{host}` has no address"))
}

/// Waits until the store in the container answers.
async fn answer(container: &ContainerAsync<GenericImage>, kind: Kind, addr: SocketAddr) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if answers(kind, addr) {
            return Ok(());
        }
        let runs = container.is_running().await.map_err(|error| chain(&error))?;
        if !runs || Instant::now() >= deadline {
            let seen =
                if runs { format!("no answer on {addr} within {PATIENCE:?}") } else { "it ended at once".to_owned() };
            let out = container.stdout_to_vec().await.unwrap_or_default();
            let err = container.stderr_to_vec().await.unwrap_or_default();
            return Err(format!("{seen}. Its log:\n{}", String::from_utf8_lossy(&[out, err].concat())));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The engine accepts connections before the store does, so only an answer counts.
fn answers(kind: Kind, addr: SocketAddr) -> bool {
    match kind {
        Kind::Redis => {
            let pong = Resp::connect(addr).and_then(|mut resp| resp.call(&["PING"]));
            pong.is_ok_and(|reply| reply.text() == "PONG")
        }
        Kind::Postgres => Sql::connect(addr).is_ok(),
        Kind::Etcd => http_get(addr, "/health").is_ok_and(|(status, body)| status == 200 && body.contains("\"true\"")),
    }
}

/// Whether an engine's refusal is about the port.
fn port_taken(why: &str) -> bool {
    taken(why) || why.contains("port is already allocated")
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

fn gone() -> String {
    "the thread of the container has ended".to_owned()
}
