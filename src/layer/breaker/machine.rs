//! When to stop asking, and when to try again: no I/O, and time is told.

use std::time::Duration;

/// When a breaker opens, and how it heals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Silent calls that open it.
    pub(super) failures: u32,
    /// How long the first of them is remembered.
    pub(super) window: Duration,
    /// How long it stays open, at first and at most.
    pub(super) pause: (Duration, Duration),
    /// Answered probes, one after the other, that close it.
    pub(super) probes: u32,
}

/// Failures that lie closer together than this are one incident: a connection that breaks fails all that rode on it at once, and
/// the next call may well find the store again.
pub(super) const INCIDENT: Duration = Duration::from_millis(10);

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store is asked.
    Closed,
    /// One call at a time tries whether the store is back; all others are answered without it.
    HalfOpen,
    /// The store is not asked.
    Open,
}

impl BreakerState {
    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }
}

/// What a call said of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// It answered, be it by a refusal.
    Answered,
    /// It was not reached, or did not answer in time.
    Silent,
    /// Nothing: it was not asked, or the caller went before the answer.
    None,
}

/// A call that was let through. Its report counts only for the state that let it through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    era: u64,
    probe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { suspicion: Option<Suspicion> },
    Open { until: Duration },
    HalfOpen { answered: u32, probing: bool },
}

/// What was seen since the first silent call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspicion {
    since: Duration,
    silent: u32,
    answered: u32,
}

/// A breaker. Instants are what has passed since some origin; one that goes back counts as no time.
#[derive(Debug)]
pub(super) struct Machine {
    rules: Rules,
    state: State,
    /// Grows with each change of state, so that calls from before it are not taken for evidence.
    era: u64,
    /// How long it is to stay open the next time.
    pause: Duration,
}

impl Machine {
    pub(super) const fn new(rules: Rules) -> Self {
        Self { rules, state: State::Closed { suspicion: None }, era: 0, pause: rules.pause.0 }
    }

    pub(super) const fn state(&self) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
            State::Open { .. } => BreakerState::Open,
        }
    }

    /// Lets a call through, or not.
    pub(super) fn admit(&mut self, now: Duration) -> Option<Ticket> {
        if let State::Open { until } = self.state
            && now >= until
        {
            self.change(State::HalfOpen { answered: 0, probing: false });
        }
        match &mut self.state {
            State::Closed { .. } => Some(Ticket { era: self.era, probe: false }),
            State::HalfOpen { probing, .. } if !*probing => {
                *probing = true;
                Some(Ticket { era: self.era, probe: true })
            }
            State::HalfOpen { .. } | State::Open { .. } => None,
        }
    }

    /// Takes note of what a call said. To be told once of each ticket.
    pub(super) fn report(&mut self, ticket: Ticket, evidence: Evidence, now: Duration) {
        if ticket.era != self.era {
            return;
        }
        match (self.state, evidence) {
            (State::Closed { suspicion }, _) => self.suspect(suspicion, evidence, now),
            (State::HalfOpen { .. }, Evidence::Silent) => self.open(now),
            (State::HalfOpen { answered, .. }, Evidence::Answered) if answered + 1 >= self.rules.probes => {
                self.pause = self.rules.pause.0;
                self.change(State::Closed { suspicion: None });
            }
            (State::HalfOpen { answered, .. }, _) => {
                let answered = answered + u32::from(evidence == Evidence::Answered);
                self.state = State::HalfOpen { answered, probing: false };
            }
            (State::Open { .. }, _) => {}
        }
    }

    /// What is counted begins with a silent call. So a store that dies after a million good answers is noticed as soon as one
    /// that dies after none.
    fn suspect(&mut self, suspicion: Option<Suspicion>, evidence: Evidence, now: Duration) {
        let fresh = suspicion.filter(|suspicion| now.saturating_sub(suspicion.since) < self.rules.window);
        let suspicion = match (fresh, evidence) {
            (_, Evidence::None) => return,
            (None, Evidence::Answered) => None,
            (None, Evidence::Silent) => Some(Suspicion { since: now, silent: 1, answered: 0 }),
            (Some(seen), Evidence::Answered) => Some(Suspicion { answered: seen.answered.saturating_add(1), ..seen }),
            (Some(seen), Evidence::Silent) => Some(Suspicion { silent: seen.silent.saturating_add(1), ..seen }),
        };
        self.state = State::Closed { suspicion };
        let opens = |seen: Suspicion| {
            let lasting = self.rules.failures <= 1 || now.saturating_sub(seen.since) >= INCIDENT;
            seen.silent >= self.rules.failures && seen.silent >= seen.answered && lasting
        };
        if evidence == Evidence::Silent && suspicion.is_some_and(opens) {
            self.open(now);
        }
    }

    fn open(&mut self, now: Duration) {
        let until = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(self.rules.pause.1);
        self.change(State::Open { until });
    }

    const fn change(&mut self, state: State) {
        self.state = state;
        self.era += 1;
    }

    #[cfg(test)]
    fn is_probe(ticket: Ticket) -> bool {
        ticket.probe
    }
}

#[cfg(test)]
mod tests;
