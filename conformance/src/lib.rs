#![doc = include_str!("../README.md")]

mod case;
pub mod command;
pub mod fault;
mod figures;
#[doc(hidden)]
pub mod harness;
pub mod history;
pub mod load;
mod monotonic;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod proxy;
mod race;
mod random;
mod report;
pub mod rig;
#[cfg(feature = "mutants")]
pub mod stand_in;
pub mod store;
mod subject;
mod suite;
pub mod timelines;
mod trial;
mod twin;
pub mod vectors;
pub mod worker;
mod workload;

pub use case::{Case, Failure, Group, cases};
pub use figures::Figures;
pub use race::race;
pub use random::Random;
pub use report::{CaseReport, Report, Verdict};
pub use subject::{Ability, BoxError, BoxFuture, Connected, Numbering, Stored, Subject};
pub use suite::{Options, run, run_case, run_with};

/// The snippet that strangers are shown is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../CONTRIBUTING.md")]
struct Contributing;
