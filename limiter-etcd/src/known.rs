//! What this process knows of one key: its state, and who else is at it.
//!
//! Of two nodes at one key, the one that has just won is the first to send again: the other learns the new state later, and its
//! next attempt comes too late by as much, each time. So the winner has to leave gaps. It can't see the loser; so after many
//! transactions in a row it pauses once for a little over a round trip, and if that lets another in, it leaves a gap after every
//! few for a while. And where many nodes are at a key (each value names its writer), each that loses waits for a random while,
//! of as many round trips as there are others.

use std::time::Duration;

use limiter_core::Cell;
use tokio::time::Instant;

/// Transactions in a row, after which there is a gap for others: that nobody knows of, or that were there of late; of these
/// each further one makes it shorter.
const STREAK: (u32, u32) = (64, 16);
/// For so many round trips another is reckoned with after it was quicker.
const RIVALS: u32 = 64;
/// So many other nodes are told apart.
const TOLD_APART: usize = 8;

/// The state of a key at a revision of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) cell: Cell,
    /// The revision of the key's last write; 0 if it is not stored.
    pub(crate) revision: i64,
    pub(crate) others: Others,
}

/// What a node has noticed of others at a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    quicker: [Option<Rival>; TOLD_APART],
    /// Transactions of this node in a row, with no time between them for others.
    streak: u32,
    /// When the last of them was done.
    done: Option<Instant>,
}

/// Another that was quicker of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rival {
    /// The number of its engine.
    engine: u64,
    /// Until when it is reckoned with. Each by itself: one that has gone would be in the way as long as there is any other.
    until: Instant,
}

impl Others {
    /// How many others are at the key, as far as they are told apart.
    pub(crate) fn crowd(&self, now: Instant) -> u32 {
        self.quicker.iter().map(|rival| u32::from(rival.is_some_and(|rival| rival.until > now))).sum()
    }

    /// Another was quicker: the engine of this number.
    pub(crate) fn lost(&mut self, other: u64, now: Instant, round_trip: Duration) {
        self.streak = 0;
        let until = now + round_trip.saturating_mul(RIVALS);
        let rival = Some(Rival { engine: other, until });
        let known = self.quicker.iter().position(|place| place.is_some_and(|rival| rival.engine == other));
        let free = || self.quicker.iter().position(|place| place.is_none_or(|rival| rival.until <= now));
        if let Some(place) = known.or_else(free).and_then(|place| self.quicker.get_mut(place)) {
            *place = rival;
        }
    }

    /// It is done.
    pub(crate) fn won(&mut self, now: Instant) {
        self.streak += 1;
        self.done = Some(now);
    }

    /// Whether it is time for a gap, which begins a new streak. One of `pause` since the last transaction is one too.
    pub(crate) fn gives_way(&mut self, now: Instant, pause: Duration) -> bool {
        if self.done.is_none_or(|done| now.saturating_duration_since(done) >= pause) {
            self.streak = 0;
        }
        let (alone, among_others) = STREAK;
        let longest = match self.crowd(now) {
            0 => alone,
            others => among_others / others,
        };
        let gives = self.streak >= longest;
        if gives {
            self.streak = 0;
        }
        gives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(2);
    const TRIP: Duration = Duration::from_millis(1);

    fn lose(others: &mut Others, to: u64) {
        others.lost(to, Instant::now(), TRIP);
    }

    /// After how many transactions in a row the node gives way.
    fn streak(others: &mut Others) -> u32 {
        let mut won = 0;
        while !others.gives_way(Instant::now(), PAUSE) {
            others.won(Instant::now());
            won += 1;
            assert!(won <= 200, "for ever");
        }
        won
    }

    #[tokio::test(start_paused = true)]
    async fn a_winner_leaves_gaps_and_more_of_them_once_others_were_there() {
        let mut others = Others::default();
        assert_eq!((streak(&mut others), streak(&mut others)), (64, 64));
        lose(&mut others, 1);
        assert_eq!((streak(&mut others), streak(&mut others)), (16, 16));
        lose(&mut others, 2);
        assert_eq!(streak(&mut others), 8, "two others have to come in");
        tokio::time::advance(TRIP * (RIVALS - 1)).await;
        assert_eq!(streak(&mut others), 8);
        tokio::time::advance(TRIP).await;
        assert_eq!(streak(&mut others), 64, "they were not seen for long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_asked_for_now_and_then_is_never_waited_for() {
        let mut others = Others::default();
        for _ in 0..200 {
            assert!(!others.gives_way(Instant::now(), PAUSE));
            others.won(Instant::now());
            tokio::time::advance(PAUSE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_told_apart_and_forgotten_when_they_have_gone() {
        let mut others = Others::default();
        for _ in 0..5 {
            lose(&mut others, 7);
            assert_eq!(others.crowd(Instant::now()), 1, "one other, however often it is quicker");
        }
        for other in 1..=20 {
            lose(&mut others, other);
        }
        assert_eq!(others.crowd(Instant::now()), 8);
        tokio::time::advance(TRIP * RIVALS).await;
        assert_eq!(others.crowd(Instant::now()), 0);
        lose(&mut others, 21);
        assert_eq!(others.crowd(Instant::now()), 1, "their places are free");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_gone_is_forgotten_while_another_stays() {
        let mut others = Others::default();
        lose(&mut others, 1);
        for _ in 0..RIVALS {
            lose(&mut others, 2);
            others.won(Instant::now());
            tokio::time::advance(TRIP).await;
        }
        assert_eq!(others.crowd(Instant::now()), 1, "the one that is still there");
    }
}
