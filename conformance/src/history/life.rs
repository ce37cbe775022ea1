//! A key's lives: the stretches between which its store fell back to an older version.

use limiter_core::{Instant, Layer, Op};

use super::{Asked, Call};

/// One check of a decided call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'h> {
    pub(super) call: &'h Call,
    pub(super) asked: Asked,
    pub(super) layer: Layer,
    pub(super) at: Instant,
    pub(super) allowed: bool,
}

impl Event<'_> {
    /// Whether it made a version of its own.
    pub(super) fn writes(&self) -> bool {
        self.allowed && self.asked.cost > 0 && matches!(self.call.op, Op::Take | Op::Refund { .. })
    }

    /// By key, then by version; the write that made a version comes before those that saw it, a reset after them.
    pub(super) fn order(&self) -> (usize, u64, u8, u64) {
        let rank = match self.call.op {
            _ if self.writes() => 0,
            Op::Reset => 2,
            _ => 1,
        };
        (self.asked.key, self.layer.version, rank, self.call.invoked)
    }
}

/// A stretch of a key's calls in which versions only grow.
#[derive(Debug)]
pub(super) struct Life<'h> {
    /// In the order of their versions.
    pub(super) events: Vec<Event<'h>>,
    /// The version to which the store fell back before this life; None for the first.
    pub(super) fell_to: Option<u64>,
    /// The writes that were lost by that.
    pub(super) lost: Vec<Event<'h>>,
}

/// Splits a key's events, which are in the order of versions, where a write began after another had ended, and yet has not
/// the higher version.
pub(super) fn lives<'h>(events: &[Event<'h>]) -> Vec<Life<'h>> {
    if grows(events) {
        return vec![Life { events: events.to_vec(), fell_to: None, lost: Vec::new() }];
    }
    let mut writes: Vec<Event<'h>> = events.iter().filter(|event| event.writes()).copied().collect();
    writes.sort_by_key(|event| event.call.invoked);
    let mut ended = writes.clone();
    ended.sort_by_key(|event| event.call.returned);
    let mut ended = ended.into_iter().peekable();
    let (mut highest, mut begins) = (0, Vec::new());
    for write in &writes {
        while let Some(before) = ended.next_if(|before| before.call.returned < write.call.invoked) {
            highest = highest.max(before.layer.version);
        }
        if write.layer.version <= highest {
            begins.push((write.call.invoked, write.layer.version.saturating_sub(1)));
            highest = 0;
        }
    }
    split(events, &begins)
}

/// Whether no write began after one of a higher version had ended, and no version was made twice.
fn grows(events: &[Event<'_>]) -> bool {
    let mut latest_begin = 0;
    let mut last = None;
    for event in events.iter().filter(|event| event.writes()) {
        if event.call.returned < latest_begin || last == Some(event.layer.version) {
            return false;
        }
        latest_begin = latest_begin.max(event.call.invoked);
        last = Some(event.layer.version);
    }
    true
}

fn split<'h>(events: &[Event<'h>], begins: &[(u64, u64)]) -> Vec<Life<'h>> {
    let mut lives = vec![Life { events: Vec::new(), fell_to: None, lost: Vec::new() }];
    lives.extend(begins.iter().map(|(_, floor)| Life { events: Vec::new(), fell_to: Some(*floor), lost: Vec::new() }));
    // The instant of the first write of each life.
    let instants: Vec<Instant> = begins
        .iter()
        .map(|(begin, _)| {
            let writes = events.iter().filter(|event| event.writes() && event.call.invoked >= *begin);
            writes.map(|event| event.at).min().unwrap_or(Instant::MAX)
        })
        .collect();
    for event in events {
        // A call that was on its way when the first write of a life began counts to the life before, unless it was decided
        // after that.
        let begun = |(begin, at): (&u64, &Instant)| {
            event.call.invoked >= *begin || (event.call.returned >= *begin && event.at >= *at)
        };
        let index = begins.iter().map(|(begin, _)| begin).zip(&instants).filter(|pair| begun(*pair)).count();
        if let Some(life) = lives.get_mut(index) {
            life.events.push(*event);
        }
    }
    // The write that began first need not be the first one.
    for life in &mut lives {
        let first = life.events.iter().filter(|event| event.writes()).map(|event| event.layer.version).min();
        life.fell_to = life.fell_to.map(|floor| first.map_or(floor, |first| floor.min(first.saturating_sub(1))));
    }
    for index in 1..lives.len() {
        let Some(floor) = lives.get(index).and_then(|life| life.fell_to) else { continue };
        let lost = lives.get(index - 1).map(|before| {
            before.events.iter().filter(|event| event.writes() && event.layer.version > floor).copied().collect()
        });
        if let (Some(life), Some(lost)) = (lives.get_mut(index), lost) {
            life.lost = lost;
        }
    }
    lives
}
