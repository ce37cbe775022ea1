//! Rows in a random order, with random parameters, for as long as one likes. The same seed gives the same plan.
//!
//! ```
//! use limiter_conformance::fault::{Site, chaos::Plan};
//!
//! let plan = Plan::new(&Site::memory(), 7, 2);
//! assert_eq!(plan.to_string(), Plan::new(&Site::memory(), 7, 2).to_string());
//! println!("{plan}");
//! for step in &plan.steps {
//!     assert!(step.row.lack(&Site::memory()).is_none(), "what can't be had is not planned");
//! }
//! ```

use std::fmt;

use crate::fault::{Row, RowReport, Scale, Site, Terms, rows, run_row};
use crate::random::Random;

/// What is run, in which order, and from which seeds.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// For about how many minutes.
    pub minutes: u64,
    /// The rows.
    pub steps: Vec<Step>,
    /// Those that do not apply to the site, with the reason.
    pub left_out: Vec<(Row, String)>,
}

/// One row of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The row.
    pub row: Row,
    /// What its parameters are drawn from, and how long it takes.
    pub terms: Terms,
}

impl Plan {
    /// A plan of all that applies to the site: first each row once, in a random order, then any of them until the time is over.
    pub fn new(site: &Site, seed: u64, minutes: u64) -> Self {
        Self::of_rows(site, seed, minutes, |_| true)
    }

    /// The same of some of the rows, again and again until the time is over.
    pub fn of_rows(site: &Site, seed: u64, minutes: u64, wanted: impl Fn(&Row) -> bool) -> Self {
        let mut random = Random::new(seed);
        let (mut open, mut left_out) = (Vec::new(), Vec::new());
        for row in rows().into_iter().filter(&wanted) {
            match row.lack(site) {
                Some(reason) => left_out.push((row, reason)),
                None => open.push(row),
            }
        }
        let all = open.clone();
        let (mut steps, mut left) = (Vec::new(), minutes.saturating_mul(60));
        while let Some(row) = draw(&mut random, &mut open, &all) {
            let scale = match random.below(8) {
                // Only where there is time for it, and more than for that one.
                0 if row.takes(Scale::Long).saturating_mul(4) < left => Scale::Long,
                _ => Scale::Short,
            };
            let takes = row.takes(scale);
            if takes > left {
                break;
            }
            left -= takes;
            steps.push(Step { row, terms: Terms::new(random.next(), scale) });
        }
        Self { seed, minutes, steps, left_out }
    }

    /// Runs it, and tells of each row as it ends.
    #[must_use]
    pub fn run(&self, site: &Site, mut progress: impl FnMut(&RowReport)) -> Vec<RowReport> {
        let run = |step: &Step| {
            let report = run_row(site, &step.row, step.terms);
            progress(&report);
            report
        };
        self.steps.iter().map(run).collect()
    }
}

/// One of those that were not drawn yet, else any.
fn draw(random: &mut Random, open: &mut Vec<Row>, all: &[Row]) -> Option<Row> {
    if open.is_empty() {
        return random.pick(all).copied();
    }
    let index = random.below(u64::try_from(open.len()).ok()?);
    Some(open.swap_remove(usize::try_from(index).ok()?))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chaos from seed {}, about {} min, {} rows", self.seed, self.minutes, self.steps.len())?;
        for Step { row, terms } in &self.steps {
            let scale = if terms.scale == Scale::Long { "long " } else { "short" };
            writeln!(f, "  {} {scale} seed {:<20} {}", row.id(), terms.seed, row.about())?;
        }
        for (row, reason) in &self.left_out {
            writeln!(f, "  {} not applicable: {reason}", row.id())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Kind;
    use crate::subject::BoxError;

    async fn nobody(_url: String) -> Result<limiter_core::Memory, BoxError> {
        Err("nobody is there".into())
    }

    #[test]
    fn a_seed_is_a_plan_and_another_seed_another_plan() {
        let site = Site::of(Kind::Redis, "redis", nobody);
        let plan = |seed| Plan::new(&site, seed, 10).to_string();
        assert_eq!(plan(42), plan(42));
        assert_ne!(plan(42), plan(43));
    }

    #[test]
    fn a_plan_has_every_row_that_applies_and_ends_in_time() {
        let site = Site::of(Kind::Redis, "redis", nobody);
        for seed in 0..50 {
            let plan = Plan::new(&site, seed, 5);
            let applicable = rows().into_iter().filter(|row| row.lack(&site).is_none());
            for row in applicable {
                let planned = plan.steps.iter().any(|step| step.row.id() == row.id());
                assert!(planned, "seed {seed} leaves out {}", row.id());
            }
            let takes: u64 = plan.steps.iter().map(|step| step.row.takes(step.terms.scale)).sum();
            assert!((240..=300).contains(&takes), "seed {seed}: {takes} s for 5 min");
            assert_eq!(plan.left_out.len() + applicable_count(&site), rows().len());
        }
    }

    fn applicable_count(site: &Site) -> usize {
        rows().iter().filter(|row| row.lack(site).is_none()).count()
    }
}
