//! What came out: verdicts and figures, for people and for programs.

use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::case::Group;
use crate::figures::Figures;

mod junit;

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
#[must_use]
#[non_exhaustive]
pub struct Report {
    /// The subject's name.
    pub subject: String,
    /// What seeded the run: the same seed asks the same again.
    pub seed: u64,
    /// How long it took, in seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// The fewest cases that had to run.
    pub at_least: usize,
    /// One for each selected case.
    pub cases: Vec<CaseReport>,
}

/// The outcome of one case.
#[derive(Clone, Debug, Serialize)]
#[must_use]
#[non_exhaustive]
pub struct CaseReport {
    /// The case's group.
    pub group: Group,
    /// Its name.
    pub name: &'static str,
    /// What came out.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What was counted.
    #[serde(flatten)]
    pub figures: Figures,
    /// How long it took, in seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
}

/// What came out of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The engine did right.
    Passed,
    /// It did not.
    Failed {
        /// What was wrong.
        why: String,
    },
    /// The subject lacks what the case needs.
    NotApplicable {
        /// What that is, and why.
        reason: String,
    },
}

fn seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64())
}

impl Report {
    pub(crate) fn new(subject: &str, seed: u64, took: Duration, at_least: usize, cases: Vec<CaseReport>) -> Self {
        Self { subject: subject.to_owned(), seed, took, at_least, cases }
    }

    /// Cases that passed or failed.
    #[must_use]
    pub fn run(&self) -> usize {
        self.cases.iter().filter(|case| !matches!(case.verdict, Verdict::NotApplicable { .. })).count()
    }

    /// Cases that failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| matches!(case.verdict, Verdict::Failed { .. })).count()
    }

    /// Cases that do not apply to the subject.
    #[must_use]
    pub fn not_applicable(&self) -> usize {
        self.cases.len() - self.run()
    }

    /// Whether no case failed and enough have run: nothing is proved by what did not run.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failed() == 0 && self.run() > 0 && self.run() >= self.at_least
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Never in practice: all that is in it can be written as JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Whole<'r> {
            passed: bool,
            run: usize,
            failed: usize,
            not_applicable: usize,
            #[serde(flatten)]
            report: &'r Report,
        }
        let (run, failed, not_applicable) = (self.run(), self.failed(), self.not_applicable());
        serde_json::to_string_pretty(&Whole { passed: self.passed(), run, failed, not_applicable, report: self })
    }

    /// The report for people; without `unicode`, in ASCII alone as far as it is our own text.
    pub(crate) const fn text(&self, unicode: bool) -> Text<'_> {
        Text { report: self, unicode }
    }

    /// The groups in their order, each with its cases.
    fn groups(&self) -> Vec<(Group, Vec<&CaseReport>)> {
        let mut groups: Vec<(Group, Vec<&CaseReport>)> = Vec::new();
        for case in &self.cases {
            match groups.iter_mut().find(|(group, _)| *group == case.group) {
                Some((_, cases)) => cases.push(case),
                None => groups.push((case.group, vec![case])),
            }
        }
        groups
    }

    fn table(&self, unicode: bool) -> Table {
        let mut table = Table::new();
        let style = if unicode { presets::UTF8_BORDERS_ONLY } else { presets::ASCII_BORDERS_ONLY_CONDENSED };
        table.load_style(style).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "group",
            "cases",
            "passed",
            "failed",
            "n/a",
            "calls",
            "differences",
            "admitted/due",
            "calls/s",
            "s",
        ]);
        let mut all = Line::default();
        for (group, cases) in self.groups() {
            let mut line = Line::default();
            for case in cases {
                line.add(case);
            }
            all.merge(&line);
            table.add_row(line.cells(group.name(), unicode));
        }
        table.add_row(all.cells("all", unicode));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// A line of the table.
#[derive(Default)]
struct Line {
    passed: usize,
    failed: usize,
    not_applicable: usize,
    figures: Figures,
    took: Duration,
}

impl Line {
    fn add(&mut self, case: &CaseReport) {
        match case.verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed { .. } => self.failed += 1,
            Verdict::NotApplicable { .. } => self.not_applicable += 1,
        }
        self.figures = self.figures.plus(case.figures);
        self.took += case.took;
    }

    fn merge(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.not_applicable += other.not_applicable;
        self.figures = self.figures.plus(other.figures);
        self.took += other.took;
    }

    fn cells(&self, name: &str, unicode: bool) -> [String; 10] {
        let Figures { calls, differences, .. } = self.figures;
        let per_second = u128::from(calls) * 1_000 / self.took.as_millis().max(1);
        [
            name.to_owned(),
            (self.passed + self.failed + self.not_applicable).to_string(),
            self.passed.to_string(),
            self.failed.to_string(),
            self.not_applicable.to_string(),
            calls.to_string(),
            differences.to_string(),
            reached(self.figures, unicode),
            per_second.to_string(),
            format!("{:.1}", self.took.as_secs_f64()),
        ]
    }
}

/// Admitted units against those that were due: `1` if they are the same.
fn reached(figures: Figures, unicode: bool) -> String {
    match (figures.admitted, figures.due) {
        (_, 0) => if unicode { "–" } else { "-" }.to_owned(),
        (admitted, due) if admitted == due => format!("1 ({due})"),
        (admitted, due) => {
            let millionths = u128::from(admitted) * 1_000_000 / u128::from(due);
            format!("{}.{:06} ({due})", millionths / 1_000_000, millionths % 1_000_000)
        }
    }
}

/// A report, and whether it may be written in more than ASCII.
pub(crate) struct Text<'r> {
    report: &'r Report,
    unicode: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, unicode } = *self;
        writeln!(f, "conformance of {}, seed {}", report.subject, report.seed)?;
        writeln!(f, "{}", report.table(unicode))?;
        for case in &report.cases {
            match &case.verdict {
                Verdict::Passed => {}
                Verdict::Failed { why } => writeln!(f, "FAILED {}::{}: {why}", case.group, case.name)?,
                Verdict::NotApplicable { reason } => {
                    writeln!(f, "not applicable: {}::{}: {reason}", case.group, case.name)?;
                }
            }
        }
        write!(f, "{} run, {} not applicable, {} failed", report.run(), report.not_applicable(), report.failed())?;
        if report.run() < report.at_least {
            write!(f, "; at least {} had to run", report.at_least)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text(true).fmt(f)
    }
}

/// Whether the locale says that more than ASCII can be shown.
pub(crate) fn is_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
