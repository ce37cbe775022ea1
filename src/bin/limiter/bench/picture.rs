//! `--plot`: how long checks wait, a line for each row, over the part of them that waits no longer.
//!
//! Both axes are logarithmic: a store is as good as its slowest checks, and these are few and far out.

use std::io::{self, Write};

use super::Row;
use crate::svg::{Px, Xml};
use crate::terminal::grouped;

/// The parts of the checks whose longest wait is drawn, evenly spaced.
pub(super) const PARTS: [(&str, f64); 9] = [
    ("50 %", 0.5),
    ("75 %", 0.75),
    ("90 %", 0.9),
    ("95 %", 0.95),
    ("99 %", 0.99),
    ("99.5 %", 0.995),
    ("99.9 %", 0.999),
    ("99.99 %", 0.9999),
    ("all", 1.0),
];

/// The picture and its margins, in tenths of a pixel.
const WIDTH: u64 = 9600;
const LEFT: u64 = 900;
const RIGHT: u64 = 600;
const TOP: u64 = 800;
const UP: u64 = 3600;
const FLOOR: u64 = TOP + UP;
/// Between two parts.
const STEP: u64 = (WIDTH - LEFT - RIGHT) / 8;
/// The height of a line of the legend.
const LINE: u64 = 220;

/// Colours of Okabe and Ito, apart for every kind of colour vision; rows after these begin again.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Writes the picture.
pub(super) fn write(out: &mut impl Write, store: &str, rows: &[Row]) -> io::Result<()> {
    let lines = u64::try_from(rows.len()).unwrap_or(0);
    let (width, height) = (Px(WIDTH), Px(FLOOR + 700 + LINE * lines));
    let title = Xml(store);
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="How long checks wait on {title}">
<style>
text {{ font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f }}
.title {{ font-size: 18px; font-weight: 600 }}
.soft {{ fill: #57606a; font-size: 12px }}
.grid {{ stroke: #d8dee4; fill: none }}
polyline {{ fill: none; stroke-width: 2 }}
</style>
<rect width="{width}" height="{height}" fill="#fff"/>
<text class="title" x="28" y="36">How long checks wait on {title}</text>
<text class="soft" x="28" y="60">longest wait of the fastest part of the checks; both axes are logarithmic</text>"##
    )?;
    let waits = || rows.iter().flat_map(|row| row.waits);
    let scale = Scale::over(waits().min().unwrap_or(1), waits().max().unwrap_or(1));
    scale.marks(out)?;
    for (place, (name, _)) in (0_u64..).zip(PARTS) {
        let (x, y) = (Px(LEFT + place * STEP), Px(FLOOR + 240));
        writeln!(out, r#"<text class="soft" x="{x}" y="{y}" text-anchor="middle">{name}</text>"#)?;
    }
    for ((place, row), colour) in (0_u64..).zip(rows).zip(COLOURS.into_iter().cycle()) {
        write!(out, r#"<polyline stroke="{colour}" points=""#)?;
        for (part, wait) in (0_u64..).zip(row.waits) {
            write!(out, "{},{} ", Px(LEFT + part * STEP), Px(scale.y(wait)))?;
        }
        writeln!(out, r#""/>"#)?;
        let (y, x) = (FLOOR + 600 + LINE * place, Px(LEFT));
        writeln!(out, r#"<rect x="{x}" y="{}" width="12" height="12" fill="{colour}"/>"#, Px(y - 100))?;
        let load = Xml(&row.load());
        let told = format!("{} keys, {} layers: {} checks/s", grouped(row.keys), row.layers, grouped(row.per_second));
        writeln!(out, r#"<text x="{}" y="{}">{load}, {told}</text>"#, Px(LEFT + 200), Px(y))?;
    }
    writeln!(out, "</svg>")
}

/// A logarithmic axis over whole decades of ns.
struct Scale {
    least: u64,
    decades: u64,
}

impl Scale {
    fn over(least: u64, most: u64) -> Self {
        let least = 10_u64.pow(least.max(1).ilog10());
        let mut decades = 1;
        while least.saturating_mul(10_u64.saturating_pow(decades)) < most && decades < 19 {
            decades += 1;
        }
        Self { least, decades: decades.into() }
    }

    /// Where a wait lies: its decade, and in it the logarithm by its thousandths.
    fn y(&self, wait: u64) -> u64 {
        let wait = wait.max(self.least);
        let decade = (wait / self.least).ilog10();
        let unit = self.least.saturating_mul(10_u64.saturating_pow(decade));
        // 1000 × log10 of a number in 1 … 10, which is given in hundredths: the greatest n with 10^(n/1000) at most that.
        let hundredths = u128::from(wait) * 100 / u128::from(unit.max(1));
        let within = log10_thousandths(u64::try_from(hundredths).unwrap_or(1000));
        let thousandths = u64::from(decade) * 1000 + within;
        FLOOR - (thousandths * UP / (self.decades * 1000)).min(UP)
    }

    /// A line for each decade, with its wait.
    fn marks(&self, out: &mut impl Write) -> io::Result<()> {
        let mut wait = self.least;
        for _ in 0..=self.decades {
            let (left, right, y) = (Px(LEFT), Px(WIDTH - RIGHT), self.y(wait));
            writeln!(out, r#"<path class="grid" d="M{left},{}H{right}"/>"#, Px(y))?;
            let text = match wait {
                ..1_000 => format!("{wait} ns"),
                1_000..1_000_000 => format!("{} µs", wait / 1_000),
                1_000_000..1_000_000_000 => format!("{} ms", wait / 1_000_000),
                _ => format!("{} s", grouped(wait / 1_000_000_000)),
            };
            let (x, y) = (Px(LEFT - 100), Px(y + 45));
            writeln!(out, r#"<text class="soft" x="{x}" y="{y}" text-anchor="end">{text}</text>"#)?;
            wait = wait.saturating_mul(10);
        }
        Ok(())
    }
}

/// 1000 × log10 of 1 … 10 in hundredths, between the tabled values in a straight line.
fn log10_thousandths(hundredths: u64) -> u64 {
    const TABLE: [u64; 10] = [0, 301, 477, 602, 699, 778, 845, 903, 954, 1000];
    let hundredths = hundredths.clamp(100, 1000);
    let whole = usize::try_from(hundredths / 100 - 1).unwrap_or(0);
    let low = TABLE.get(whole).copied().unwrap_or(1000);
    let high = TABLE.get(whole + 1).copied().unwrap_or(1000);
    low + (high - low) * (hundredths % 100) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decade_is_as_high_as_any_other() {
        let scale = Scale::over(1_500, 2_000_000);
        assert_eq!((scale.least, scale.decades), (1_000, 4));
        let heights = [1_000, 10_000, 100_000, 1_000_000, 10_000_000].map(|wait| scale.y(wait));
        assert_eq!(heights, [FLOOR, FLOOR - 900, FLOOR - 1800, FLOOR - 2700, TOP]);
        // The root of ten is half-way, to a hundredth of a decade.
        assert!(scale.y(31_623).abs_diff(FLOOR - 900 - 450) < 15, "{}", scale.y(31_623));
    }

    #[test]
    fn any_waits_can_be_drawn() {
        for (least, most) in [(0, 0), (1, u64::MAX), (u64::MAX, u64::MAX), (7, 8)] {
            let scale = Scale::over(least, most);
            for wait in [least, most] {
                assert!((TOP..=FLOOR).contains(&scale.y(wait)), "{wait} in {least}–{most}");
            }
        }
    }
}
