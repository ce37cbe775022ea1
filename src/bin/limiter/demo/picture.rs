//! The picture in the terminal, the table below it, and what they mean.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use super::run::{Outcome, Plan};
use crate::terminal::{self, grouped, times};

/// The length of the longest bar, in characters.
const LENGTH: u64 = 50;

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) unicode: bool,
    pub(super) coloured: bool,
}

impl Style {
    /// The fill of a bar, which changes from node to node.
    fn fill(self, node: usize) -> char {
        match (self.unicode, node % 2) {
            (true, 0) => '█',
            (true, _) => '▒',
            (false, 0) => '#',
            (false, _) => '=',
        }
    }

    fn mark(self) -> char {
        if self.unicode { '│' } else { '|' }
    }

    /// Cyan is within the limit, red over it. The mark says the same without a colour.
    fn paint(self, text: &str, over: bool) -> String {
        if !self.coloured || text.is_empty() {
            return text.to_owned();
        }
        format!("\u{1b}[{}m{text}\u{1b}[0m", if over { 31 } else { 36 })
    }
}

pub(super) fn write(
    out: &mut impl Write,
    plan: &Plan,
    own: &Outcome,
    shared: &Outcome,
    style: Style,
) -> io::Result<()> {
    let limit = plan.limit;
    writeln!(
        out,
        "{} nodes behind a round-robin balancer, {} requests of one client, limit {limit}\n",
        plan.nodes,
        grouped(plan.asked())
    )?;
    let longest = [own, shared].into_iter().flat_map(|run| &run.by_period).map(|nodes| nodes.iter().sum()).max();
    let scale = Scale { most: longest.unwrap_or(0).max(limit.amount()), limit: limit.amount(), style };
    scale.bars(out, "Each node with its own counters", plan, own)?;
    scale.bars(out, "All nodes with one store", plan, shared)?;
    writeln!(out, "{}\n", table(plan, own, shared, style.unicode))?;
    let plural = if plan.periods == 1 { "" } else { "s" };
    let periods = format!("{} {}{plural}", plan.periods, unit(plan));
    let granted = format!("the {} that the limit grants in {periods}", grouped(plan.granted()));
    writeln!(
        out,
        "Each node that counts for itself knows only its own part of the traffic, so together they let {} requests\n\
         through: {} {granted}.\n\
         With one store every node charges the same counter, so together they let {} through: {}.",
        grouped(own.allowed),
        times(own.allowed, plan.granted(), style.unicode),
        grouped(shared.allowed),
        times(shared.allowed, plan.granted(), style.unicode),
    )
}

/// What the limit's period is called.
fn unit(plan: &Plan) -> &'static str {
    if plan.limit.period() == Duration::from_mins(1) { "minute" } else { "period" }
}

struct Scale {
    /// What the longest bar stands for.
    most: u64,
    limit: u64,
    style: Style,
}

impl Scale {
    /// How long a bar is, in characters.
    fn length(&self, count: u64) -> u64 {
        let length = u128::from(count) * u128::from(LENGTH) / u128::from(self.most.max(1));
        u64::try_from(length).unwrap_or(LENGTH)
    }

    /// A bar for each period, made up of what each node let through.
    fn bars(&self, out: &mut impl Write, title: &str, plan: &Plan, run: &Outcome) -> io::Result<()> {
        let unit = unit(plan);
        let indent = " ".repeat(usize::try_from(self.length(self.limit)).unwrap_or_default());
        writeln!(out, "{title}")?;
        writeln!(out, "           {indent}{} the limit, {} a {unit}", self.style.mark(), grouped(self.limit))?;
        for (number, nodes) in (1..).zip(&run.by_period) {
            let allowed: u64 = nodes.iter().sum();
            let (bar, blank) = self.bar(nodes);
            let (count, times) = (grouped(allowed), times(allowed, self.limit, self.style.unicode));
            writeln!(out, " {unit} {number:>2} {bar}{blank} {count:>9} {times:>6}", blank = " ".repeat(blank))?;
        }
        writeln!(out)
    }

    /// The bar, and how many characters it is short of the longest.
    fn bar(&self, nodes: &[u64]) -> (String, usize) {
        let (limit, mut sum, mut at) = (self.length(self.limit), 0, 0);
        let (mut within, mut over) = (String::new(), String::new());
        for (index, allowed) in nodes.iter().enumerate() {
            sum += allowed;
            while at < self.length(sum) {
                let part = if at < limit { &mut within } else { &mut over };
                part.push(self.style.fill(index));
                at += 1;
            }
        }
        let short = " ".repeat(usize::try_from(limit.saturating_sub(at)).unwrap_or_default());
        let mut bar = String::new();
        let (within, over) = (self.style.paint(&within, false), self.style.paint(&over, true));
        let _infallible = write!(bar, "{within}{short}{}{over}", self.style.mark());
        (bar, usize::try_from(LENGTH - at.max(limit)).unwrap_or_default())
    }
}

fn table(plan: &Plan, own: &Outcome, shared: &Outcome, unicode: bool) -> comfy_table::Table {
    let header = ["node", "asked", "let through, own counters", "let through, one store"];
    let mut table = terminal::table(&header, &[0, 1, 2, 3], unicode);
    for node in 0..plan.nodes {
        let counts = [plan.asked_of(node), own.of_node(node), shared.of_node(node)];
        let [asked, own, shared] = counts.map(grouped);
        table.add_row([(node + 1).to_string(), asked, own, shared]);
    }
    let with_times = |allowed: u64| format!("{} = {}", grouped(allowed), times(allowed, plan.granted(), unicode));
    table.add_row(["all".to_owned(), grouped(plan.asked()), with_times(own.allowed), with_times(shared.allowed)]);
    table
}
