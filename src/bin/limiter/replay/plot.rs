//! `--plot`: admitted and denied over time, as an SVG.
//!
//! Drawn by hand, in whole tenths of a pixel: no plotting crate, and no floating point either.

use std::io::{self, Write};

use super::bins::{Bins, Counts};
use super::report::{date, duration};
use crate::svg::{Px, Xml};
use crate::terminal::{grouped, printable};

/// The picture and its margins, in tenths of a pixel.
const WIDTH: u64 = 9600;
const HEIGHT: u64 = 4800;
const LEFT: u64 = 740;
const RIGHT: u64 = 280;
const TOP: u64 = 1000;
const BOTTOM: u64 = 760;
/// The room for the bars.
const ACROSS: u64 = WIDTH - LEFT - RIGHT;
const UP: u64 = HEIGHT - TOP - BOTTOM;
const FLOOR: u64 = HEIGHT - BOTTOM;

/// Blue and vermilion of Okabe and Ito: apart for every kind of colour vision, and the one darker than the other in grey.
const ADMITTED: &str = "#56b4e9";
const DENIED: &str = "#d55e00";

/// Steps between the marks of the time axis, in µs.
const STEPS: [u64; 24] = {
    const S: u64 = 1_000_000;
    const M: u64 = 60 * S;
    const H: u64 = 60 * M;
    const D: u64 = 24 * H;
    [
        1_000,
        10_000,
        50_000,
        100_000,
        500_000,
        S,
        5 * S,
        10 * S,
        30 * S,
        M,
        5 * M,
        10 * M,
        30 * M,
        H,
        3 * H,
        6 * H,
        12 * H,
        D,
        2 * D,
        7 * D,
        30 * D,
        90 * D,
        365 * D,
        7300 * D,
    ]
};
const DAY: u64 = 86_400_000_000;
/// The longest title that has room, in characters.
const TITLE: usize = 84;
/// The most marks of the time axis, so that their labels have room.
const MARKS: u64 = 9;

/// Writes the picture.
pub(super) fn write(out: &mut impl Write, bins: &Bins, heading: &str) -> io::Result<()> {
    let (start, counts) = bins.all().unwrap_or_default();
    let mut all = Counts::default();
    for bin in &counts {
        all.admitted += bin.admitted;
        all.denied += bin.denied;
    }
    frame(out, heading, all)?;
    if counts.is_empty() {
        let (x, y) = (Px(LEFT + ACROSS / 2), Px(TOP + UP / 2));
        writeln!(out, r#"<text class="soft" x="{x}" y="{y}" text-anchor="middle">nothing was decided</text>"#)?;
    } else {
        let most = counts.iter().map(|counts| counts.all()).max().unwrap_or_default();
        let top = amounts(out, most, bins.width())?;
        let chart = Chart { start, width: bins.width(), bins: u64::try_from(counts.len()).unwrap_or(u64::MAX), top };
        chart.bars(out, &counts)?;
        chart.marks(out)?;
    }
    let (right, floor) = (Px(WIDTH - RIGHT), Px(FLOOR));
    writeln!(out, r#"<path class="axis" d="M{},{floor}H{right}"/>"#, Px(LEFT))?;
    writeln!(out, "</svg>")
}

/// All but the data: ground, heading and legend.
fn frame(out: &mut impl Write, heading: &str, all: Counts) -> io::Result<()> {
    let (width, height) = (Px(WIDTH), Px(HEIGHT));
    let title = printable(heading, TITLE);
    let (heading, title) = (Xml(heading), Xml(&title));
    let told =
        format!("{} checks: {} admitted, {} denied", grouped(all.all()), grouped(all.admitted), grouped(all.denied));
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{heading}. {told}.">
<style>
text {{ font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f }}
.title {{ font-size: 18px; font-weight: 600 }}
.soft {{ fill: #57606a }}
.small {{ font-size: 12px }}
.axis {{ stroke: #57606a; fill: none }}
.grid {{ stroke: #d8dee4; fill: none }}
rect {{ shape-rendering: crispEdges }}
.a {{ fill: {ADMITTED} }}
.d {{ fill: {DENIED} }}
</style>
<rect width="{width}" height="{height}" fill="#fff"/>
<text class="title" x="28" y="36">{title}</text>
<text class="soft" x="28" y="60">{told}</text>"##
    )?;
    for (class, x, name) in [("a", 778, "admitted"), ("d", 870, "denied")] {
        let text = x + 18;
        writeln!(
            out,
            r#"<rect class="{class}" x="{x}" y="49" width="12" height="12"/><text x="{text}" y="60">{name}</text>"#
        )?;
    }
    Ok(())
}

/// The lines and numbers of the upright axis; the number at the top of it is given back.
fn amounts(out: &mut impl Write, most: u64, width: u64) -> io::Result<u64> {
    let step = round_step(most, 5);
    let top = most.div_ceil(step) * step;
    let mut amount = 0;
    while amount <= top {
        let y = FLOOR - scale(amount, UP, top);
        let (left, right) = (Px(LEFT), Px(WIDTH - RIGHT));
        if amount > 0 {
            writeln!(out, r#"<path class="grid" d="M{left},{}H{right}"/>"#, Px(y))?;
        }
        let (x, y) = (Px(LEFT - 100), Px(y + 45));
        writeln!(out, r#"<text class="soft small" x="{x}" y="{y}" text-anchor="end">{}</text>"#, grouped(amount))?;
        amount += step;
    }
    let (x, y) = (Px(280), Px(TOP - 160));
    writeln!(out, r#"<text class="soft small" x="{x}" y="{y}">checks per {}</text>"#, duration(width))?;
    Ok(top)
}

/// What the axes stand for.
struct Chart {
    start: u64,
    width: u64,
    bins: u64,
    /// The amount at the top.
    top: u64,
}

impl Chart {
    /// Where an instant lies.
    fn x(&self, at: u64) -> u64 {
        LEFT + scale(at - self.start, ACROSS, self.bins * self.width)
    }

    /// A bar for each bin: denied on top of admitted.
    fn bars(&self, out: &mut impl Write, counts: &[Counts]) -> io::Result<()> {
        // Between wide bars there is a gap; on whole pixels, so that all gaps look alike.
        let (gap, pixel) = if ACROSS / self.bins > 60 { (10, 10) } else { (0, 1) };
        let x = |at: u64| self.x(at) / pixel * pixel;
        let mut at = self.start;
        for counts in counts {
            let (left, right) = (x(at), x(at + self.width));
            let (x, width) = (Px(left), Px(right.saturating_sub(left).saturating_sub(gap)));
            let middle = FLOOR - scale(counts.admitted, UP, self.top);
            let top = FLOOR - scale(counts.all(), UP, self.top);
            if counts.all() > 0 {
                let (admitted, denied) = (grouped(counts.admitted), grouped(counts.denied));
                write!(out, "<g><title>{} UTC: {admitted} admitted, {denied} denied</title>", label(at, "%F %T%.f"))?;
                for (class, y, bottom) in [("a", middle, FLOOR), ("d", top, middle)] {
                    if bottom > y {
                        let (y, height) = (Px(y), Px(bottom - y));
                        write!(out, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#)?;
                    }
                }
                writeln!(out, "</g>")?;
            }
            at += self.width;
        }
        Ok(())
    }

    /// The marks of the time axis, with the date where a new day begins.
    fn marks(&self, out: &mut impl Write) -> io::Result<()> {
        let length = self.bins * self.width;
        let step = STEPS.into_iter().find(|step| length / step <= MARKS).unwrap_or(length);
        let clock = match step {
            ..1_000_000 => "%T%.3f",
            1_000_000..60_000_000 => "%T",
            60_000_000..DAY => "%H:%M",
            _ => "",
        };
        let mut mark = self.start.next_multiple_of(step);
        let mut day = None;
        while mark <= self.start + length {
            let at = self.x(mark);
            let (x, floor, foot) = (Px(at), Px(FLOOR), Px(FLOOR + 60));
            // At the edge of the picture half of a label would be cut off.
            let anchor = if at + 500 > WIDTH { "end" } else { "middle" };
            writeln!(out, r#"<path class="axis" d="M{x},{floor}V{foot}"/>"#)?;
            let mut y = FLOOR + 220;
            if !clock.is_empty() {
                let text = label(mark, clock);
                writeln!(out, r#"<text class="small" x="{x}" y="{}" text-anchor="{anchor}">{text}</text>"#, Px(y))?;
                y += 170;
            }
            if day != Some(mark / DAY) {
                let text = label(mark, "%-d %b %Y");
                writeln!(
                    out,
                    r#"<text class="soft small" x="{x}" y="{}" text-anchor="{anchor}">{text}</text>"#,
                    Px(y)
                )?;
                day = Some(mark / DAY);
            }
            mark += step;
        }
        let (x, y) = (Px(WIDTH - RIGHT), Px(HEIGHT - 130));
        writeln!(out, r#"<text class="soft small" x="{x}" y="{y}" text-anchor="end">time in UTC</text>"#)
    }
}

fn label(at: u64, format: &str) -> String {
    date(at).map_or_else(String::new, |date| date.strftime(format).to_string())
}

/// `part` of `whole`, as a length out of `length`, rounded down.
fn scale(part: u64, length: u64, whole: u64) -> u64 {
    let scaled = u128::from(part) * u128::from(length) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(length).min(length)
}

/// The smallest of 1, 2, 5, 10, 20, 50, … of which at most `steps` reach `most`.
fn round_step(most: u64, steps: u64) -> u64 {
    let mut decade: u64 = 1;
    loop {
        for step in [1, 2, 5].map(|digit| decade.saturating_mul(digit)) {
            if most.div_ceil(step) <= steps {
                return step;
            }
        }
        decade = decade.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use limiter::Instant;

    use super::{Bins, round_step, write};

    fn drawn(instants: &[u64], heading: &str) -> String {
        let mut bins = Bins::default();
        for (index, micros) in instants.iter().enumerate() {
            bins.add(Instant::from_micros(*micros).unwrap(), index % 3 > 0);
        }
        let mut svg = Vec::new();
        write(&mut svg, &bins, heading).unwrap();
        String::from_utf8(svg).unwrap()
    }

    #[test]
    fn any_trace_can_be_drawn() {
        let last = Instant::MAX.micros();
        let traces: [&[u64]; 6] =
            [&[], &[0], &[last], &[0, last], &[5, 5, 5, 5], &[1_432_155_900_000_000, 1_432_255_900_000_000]];
        for trace in traces {
            let svg = drawn(trace, "a");
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{trace:?}");
            assert!(svg.len() < 60_000);
        }
    }

    #[test]
    fn a_heading_is_text_and_never_markup() {
        let svg = drawn(&[0], "<script>&\"\u{1}");
        assert!(
            svg.contains("&lt;script&gt;&amp;&quot;\\u{1}</text>")
                && svg.contains("&quot;\u{fffd}. ")
                && !svg.contains("<script>")
        );
    }

    #[test]
    fn an_axis_has_few_round_steps() {
        let steps = [1, 5, 6, 10, 11, 23, 26, 99, 1_000_001].map(|most| round_step(most, 5));
        assert_eq!(steps, [1, 1, 2, 2, 5, 5, 10, 20, 500_000]);
        assert!(round_step(u64::MAX, 5) > 0);
    }
}
