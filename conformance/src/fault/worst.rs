//! A long run, put together: of each row the worst of what its runs measured.

use std::fmt;

use crate::fault::figure::{Bound, Figure};
use crate::fault::row::write_figures;
use crate::fault::{RowReport, Verdict};

/// All runs of one row.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Worst {
    /// The row.
    pub row: &'static str,
    /// How often it was run.
    pub runs: u64,
    /// How many of those were [broken](Verdict::Broken).
    pub broken: u64,
    /// The calls of all of them.
    pub calls: u64,
    /// Each figure that has a bound, from the run in which it came nearest to it, or went farthest beyond.
    pub figures: Vec<Figure>,
}

impl Worst {
    /// Each row that was run, in the order of the rows' numbers.
    #[must_use]
    pub fn of(reports: &[RowReport]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for report in reports.iter().filter(|report| !matches!(report.verdict, Verdict::NotApplicable { .. })) {
            let place = all.iter().position(|worst| worst.row == report.row).unwrap_or(all.len());
            if place == all.len() {
                all.push(Self { row: report.row, runs: 0, broken: 0, calls: 0, figures: Vec::new() });
            }
            if let Some(worst) = all.get_mut(place) {
                worst.add(report);
            }
        }
        all.sort_unstable_by_key(|worst| worst.row);
        all
    }

    fn add(&mut self, report: &RowReport) {
        self.runs += 1;
        self.broken += u64::from(matches!(report.verdict, Verdict::Broken { .. }));
        for figure in &report.figures {
            if figure.bound.is_none() {
                self.calls += if figure.name == "calls" { figure.value } else { 0 };
                continue;
            }
            let same = |known: &&mut Figure| (&known.part, &known.name) == (&figure.part, &figure.name);
            match self.figures.iter_mut().find(same) {
                None => self.figures.push(figure.clone()),
                Some(known) if is_worse(figure, known) => *known = figure.clone(),
                Some(_) => {}
            }
        }
    }
}

/// Whether one figure is nearer to its bound than another of its kind, or farther beyond it.
fn is_worse(one: &Figure, other: &Figure) -> bool {
    if one.holds() != other.holds() {
        return other.holds();
    }
    let share = |value: u64, bound: u64| u128::from(value) * u128::from(bound.max(1));
    match (one.bound, other.bound) {
        (Some(Bound::AtMost(bound)), Some(Bound::AtMost(known))) => share(one.value, known) > share(other.value, bound),
        (Some(Bound::AtLeast(bound)), Some(Bound::AtLeast(known))) => {
            share(one.value, known) < share(other.value, bound)
        }
        _ => false,
    }
}

/// `F06 ×7: 63,412 calls; recovered 0.1/2.0 s; 8 figures 0/0`.
impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing =
            |figure: &&Figure| figure.value == 0 && matches!(figure.bound, Some(Bound::AtMost(0) | Bound::Exactly(0)));
        let (none, some): (Vec<&Figure>, Vec<&Figure>) = self.figures.iter().partition(nothing);
        write!(f, "{} ×{}: {}", self.row, self.runs, Figure::count("calls", self.calls))?;
        if !some.is_empty() {
            f.write_str("; ")?;
            write_figures(f, some)?;
        }
        if !none.is_empty() {
            write!(f, "; {} figure{} 0/0", none.len(), if none.len() == 1 { "" } else { "s" })?;
        }
        if self.broken > 0 {
            write!(f, "; BROKEN in {}", self.broken)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(row: &'static str, figures: Vec<Figure>) -> RowReport {
        let broken = figures.iter().any(|figure| !figure.holds());
        let verdict = if broken { Verdict::Broken { why: "beyond".to_owned() } } else { Verdict::Held };
        RowReport { row, about: "", site: "here".to_owned(), verdict, figures, took: Duration::from_secs(1) }
    }

    #[test]
    fn of_each_row_the_worst_is_shown_and_the_calls_are_added() {
        let run = |calls, extra, bound, reached| {
            let figures = vec![
                Figure::count("calls", calls),
                Figure::count("consumed twice", 0).at_most(0),
                Figure::count("extra", extra).at_most(bound),
                Figure::count("reached", reached).at_least(90),
            ];
            report("F12", figures)
        };
        let other = report("F02", vec![Figure::count("admitted", 500).exactly(500).of_part("all")]);
        // 9 of 10 is nearer than 50 of 100.
        let all = Worst::of(&[run(1_000, 50, 100, 99), run(2_000, 9, 10, 95), other, run(4_000, 0, 10, 97)]);
        let text: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "F02 ×1: 0 calls; all: admitted 500/500",
                "F12 ×3: 7,000 calls; extra 9/10, reached 95 (at least 90); 1 figure 0/0",
            ]
        );
    }

    #[test]
    fn what_is_beyond_its_bound_is_worse_than_all_that_is_within() {
        let run = |twice, admitted| {
            let figures =
                vec![Figure::count("consumed twice", twice).at_most(0), Figure::count("admitted", admitted).exactly(5)];
            report("F06", figures)
        };
        let all = Worst::of(&[run(1, 5), run(3, 5), run(0, 4), run(0, 5)]);
        assert_eq!(all[0].to_string(), "F06 ×4: 0 calls; consumed twice 3/0, admitted 4/5; BROKEN in 3");
    }
}
