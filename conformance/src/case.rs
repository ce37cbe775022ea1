//! The cases: what each one is called, what it needs, and the code that runs it.

use std::fmt;

use serde::Serialize;

use crate::subject::{Ability, BoxFuture};
use crate::trial::Trial;

mod batches;
mod cancellation;
mod clock;
mod concurrency;
mod config;
mod failures;
mod keys;
mod layers;
mod lifetimes;
mod operations;
mod timelines;
mod vectors;

/// One thing that an engine has to get right.
#[derive(Clone, Copy)]
pub struct Case {
    pub(crate) group: Group,
    pub(crate) name: &'static str,
    /// What has to hold, in a sentence.
    pub(crate) about: &'static str,
    pub(crate) needs: &'static [Ability],
    pub(crate) run: Run,
}

/// What runs a case.
pub(crate) type Run = for<'t> fn(&'t Trial) -> BoxFuture<'t, Result<(), Failure>>;

impl Case {
    /// The group.
    #[must_use]
    pub const fn group(&self) -> Group {
        self.group
    }

    /// The name, unique in its group.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What has to hold, in a sentence.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// What a subject must offer for this case to apply. Nothing: it applies to every engine.
    #[must_use]
    pub const fn needs(&self) -> &'static [Ability] {
        self.needs
    }

    /// `group::name`, as filters match it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.path())
    }
}

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Group {
    /// The worked examples of the contract, at given instants.
    Vectors,
    /// Other people's faults, as timelines at given instants.
    Timelines,
    /// Several limits in one request, all or nothing.
    Layers,
    /// Several requests in one batch.
    Batches,
    /// Peek, refund and reset.
    Operations,
    /// Which strings are which keys.
    Keys,
    /// Whose clock decides, and what if it steps.
    Clock,
    /// How long states are kept.
    Lifetimes,
    /// Limits that change while their keys are live.
    Config,
    /// Callers that go away.
    Cancellation,
    /// Replies that get lost, and stores that can't be reached.
    Failures,
    /// Many clients at once, checked by their recorded history.
    Concurrency,
}

impl Group {
    /// The name in filters and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vectors => "vectors",
            Self::Timelines => "timelines",
            Self::Layers => "layers",
            Self::Batches => "batches",
            Self::Operations => "operations",
            Self::Keys => "keys",
            Self::Clock => "clock",
            Self::Lifetimes => "lifetimes",
            Self::Config => "config",
            Self::Cancellation => "cancellation",
            Self::Failures => "failures",
            Self::Concurrency => "concurrency",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Every case of the suite, by group.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        vectors::cases(),
        timelines::cases(),
        layers::cases(),
        batches::cases(),
        operations::cases(),
        keys::cases(),
        clock::cases(),
        lifetimes::cases(),
        config::cases(),
        cancellation::cases(),
        failures::cases(),
        concurrency::cases(),
    ]
    .concat()
}

/// Why a case failed, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}

/// A list of cases: the function's name is the case's.
macro_rules! case_list {
    ($group:ident: $($name:ident $([$($need:ident),+])? $about:literal,)*) => {
        pub(super) fn cases() -> Vec<$crate::case::Case> {
            vec![$($crate::case::Case {
                group: $crate::case::Group::$group,
                name: stringify!($name),
                about: $about,
                needs: &[$($($crate::subject::Ability::$need),+)?],
                run: |trial| Box::pin($name(trial)),
            }),*]
        }
    };
}
use case_list;

/// Ends the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::case::Failure::new(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;
