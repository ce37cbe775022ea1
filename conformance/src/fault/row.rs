//! The rows: what each one does, what it needs, and the code that runs it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::case::Failure;
use crate::fault::audit::{Audit, Excuse};
use crate::fault::figure::Figure;
use crate::fault::ground::Means;
use crate::fault::{Scale, Site, Terms};

mod changes;
mod clients;
mod clock;
mod contention;
mod crash;
mod failover;
mod full;
mod layers;
mod members;
mod outage;
pub(crate) mod random;
mod road;
mod server;
mod skew;
mod steady;

/// One fault, and what has to hold after it.
#[derive(Clone, Copy)]
pub struct Row {
    id: &'static str,
    about: &'static str,
    needs: &'static [Means],
    run: fn(&Site, Terms) -> Result<Measured, Failure>,
}

/// What a row measured, and what it can say of a difference.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) figures: Vec<Figure>,
    pub(crate) told: Vec<String>,
}

impl Measured {
    /// What every history is held against.
    pub(crate) fn of(audit: &Audit, excuse: Excuse) -> Self {
        Self { figures: audit.figures(excuse), told: audit.told().to_vec() }
    }

    pub(crate) fn and(mut self, figure: Figure) -> Self {
        self.figures.push(figure);
        self
    }

    fn verdict(&self) -> Verdict {
        let named = |figure: &Figure| match &figure.part {
            Some(part) => format!("{part}: {figure}"),
            None => figure.to_string(),
        };
        let broken: Vec<String> = self.figures.iter().filter(|figure| !figure.holds()).map(named).collect();
        if broken.is_empty() {
            return Verdict::Held;
        }
        let why = std::iter::once(broken.join(", ")).chain(self.told.iter().cloned()).collect::<Vec<_>>();
        Verdict::Broken { why: why.join("\n  ") }
    }

    /// Those of another run of the same row, under its name.
    pub(crate) fn join(&mut self, name: &str, other: Self) {
        let named = other.figures.into_iter().map(|figure| figure.of_part(name));
        self.figures.extend(named);
        self.told.extend(other.told);
    }
}

/// The outcome of one row on one site.
#[derive(Clone, Debug, Serialize)]
#[must_use]
#[non_exhaustive]
pub struct RowReport {
    /// The row.
    pub row: &'static str,
    /// What it does.
    pub about: &'static str,
    /// The site.
    pub site: String,
    /// What came out.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// How long it took, in seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
}

/// What came out of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Every figure kept its bound.
    Held,
    /// One did not, or the row could not be run.
    Broken {
        /// What was wrong.
        why: String,
    },
    /// The site lacks what the row needs.
    NotApplicable {
        /// What that is, and why.
        reason: String,
    },
}

fn seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64())
}

impl Row {
    /// The row's number, as `F06`.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        self.id
    }

    /// What it does.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// What a site must offer for the row to apply.
    #[must_use]
    pub const fn needs(&self) -> &'static [Means] {
        self.needs
    }

    /// About how long it takes, in seconds: for a plan that has to end in time.
    pub(crate) fn takes(&self, scale: Scale) -> u64 {
        match (self.id, scale) {
            ("F18" | "F19", Scale::Short) => 13,
            ("F10" | "F17" | "F20" | "F23", Scale::Short) => 8,
            ("F12" | "F24" | "F25" | "F30", Scale::Short) => 5,
            (_, Scale::Short) => 3,
            ("F24", Scale::Long) => 300,
            ("F20" | "F30", Scale::Long) => 70,
            ("F12" | "F17" | "F18" | "F19" | "F23", Scale::Long) => 45,
            (_, Scale::Long) => 28,
        }
    }

    /// Why the row does not apply to this site; None if it does.
    #[must_use]
    pub fn lack(&self, site: &Site) -> Option<String> {
        self.needs.iter().find_map(|means| site.lack(*means))
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({})", self.id)
    }
}

impl RowReport {
    /// A report of measured figures: broken if one is beyond its bound, or there are none because of a failure.
    pub(crate) fn of(
        (row, about): (&'static str, &'static str),
        site: &Site,
        measured: Result<Measured, Failure>,
        took: Duration,
    ) -> Self {
        let (figures, verdict) = match measured {
            Ok(measured) => {
                let verdict = measured.verdict();
                (measured.figures, verdict)
            }
            Err(failure) => (Vec::new(), Verdict::Broken { why: failure.to_string() }),
        };
        Self { row, about, site: site.name().to_owned(), verdict, figures, took }
    }
}

impl fmt::Display for RowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.row, self.site)?;
        if let Verdict::NotApplicable { reason } = &self.verdict {
            return write!(f, "not applicable: {reason}");
        }
        write_figures(f, &self.figures)?;
        write!(f, " ({}.{} s)", self.took.as_secs(), self.took.subsec_millis() / 100)?;
        if let Verdict::Broken { why } = &self.verdict {
            let comma = if self.figures.is_empty() { "" } else { "; " };
            write!(f, "{comma}BROKEN: {why}")?;
        }
        Ok(())
    }
}

/// Figures one after the other, those of one part under its name.
pub(crate) fn write_figures<'f>(
    f: &mut fmt::Formatter<'_>,
    figures: impl IntoIterator<Item = &'f Figure>,
) -> fmt::Result {
    let mut part = None;
    for (index, figure) in figures.into_iter().enumerate() {
        match &figure.part {
            Some(name) if part != figure.part.as_ref() => {
                write!(f, "{}{name}: {figure}", if index > 0 { "; " } else { "" })?;
            }
            _ => write!(f, "{}{figure}", if index > 0 { ", " } else { "" })?,
        }
        part = figure.part.as_ref();
    }
    Ok(())
}

/// Every row, in order.
#[must_use]
pub fn rows() -> Vec<Row> {
    use Means::{
        Clock, Crash, DropClients, Eviction, Fallback, Follower, Hang, Members, NodeClocks, Pause, Processes, Quorum,
        ReadOnly, Road, Scripts, Standby, StoredKeys,
    };
    vec![
        Row { id: "F01", about: "no fault, all at once", needs: &[], run: steady::no_fault },
        Row { id: "F02", about: "no fault, one given instant for all", needs: &[], run: steady::one_instant },
        Row { id: "F03", about: "every reply 50 ms late, more or less", needs: &[Road], run: road::delay },
        Row { id: "F04", about: "a road that swallows everything", needs: &[Road], run: road::black_hole },
        Row { id: "F05", about: "connections that are reset again and again", needs: &[Road], run: road::reset },
        Row { id: "F06", about: "requests that arrive, and replies that don't", needs: &[Road], run: road::drop_reply },
        Row { id: "F07", about: "connections cut in the middle of a reply", needs: &[Road], run: road::cut },
        Row { id: "F08", about: "one process cut off", needs: &[Road, Processes], run: clients::partitioned },
        Row { id: "F09", about: "a store that stops, and goes on", needs: &[Road, Pause], run: server::pause },
        Row { id: "F10", about: "a client that stands still", needs: &[Road, Processes], run: clients::still },
        Row { id: "F11", about: "clients killed at random", needs: &[Road, Processes], run: clients::killed },
        Row {
            id: "F12",
            about: "a store that is killed, and started again",
            needs: &[Road, Crash],
            run: crash::restart,
        },
        Row { id: "F13", about: "scripts that are forgotten", needs: &[Road, Scripts], run: server::forget_scripts },
        Row {
            id: "F14",
            about: "clients dropped by the store",
            needs: &[Road, DropClients],
            run: server::drop_clients,
        },
        Row { id: "F15", about: "a store that answers nobody", needs: &[Road, Hang], run: server::hang },
        Row {
            id: "F16",
            about: "a primary that dies, a follower promoted",
            needs: &[Road, Follower],
            run: failover::failover,
        },
        Row { id: "F17", about: "two primaries at once", needs: &[Road, Follower, Quorum], run: failover::split },
        Row { id: "F18", about: "a standby promoted, behind and not", needs: &[Standby], run: failover::standby },
        Row { id: "F19", about: "members that die and stall", needs: &[Members], run: members::lost },
        Row { id: "F20", about: "leaders that change all the time", needs: &[Members], run: members::leaders },
        Row { id: "F21", about: "64 tasks at one key", needs: &[Road], run: contention::one_key },
        Row { id: "F22", about: "the clock steps, forward and back", needs: &[Clock], run: clock::steps },
        Row {
            id: "F23",
            about: "clients' clocks half a second off, to both sides",
            needs: &[Road, Processes, NodeClocks],
            run: skew::clocks,
        },
        Row {
            id: "F24",
            about: "a full store, under each eviction policy",
            needs: &[Eviction, StoredKeys],
            run: full::sprayed,
        },
        Row { id: "F25", about: "a store that can't be written to", needs: &[Road, ReadOnly], run: full::refuses },
        Row { id: "F26", about: "callers that go away", needs: &[], run: changes::cancelled },
        Row { id: "F27", about: "limits that change under load", needs: &[], run: changes::limits },
        Row {
            id: "F28",
            about: "layers whose inner one is exhausted, under faults",
            needs: &[Road],
            run: layers::leaks,
        },
        Row {
            id: "F29",
            about: "a store that is away, and a fallback that is not",
            needs: &[Road, Fallback],
            run: outage::fallback,
        },
        Row { id: "F30", about: "one thing after the other, at random", needs: &[Road], run: random::plan },
    ]
}

/// Runs one row on one site, on a store of its own. It blocks, and may be called with or without an asynchronous runtime around.
pub fn run_row(site: &Site, row: &Row, terms: Terms) -> RowReport {
    let named = (row.id, row.about);
    if let Some(reason) = row.lack(site) {
        let mut report = RowReport::of(named, site, Ok(Measured::default()), Duration::ZERO);
        report.verdict = Verdict::NotApplicable { reason };
        return report;
    }
    let began = Instant::now();
    let measured = apart(|| (row.run)(site, terms));
    RowReport::of(named, site, measured, began.elapsed())
}

/// Runs something in a thread of its own: within a runtime, no other may be waited for.
pub(crate) fn apart<T: Send>(run: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    let ran = std::thread::scope(|scope| {
        let thread = scope.spawn(|| catch_unwind(AssertUnwindSafe(run)));
        thread.join().and_then(|caught| caught)
    });
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure::new(format!("panicked: {text}")))
    })
}
