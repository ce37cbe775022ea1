//! The engine in this process, whose clock can be set.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use limiter_core::{Backend, Clock, Instant, Memory, SystemClock};

use crate::fault::Site;
use crate::fault::ground::{Act, Ground, Means, Setting, cannot};
use crate::subject::BoxError;

/// The system's clock, off by so many µs.
#[derive(Clone, Debug, Default)]
struct Off(Arc<AtomicI64>);

impl Clock for Off {
    fn now(&self) -> Instant {
        let micros = SystemClock.now().micros().saturating_add_signed(self.0.load(Ordering::SeqCst));
        Instant::from_micros(micros).unwrap_or(Instant::MAX)
    }
}

#[derive(Debug)]
struct Table(Off);

impl Ground for Table {
    fn addr(&self) -> Option<SocketAddr> {
        None
    }

    fn url(&self, _at: Option<SocketAddr>) -> String {
        "memory:".to_owned()
    }

    fn act(&self, act: Act) -> Result<(), BoxError> {
        match act {
            Act::Clock(micros) => self.0.0.store(micros, Ordering::SeqCst),
            _ => return Err(cannot("a table in this process", act)),
        }
        Ok(())
    }
}

/// The memory engine, as a site without a road.
pub(crate) fn site() -> Site {
    let off = Off::default();
    let clock = off.clone();
    let memory: Arc<dyn Backend> = Arc::new(Memory::builder().clock(off).build());
    let prepare = move |_: &Setting| -> Result<Box<dyn Ground>, BoxError> {
        clock.0.store(0, Ordering::SeqCst);
        Ok(Box::new(Table(clock.clone())))
    };
    Site::new("memory", &[Means::Clock], prepare, move |_url| {
        let memory = Arc::clone(&memory);
        async move { Ok(memory) }
    })
}
