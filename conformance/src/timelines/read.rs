//! Reads timelines from their text.

use std::fmt;
use std::time::Duration;

use limiter_core::{Instant, Limit, Op};

use super::{Expected, Place, Run, Step, Timeline, Verdict};

/// A line that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineError {
    place: Place,
    message: String,
}

impl fmt::Display for TimelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {}", self.place.file, self.place.line, self.message)
    }
}

impl std::error::Error for TimelineError {}

/// What is wrong with a line.
type Read<T> = Result<T, String>;

/// A timeline's lines, before they are multiplied by its limits and bases.
#[derive(Debug)]
struct Draft<'a> {
    id: &'a str,
    title: &'a str,
    reported: &'a str,
    choices: Vec<&'a str>,
    bases: Vec<u64>,
    lines: Vec<(Place, Line<'a>)>,
    refused: Vec<(String, String)>,
}

#[derive(Debug)]
enum Line<'a> {
    Becomes(Vec<Limit>),
    /// A line of steps; it may be read only once it is known how many limits there are.
    Steps(&'a str),
}

pub(super) fn timelines(file: &'static str, text: &str) -> Result<Vec<Timeline>, TimelineError> {
    let mut drafts: Vec<Draft<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = Place { file, line: index + 1 };
        read_line(&mut drafts, place, line.trim()).map_err(|message| TimelineError { place, message })?;
    }
    drafts.iter().map(Draft::timeline).collect()
}

fn read_line<'a>(drafts: &mut Vec<Draft<'a>>, place: Place, line: &'a str) -> Read<()> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    if word == "==" {
        let (id, title) = rest.split_once(' ').ok_or("a timeline has an id and a title")?;
        let (choices, bases) = (Vec::new(), Vec::new());
        drafts.push(Draft { id, title, reported: "", choices, bases, lines: Vec::new(), refused: Vec::new() });
        return Ok(());
    }
    let draft = drafts.last_mut().ok_or("a timeline begins with ==")?;
    match word {
        "reported" => draft.reported = rest,
        "limit" | "layers" => {
            limits(rest)?;
            draft.choices.push(rest);
        }
        "base" => draft.bases = rest.split_whitespace().map(micros).collect::<Read<_>>()?,
        "becomes" => draft.lines.push((place, Line::Becomes(limits(rest)?))),
        "refused" => {
            let (text, error) = rest.split_once(" : ").ok_or("a refused limit has a line that says why")?;
            draft.refused.push((text.to_owned(), error.to_owned()));
        }
        _ => draft.lines.push((place, Line::Steps(line))),
    }
    Ok(())
}

impl Draft<'_> {
    fn timeline(&self) -> Result<Timeline, TimelineError> {
        let bases = if self.bases.is_empty() { &[0][..] } else { &self.bases };
        let choices = self.choices.iter().flat_map(|choice| bases.iter().map(move |base| (*choice, *base)));
        Ok(Timeline {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            reported: self.reported.to_owned(),
            runs: choices.map(|(choice, base)| self.run(choice, base)).collect::<Result<_, _>>()?,
            refused: self.refused.clone(),
        })
    }

    fn run(&self, choice: &str, base: u64) -> Result<Run, TimelineError> {
        let mut run = Run { name: format!("{choice} from {base} µs"), steps: Vec::new() };
        let mut current = limits(choice).unwrap_or_default();
        for (place, line) in &self.lines {
            match line {
                Line::Becomes(limits) => current.clone_from(limits),
                Line::Steps(line) => {
                    let steps = steps(*place, base, &current, line);
                    run.steps.extend(steps.map_err(|message| TimelineError { place: *place, message })?);
                }
            }
        }
        Ok(run)
    }
}

fn limits(text: &str) -> Read<Vec<Limit>> {
    text.split('|').map(|limit| limit.parse().map_err(|error| format!("{error}"))).collect()
}

/// The steps that a line stands for.
fn steps(place: Place, base: u64, limits: &[Limit], line: &str) -> Read<Vec<Step>> {
    let mut words = line.split_whitespace();
    let times: Series = words.next().ok_or("a step has a time")?.parse()?;
    let (mut count, mut cost, mut op, mut taken, mut verdicts) = (1, 1, Op::Take, 0, None);
    let mut keys = vec![String::from("key"); limits.len()];
    let (mut remaining, mut retry, mut reset, mut delay) = (None, None, None, None);
    for word in words {
        match word.split_once('=') {
            Some(("c", units)) => cost = whole(units)?,
            Some(("keys", given)) => keys = given.split('|').map(str::to_owned).collect(),
            Some(("taken", at)) => taken = micros(at)?,
            Some(("remaining", given)) => remaining = Some(many(given)?),
            Some(("retry", given)) => retry = Some(given.parse::<Series>()?),
            Some(("reset", given)) => reset = Some(many(given)?),
            Some(("delay", given)) => delay = Some(given.parse::<Series>()?),
            Some(_) => return Err(format!("unknown word {word}")),
            None if word.starts_with('x') => count = whole(word.trim_start_matches('x'))?,
            None => match word {
                "peek" => op = Op::Peek,
                "reset" => op = Op::Reset,
                "refund" => op = Op::Refund { taken: Instant::EPOCH },
                _ => verdicts = Some(self::verdicts(word)?),
            },
        }
    }
    if let Op::Refund { taken: at } = &mut op {
        *at = instant(base, taken)?;
    }
    let verdicts = verdicts.ok_or("a step has a verdict")?;
    let told = remaining.iter().chain(&reset).map(Vec::len);
    if told.chain([keys.len()]).any(|length| length != limits.len()) {
        return Err(format!("there are {} limits", limits.len()));
    }
    if verdicts.len() != 1 && u64::try_from(verdicts.len()) != Ok(count) {
        return Err(format!("{} verdicts for {count} steps", verdicts.len()));
    }
    let step = |(index, verdict): (u64, &Verdict)| {
        let waits = |series: &Series| series.micros(index);
        Ok(Step {
            place,
            at: instant(base, waits(&times)?)?,
            op,
            limits: limits.to_vec(),
            keys: keys.clone(),
            cost,
            expected: Expected {
                verdict: *verdict,
                remaining: remaining.as_deref().map(|each| all(each, |series| series.whole(index))).transpose()?,
                retry_after: retry.as_ref().map(waits).transpose()?.map(Duration::from_micros),
                reset_after: reset
                    .as_deref()
                    .map(|each| all(each, |series| waits(series).map(Duration::from_micros)))
                    .transpose()?,
                delay: delay.as_ref().map(waits).transpose()?.map(Duration::from_micros),
            },
        })
    };
    (0..count).zip(verdicts.iter().cycle()).map(step).collect()
}

fn many(text: &str) -> Read<Vec<Series>> {
    text.split('|').map(str::parse).collect()
}

fn all<T>(series: &[Series], value: impl Fn(&Series) -> Read<T>) -> Read<Vec<T>> {
    series.iter().map(value).collect()
}

fn verdicts(word: &str) -> Read<Vec<Verdict>> {
    match word {
        "allow" => Ok(vec![Verdict::Allow]),
        "deny" => Ok(vec![Verdict::Deny]),
        "error" => Ok(vec![Verdict::Error]),
        letters => letters
            .chars()
            .map(|letter| match letter {
                'A' => Ok(Verdict::Allow),
                'D' => Ok(Verdict::Deny),
                _ => Err(format!("unknown word {word}")),
            })
            .collect(),
    }
}

fn instant(base: u64, after: u64) -> Read<Instant> {
    Instant::from_micros(base + after).map_err(|error| error.to_string())
}

fn whole(text: &str) -> Read<u64> {
    text.parse().map_err(|_| format!("`{text}` is no whole number"))
}

/// Seconds with up to six decimals, in µs.
fn micros(text: &str) -> Read<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 6 {
        return Err(format!("`{text}` is finer than a microsecond"));
    }
    let micros = whole(&format!("{decimals:0<6}"))?;
    let seconds = whole(seconds)?;
    seconds.checked_mul(1_000_000).and_then(|whole| whole.checked_add(micros)).ok_or(format!("`{text}` is too long"))
}

/// A value for each step of a line, as text: a list that repeats, or a first one and a difference.
#[derive(Debug)]
enum Series {
    List(Vec<String>),
    Steps { first: String, up: bool, by: String },
}

impl std::str::FromStr for Series {
    type Err = String;

    fn from_str(text: &str) -> Read<Self> {
        let steps = |(first, by): (&str, &str), up| Self::Steps { first: first.to_owned(), up, by: by.to_owned() };
        let steps = text
            .split_once('+')
            .map(|parts| steps(parts, true))
            .or(text.split_once('-').map(|parts| steps(parts, false)));
        Ok(steps.unwrap_or_else(|| Self::List(text.split(',').map(str::to_owned).collect())))
    }
}

impl Series {
    fn whole(&self, index: u64) -> Read<u64> {
        self.at(index, whole)
    }

    fn micros(&self, index: u64) -> Read<u64> {
        self.at(index, micros)
    }

    fn at(&self, index: u64, read: impl Fn(&str) -> Read<u64>) -> Read<u64> {
        match self {
            Self::List(values) => {
                let place = usize::try_from(index).map_err(|error| error.to_string())? % values.len().max(1);
                read(values.get(place).map_or("", String::as_str))
            }
            Self::Steps { first, up, by } => {
                let (first, change) = (read(first)?, read(by)?.saturating_mul(index));
                let value = if *up { first.checked_add(change) } else { first.checked_sub(change) };
                value.ok_or_else(|| format!("step {index} is below zero"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        timelines("test.txt", text).unwrap_err().to_string()
    }

    #[test]
    fn a_line_stands_for_as_many_steps_as_it_says() {
        let text = "== X1 a title\nlimit 3/1s fixed-window\nlimit 3/1s sliding-log\nbase 1 2\n0.5+0.1 x3 AAD remaining=2,1,0\n";
        let [timeline] = &timelines("test.txt", text).unwrap()[..] else { unreachable!("one timeline") };
        let places: Vec<(u64, Verdict, u64)> = timeline.runs[3]
            .steps
            .iter()
            .map(|step| (step.at.micros(), step.expected.verdict, step.expected.remaining.as_deref().unwrap()[0]))
            .collect();
        let expected = [(2_500_000, Verdict::Allow, 2), (2_600_000, Verdict::Allow, 1), (2_700_000, Verdict::Deny, 0)];
        assert_eq!((timeline.runs.len(), &places[..]), (4, &expected[..]));
    }

    #[test]
    fn what_is_no_timeline_is_named_by_its_line() {
        let head = "== X1 a title\nlimit 3/1s fixed-window\n";
        let table = [
            ("0 allow", "test.txt line 3: a timeline begins with =="),
            ("== X1", "test.txt line 3: a timeline has an id and a title"),
        ];
        for (line, expected) in table {
            assert_eq!(error(&format!("\n\n{line}")), expected);
        }
        let table = [
            ("0", "a step has a verdict"),
            ("0 perhaps", "unknown word perhaps"),
            ("0 d=1 allow", "unknown word d=1"),
            ("0 x3 AD", "2 verdicts for 3 steps"),
            ("0 allow remaining=1|1", "there are 1 limits"),
            ("0 keys=a|b allow", "there are 1 limits"),
            ("0.1234567 allow", "`0.1234567` is finer than a microsecond"),
            ("0 x3 allow remaining=1-1", "step 2 is below zero"),
            ("9007199254.740992 allow", "instant 9007199254740992 µs is over its bound of 9007199254740991 µs"),
            ("limit 0/1s fixed-window", "amount 0 is under its bound of 1"),
        ];
        for (line, expected) in table {
            assert_eq!(error(&format!("{head}{line}")), format!("test.txt line 3: {expected}"));
        }
    }
}
