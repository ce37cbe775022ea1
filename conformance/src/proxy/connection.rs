//! One connection through a fault proxy.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::http2::Frames;
use super::traffic::{Open, Way};
use super::{Fault, Plan, Then};

/// How much is read at once.
const PIECE: usize = 64 << 10;
/// How many pieces may be on their way in one direction.
const IN_FLIGHT: usize = 1024;

/// No delay is longer; what waits for more is better served by a stall.
const LONGEST: Duration = Duration::from_hours(1);

/// How a connection ends before both sides have closed it.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Orderly: what was passed on arrives.
    Close,
    /// By RST.
    Reset,
}

/// Bytes on their way.
#[derive(Debug)]
struct Piece {
    /// When they are to arrive.
    due: Instant,
    bytes: Vec<u8>,
    /// Whether the connection ends behind them.
    last: bool,
}

/// Carries bytes between `client` and `upstream` until one of them, or the plan, ends it: when all
/// connections are reset that were open at the count of `resets`, this is one of them.
pub(super) async fn carry(
    mut client: TcpStream,
    upstream: SocketAddr,
    mut plans: watch::Receiver<Plan>,
    resets: u64,
    open: Open,
) {
    let over = |plan: &Plan| plan.resets != resets || plan.fault == Fault::Refuse;
    let connected = tokio::select! {
        biased;
        _ = plans.wait_for(over) => None,
        connected = TcpStream::connect(upstream) => connected.ok(),
    };
    let Some(mut store) = connected else {
        client.set_zero_linger().ok();
        drop(client);
        return;
    };
    client.set_nodelay(true).ok();
    store.set_nodelay(true).ok();
    let end = {
        let (from_client, to_client) = client.split();
        let (from_store, to_store) = store.split();
        let up = Pump::new(Way::Up, plans.clone(), &open);
        let down = Pump::new(Way::Down, plans.clone(), &open);
        let both =
            async { tokio::try_join!(up.run(from_client, to_store), down.run(from_store, to_client)).map(|_| ()) };
        tokio::select! {
            biased;
            _ = plans.wait_for(over) => Err(End::Reset),
            end = both => end,
        }
    };
    if let Err(End::Reset) = end {
        client.set_zero_linger().ok();
        store.set_zero_linger().ok();
    }
    // The sockets first, then the count: who sees it fall finds the connection gone.
    drop((client, store));
    drop(open);
}

/// How a piece passes.
struct Passage {
    due: Instant,
    /// How many of its bytes do.
    keep: usize,
    /// Whether the connection ends behind them.
    last: bool,
}

/// One direction of a connection.
struct Pump<'a> {
    way: Way,
    plans: watch::Receiver<Plan>,
    open: &'a Open,
    frames: Frames,
    /// The fault that the next two belong to.
    era: u64,
    /// Bytes passed on under it.
    passed: u64,
    /// Delays drawn under it.
    nth: u64,
    /// When the piece before arrives: none overtakes another.
    due: Instant,
}

impl<'a> Pump<'a> {
    fn new(way: Way, plans: watch::Receiver<Plan>, open: &'a Open) -> Self {
        let era = plans.borrow().era;
        Self { way, plans, open, frames: Frames::default(), era, passed: 0, nth: 0, due: Instant::now() }
    }

    async fn run(mut self, from: ReadHalf<'_>, to: WriteHalf<'_>) -> Result<(), End> {
        let (way, open) = (self.way, self.open);
        let (queue, pieces) = mpsc::channel(IN_FLIGHT);
        tokio::try_join!(self.take(from, queue), deliver(way, open, pieces, to)).map(|_| ())
    }

    /// Reads pieces and does with them as the plan says.
    async fn take(&mut self, mut from: ReadHalf<'_>, queue: mpsc::Sender<Piece>) -> Result<(), End> {
        let mut buffer = vec![0; PIECE];
        loop {
            let Ok(n) = from.read(&mut buffer).await else {
                let plan = *self.plans.borrow();
                if plan.fault != Fault::BlackHole {
                    return Err(End::Reset);
                }
                // It lets no RST through either.
                self.era = plan.era;
                return self.mute(from, buffer).await;
            };
            self.saw(buffer.get(..n).unwrap_or_default());
            let Some(Passage { due, keep, last }) = self.judge(n).await? else {
                return self.mute(from, buffer).await;
            };
            if n == 0 {
                return Ok(());
            }
            let bytes = buffer.get(..keep).unwrap_or_default().to_vec();
            let piece = Piece { due, bytes, last };
            // The writer is gone only when the whole connection ends.
            queue.send(piece).await.map_err(|_| End::Reset)?;
            if last {
                // The writer ends it all.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Counts what has been read.
    fn saw(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.open.saw(self.way, bytes.len());
        }
        if self.way == Way::Up {
            self.open.began(self.frames.take(bytes));
        }
    }

    /// How a piece of `n` bytes passes; `None` to swallow it.
    async fn judge(&mut self, n: usize) -> Result<Option<Passage>, End> {
        loop {
            let plan = *self.plans.borrow_and_update();
            if plan.era != self.era {
                (self.era, self.passed, self.nth) = (plan.era, 0, 0);
            }
            let down = self.way == Way::Down;
            let (mut due, mut keep, mut last) = (Instant::now(), n, false);
            match plan.fault {
                Fault::Stall => {
                    // The proxy is being dropped if nobody can change the plan any more.
                    self.plans.changed().await.map_err(|_| End::Reset)?;
                    continue;
                }
                Fault::BlackHole => return Ok(None),
                Fault::DropReply(Then::Reset) if down && n > 0 => return Err(End::Reset),
                Fault::DropReply(Then::Silence) if down && n > 0 => return Ok(None),
                Fault::Refuse => return Err(End::Reset),
                Fault::Delay { each_way, jitter, seed } => {
                    let stream = self.open.id * 2 + u64::from(down);
                    due += delay(each_way, jitter, seed, stream, self.nth);
                    self.nth += 1;
                }
                Fault::Cut { after } if down => {
                    let left = usize::try_from(after.saturating_sub(self.passed)).unwrap_or(usize::MAX);
                    (keep, last) = (n.min(left), n >= left);
                }
                Fault::Pass | Fault::Cut { .. } | Fault::DropReply(_) => {}
            }
            self.passed = self.passed.saturating_add(u64::try_from(keep).unwrap_or(u64::MAX));
            self.due = self.due.max(due);
            return Ok(Some(Passage { due: self.due, keep, last }));
        }
    }

    /// Swallows whatever comes until the fault ends, and the connection with it.
    async fn mute(&mut self, mut from: ReadHalf<'_>, mut buffer: Vec<u8>) -> Result<(), End> {
        let (era, mut plans, mut open_end) = (self.era, self.plans.clone(), true);
        loop {
            tokio::select! {
                _ = plans.wait_for(|plan| plan.era != era) => return Err(End::Reset),
                read = from.read(&mut buffer), if open_end => match read {
                    Ok(n @ 1..) => self.saw(buffer.get(..n).unwrap_or_default()),
                    // The end of a stream is swallowed like the rest of it.
                    Ok(_) | Err(_) => open_end = false,
                },
            }
        }
    }
}

/// The `nth` delay of a stream of pieces.
fn delay(mean: Duration, jitter: Duration, seed: u64, stream: u64, nth: u64) -> Duration {
    let random = mix(mix(seed ^ stream).wrapping_add(nth));
    let nanos = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
    let span = nanos.saturating_mul(2).saturating_add(1);
    let delay = mean.saturating_add(Duration::from_nanos(random % span));
    delay.saturating_sub(jitter).min(LONGEST)
}

/// Writes each piece when it is due; after the last one, closes this direction.
async fn deliver(way: Way, open: &Open, mut pieces: mpsc::Receiver<Piece>, mut to: WriteHalf<'_>) -> Result<(), End> {
    while let Some(Piece { due, bytes, last }) = pieces.recv().await {
        if due > Instant::now() {
            sleep_until(due).await;
        }
        open.passes(way, bytes.len());
        to.write_all(&bytes).await.map_err(|_| End::Reset)?;
        if last {
            return Err(End::Close);
        }
    }
    to.shutdown().await.map_err(|_| End::Reset)
}

/// A well-mixed number from a number (`SplitMix64`).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_seeded_and_keep_to_their_bounds() {
        let (mean, jitter) = (Duration::from_millis(50), Duration::from_millis(20));
        let of = |seed, stream| (0..1000).map(|nth| delay(mean, jitter, seed, stream, nth)).collect::<Vec<_>>();
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 1));
        let all = of(1, 0);
        let (least, most) = (Duration::from_millis(30), Duration::from_millis(70));
        assert!(all.iter().all(|delay| (least..=most).contains(delay)));
        let sum: Duration = all.iter().sum();
        assert!(sum.abs_diff(mean * 1000) < Duration::from_secs(2), "{sum:?}");
        assert_eq!(delay(mean, Duration::ZERO, 1, 0, 0), mean);
        assert_eq!(delay(Duration::MAX, Duration::ZERO, 1, 0, 0), LONGEST);
        // More jitter than delay: never before now.
        assert!((0..100).all(|nth| delay(Duration::ZERO, jitter, 1, 0, nth) <= jitter));
    }
}
