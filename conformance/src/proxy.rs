//! A TCP proxy that fails on command.
//!
//! It stands between a client and a store, passes bytes on, and does what the test says at run
//! time: delay, swallow, cut, drop replies, reset, refuse. It counts what it sees, so that "one
//! round trip" can be asserted. It knows nothing of what the bytes mean: no TLS, no protocol.
//!
//! A stream with a hole in it does not exist in TCP: no driver need cope with one. So a connection
//! of which bytes were swallowed stays mute, and is reset when the fault ends.
//!
//! The proxy runs on a thread with a runtime of its own. It serves blocking and async tests alike,
//! keeps its time while a test blocks its own runtime or stops its clock, and ends when dropped.
//!
//! ```no_run
//! use limiter_conformance::proxy::{Fault, Proxy};
//! use limiter_conformance::store::{Kind, start};
//!
//! let redis = start(Kind::Redis)?;
//! let proxy = Proxy::start(redis.addr())?;
//! println!("the engine under test connects to redis://{}", proxy.addr());
//!
//! let before = proxy.traffic();
//! // ... one check ...
//! assert_eq!(proxy.traffic().since(&before).round_trips, 1);
//!
//! proxy.set(Fault::BlackHole)?;
//! // ... a check now ends by its timeout, as unknown ...
//! proxy.set(Fault::Pass)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connection;
mod http2;
mod traffic;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::store::free_port;
use traffic::Counters;
pub use traffic::Traffic;

/// How long a change may take to be in effect everywhere; it takes microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);

/// What the proxy does to the connections through it, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: all bytes pass at once.
    #[default]
    Pass,
    /// Everything arrives later, in order: each piece by `each_way` plus or minus up to `jitter`,
    /// drawn from `seed`. An answer to a question comes two such delays later. It slows nothing
    /// but the arrival: many pieces may be on their way.
    Delay {
        /// The mean delay in one direction.
        each_way: Duration,
        /// How far a delay may be from the mean.
        jitter: Duration,
        /// Where the jitter is drawn from: the same seed gives the same delays, connection by
        /// connection in the order in which they were accepted.
        seed: u64,
    },
    /// Nothing moves and nothing is lost: a partition that heals before anyone gives up. Bytes go
    /// on where they stopped when the fault ends.
    Stall,
    /// All bytes of both directions are accepted and swallowed, the end of a stream too.
    BlackHole,
    /// Each connection passes this many more bytes of reply and is then closed, in the middle of a
    /// reply if the number says so. Requests pass.
    Cut {
        /// How many bytes of reply each connection still passes.
        after: u64,
    },
    /// Requests pass and replies are swallowed: the store did it, and the client cannot know.
    DropReply(Then),
    /// Connections are reset, and new ones refused as if nobody listened.
    Refuse,
}

/// How a client learns that its reply is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The connection is reset in place of the reply.
    Reset,
    /// Not at all: the connection stays open and mute until the fault ends.
    Silence,
}

/// What connections follow: it changes with every [`Proxy::set`] and [`Proxy::reset`].
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Where new connections are carried to.
    upstream: SocketAddr,
    fault: Fault,
    /// Counts the faults set.
    era: u64,
    /// Counts the resets of all connections.
    resets: u64,
}

/// Whether to listen, and whom to tell when that is so.
type Order = (bool, blocking::SyncSender<io::Result<()>>);

/// A running proxy. Dropping it closes all connections and the port.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    plan: watch::Sender<Plan>,
    counters: Arc<Counters>,
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free loopback port, and forwards to `upstream`, which need not listen yet: as
    /// long as nobody listens there, connections are reset.
    ///
    /// # Errors
    ///
    /// The operating system's, if there is no port or no thread to be had.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        let (plan, plans) = watch::channel(Plan { upstream, fault: Fault::Pass, era: 0, resets: 0 });
        let (orders, inbox) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let listener = draw_port()?;
        let addr = listener.local_addr()?;
        let (started, wait) = blocking::sync_channel(1);
        let shared = Arc::clone(&counters);
        // Runtime and all on the thread: made or dropped in an async test it would panic.
        let serve = move || {
            let served = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
            let served = served.and_then(|runtime| {
                runtime.block_on(async {
                    let listener = TcpListener::from_std(listener)?;
                    started.send(Ok(())).ok();
                    accept(listener, plans, shared, inbox).await
                })
            });
            // Nobody listens to this once the proxy has started; until then it is the reason.
            if let Err(error) = served {
                started.send(Err(error)).ok();
            }
        };
        let thread = thread::Builder::new().name("limiter-proxy".to_owned()).spawn(serve)?;
        wait.recv().map_err(|_| gone())??;
        Ok(Self { addr, plan, counters, orders: Some(orders), thread: Some(thread) })
    }

    /// Where the proxy listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What the proxy does at present.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.plan.borrow().fault
    }

    /// Ends the present fault and begins another; all bytes that come from now on meet the new one.
    ///
    /// # Errors
    ///
    /// The operating system's, if somebody took the port while the proxy [refused](Fault::Refuse).
    pub fn set(&self, fault: Fault) -> io::Result<()> {
        let before = self.fault();
        let change = || {
            self.plan.send_modify(|plan| {
                plan.fault = fault;
                plan.era += 1;
            });
        };
        if fault == Fault::Refuse {
            self.listen(false)?;
            let old = self.counters.live();
            change();
            self.wait_for_end_of(&old)
        } else {
            change();
            if before == Fault::Refuse { self.listen(true) } else { Ok(()) }
        }
    }

    /// Resets all connections that are open now (RST, not an orderly end). New ones are welcome.
    ///
    /// # Errors
    ///
    /// `TimedOut` if a connection is still there after 5 s.
    pub fn reset(&self) -> io::Result<()> {
        let old = self.counters.live();
        self.plan.send_modify(|plan| plan.resets += 1);
        self.wait_for_end_of(&old)
    }

    /// Carries connections that come from now on to another server, as an address that moves in a failover does. Those that
    /// are open stay where they are: [`reset`](Self::reset) ends them.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.plan.send_modify(|plan| plan.upstream = upstream);
    }

    /// What went through the proxy so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }

    /// Opens or closes the port, and returns when that is done.
    fn listen(&self, listen: bool) -> io::Result<()> {
        let (done, wait) = blocking::sync_channel(1);
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send((listen, done)).map_err(|_| gone())?;
        wait.recv_timeout(2 * PATIENCE).map_err(|_| gone())?
    }

    fn wait_for_end_of(&self, connections: &[u64]) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.counters.any_live(connections) {
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already, and another one here would abort.
            thread.join().ok();
        }
    }
}

/// A listener on a free port that stays free while the proxy refuses.
fn draw_port() -> io::Result<std::net::TcpListener> {
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..16 {
        match std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, free_port()?)) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok(listener);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn gone() -> io::Error {
    io::Error::other("the thread of the fault proxy has ended")
}

/// Accepts connections, unless told not to, until the proxy is dropped.
async fn accept(
    listener: TcpListener,
    plans: watch::Receiver<Plan>,
    counters: Arc<Counters>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> io::Result<()> {
    let addr = listener.local_addr()?;
    let mut listener = Some(listener);
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some((listen, done)) => {
                    let result = open_or_close(&mut listener, addr, listen).await;
                    done.send(result).ok();
                }
                None => return Ok(()),
            },
            connection = accepted => match connection {
                Ok((client, _)) => {
                    // In this order, and here: a reset that finds the connection counted reaches it.
                    let Plan { upstream, resets, .. } = *plans.borrow();
                    let open = Counters::open(&counters);
                    tokio::spawn(connection::carry(client, upstream, plans.clone(), resets, open));
                }
                // Out of file handles, say: others may end meanwhile.
                Err(_) => tokio::time::sleep(POLL).await,
            },
        }
    }
}

async fn open_or_close(listener: &mut Option<TcpListener>, addr: SocketAddr, listen: bool) -> io::Result<()> {
    if !listen {
        if let Some(listener) = listener.take() {
            // Closing would not do at once: if another thread is just starting a program, that has a
            // copy of the socket until it is a program.
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).ok();
        }
        return Ok(());
    }
    let deadline = Instant::now() + PATIENCE;
    while listener.is_none() {
        match TcpListener::bind(addr).await {
            Ok(bound) => *listener = Some(bound),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
    Ok(())
}
