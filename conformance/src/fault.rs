//! What a limiter promises while its store fails, and the proof: each row does one thing to a store, clients ask meanwhile, and
//! what they saw is held against the contract.
//!
//! A [`Site`] is an engine on a store of its own; a [`Row`] is a fault with what has to hold after it. Whatever the fault, each
//! history is decided again by the core in the order of its versions, and no call may have been charged twice, none that was told no
//! may have been charged, no key may stay without an expiry, and every call ends in time. A row adds what is its own: how much may be
//! admitted in excess, and how soon the store has to answer again. Every figure is shown beside its bound, since a bound that is
//! never near is suspicious.
//!
//! ```
//! use limiter_conformance::fault::{Site, Terms, Verdict, rows, run_row};
//!
//! let (site, terms) = (Site::memory(), Terms::default());
//! let row = rows().into_iter().find(|row| row.id() == "F02").ok_or("no such row")?;
//! let report = run_row(&site, &row, terms);
//! assert_eq!(report.verdict, Verdict::Held, "{report}"); // F02 memory: …, admitted 500/500, …
//! let row = rows().into_iter().find(|row| row.id() == "F06").ok_or("no such row")?;
//! assert!(matches!(run_row(&site, &row, terms).verdict, Verdict::NotApplicable { .. }), "there is no road to cut");
//! # Ok::<(), String>(())
//! ```
//!
//! As tests of an engine's crate, [`fault_rows!`](crate::fault_rows) makes one of each row; [`chaos`] runs them in a random order
//! with random parameters for as long as one likes, which is also `limiter conformance --chaos SEED`.

mod audit;
pub mod chaos;
mod figure;
mod ground;
#[doc(hidden)]
pub mod harness;
mod load;
#[cfg(feature = "mutants")]
pub mod planted;
mod probe;
mod row;
mod scene;
mod site;
pub mod soak;
mod worst;

pub use figure::{Bound, Figure, Unit};
pub use ground::{Act, Ground, Means, Setting};
pub use row::{Row, RowReport, Verdict, rows, run_row};
pub use site::{Life, Loses, Site};
pub use worst::Worst;

/// How a row is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Terms {
    /// Seeds all that is random in it.
    pub seed: u64,
    /// How long it takes.
    pub scale: Scale,
}

/// How long a row takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// 1 to 4 s: for each change.
    Short,
    /// Ten times as long, and longer faults.
    Long,
}

impl Default for Terms {
    fn default() -> Self {
        Self { seed: 1, scale: Scale::Short }
    }
}

impl Terms {
    /// With this seed and scale.
    #[must_use]
    pub const fn new(seed: u64, scale: Scale) -> Self {
        Self { seed, scale }
    }

    pub(crate) const fn pick(self, short: u64, long: u64) -> u64 {
        match self.scale {
            Scale::Short => short,
            Scale::Long => long,
        }
    }
}

impl Site {
    /// The memory engine of this process: what applies to it without a road to a store.
    pub fn memory() -> Self {
        ground::memory::site()
    }
}
