//! What the benches share: rounds of variants side by side, and their ratios.
//!
//! A machine is never quiet for long, so the variants of a round run one right after the other, and a ratio is taken within a round; what
//! is told is the median of the rounds, with the least and the most.

#![allow(
    clippy::float_arithmetic,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "ratios of measured times are told, and nothing is decided by them"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_conformance::load::Load;

/// What one variant came to in one round.
#[derive(Clone, Debug)]
pub struct Run {
    /// The clients' side.
    pub load: Load,
    /// CPU time of the server for each check, where it can be told.
    pub server: Option<Duration>,
}

impl From<Load> for Run {
    fn from(load: Load) -> Self {
        Self { load, server: None }
    }
}

/// The rounds of all variants of one load.
#[derive(Debug, Default)]
pub struct Rounds {
    order: Vec<String>,
    runs: BTreeMap<String, Vec<Run>>,
}

impl Rounds {
    /// Adds a run of `variant`. Checks that failed are told beside its figures, which are of those that did not.
    ///
    /// # Panics
    /// If all failed: then there is nothing to compare.
    pub fn add(&mut self, variant: &str, run: impl Into<Run>) {
        let run = run.into();
        assert!(run.load.answered() > 0, "{variant}: all of {} checks failed", run.load.failed);
        if !self.order.iter().any(|known| known == variant) {
            self.order.push(variant.to_owned());
        }
        self.runs.entry(variant.to_owned()).or_default().push(run);
    }

    fn of(&self, variant: &str) -> &[Run] {
        self.runs.get(variant).map_or(&[], Vec::as_slice)
    }

    /// Prints a line for each variant.
    pub fn print(&self, title: &str) {
        println!("\n{title}");
        println!("{:<34}{:>26}{:>12}{:>12}{:>14}", "", "checks/s (spread)", "p50 µs", "p99 µs", "server µs");
        for variant in &self.order {
            let runs = self.of(variant);
            let rate = Spread::of(runs.iter().map(|run| run.load.per_second() as f64));
            let wait = |part: f64| Spread::of(runs.iter().map(|run| micros(run.load.quantile(part)))).median;
            let server = Spread::of(runs.iter().map(server)).median;
            let failed: u64 = runs.iter().map(|run| run.load.failed).sum();
            println!(
                "{variant:<34}{:>26}{:>12.1}{:>12.1}{:>14}{}",
                format!("{:.0} ({:.0}–{:.0})", rate.median, rate.least, rate.most),
                wait(0.5),
                wait(0.99),
                if server.is_nan() { String::new() } else { format!("{server:.2}") },
                if failed == 0 { String::new() } else { format!("  {failed} failed") },
            );
        }
    }

    /// How `figure` of `a` compares to that of `b`, round by round.
    #[must_use]
    pub fn ratio(&self, a: &str, b: &str, figure: fn(&Run) -> f64) -> Spread {
        Spread::of(self.of(a).iter().zip(self.of(b)).map(|(a, b)| figure(a) / figure(b)))
    }
}

/// Checks a second.
#[must_use]
pub fn rate(run: &Run) -> f64 {
    run.load.per_second() as f64
}

/// The median wait, in µs.
#[must_use]
pub fn median_wait(run: &Run) -> f64 {
    micros(run.load.quantile(0.5))
}

/// The server's CPU time for each check, in µs.
#[must_use]
pub fn server(run: &Run) -> f64 {
    run.server.map_or(f64::NAN, micros)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A figure over the rounds.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// In the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of the figures of all rounds; not a number if there is none.
    pub fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let at = |place: usize| figures.get(place).copied().unwrap_or(f64::NAN);
        Self { median: at(figures.len() / 2), least: at(0), most: at(figures.len().saturating_sub(1)) }
    }
}

/// What was aimed at, and whether it was reached.
#[derive(Debug, Default)]
pub struct Bars(Vec<(String, String, bool)>);

impl Bars {
    /// `ratio` has to be `bar` at least.
    pub fn at_least(&mut self, what: impl Into<String>, ratio: Spread, bar: f64) {
        self.add(what.into(), ratio, ratio.median >= bar, &format!("≥ {bar}"));
    }

    /// `ratio` has to be `bar` at most.
    pub fn at_most(&mut self, what: impl Into<String>, ratio: Spread, bar: f64) {
        self.add(what.into(), ratio, ratio.median <= bar, &format!("≤ {bar}"));
    }

    fn add(&mut self, what: String, ratio: Spread, holds: bool, bar: &str) {
        let figure = format!("{:>6.2}× ({:.2}–{:.2}), {bar}", ratio.median, ratio.least, ratio.most);
        self.0.push((what, figure, holds));
    }

    /// Prints a line for each bar.
    pub fn print(&self) {
        println!("\nbars: median of the rounds' ratios (least–most), and what was aimed at");
        for (what, figure, holds) in &self.0 {
            println!("{}  {what:<66}{figure}", if *holds { "held  " } else { "MISSED" });
        }
    }
}
