//! A state that comes from outside is sound or it is refused; a sound one survives everything.

use limiter_core::{
    Bucket, Cell, Check, FixedWindow, Instant, Key, Limit, LogView, MAX_AMOUNT, MAX_HORIZON, MAX_LOG, MAX_PERIOD, Op,
    Request, SlidingCounter, SlidingLog, State, Unsound, View, decide,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::trace::{cases, limits};

fn bytes_of(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.write_bytes(&mut bytes);
    bytes
}

/// From 0 to `bound`, mostly near one of the two.
fn up_to(bound: u64) -> impl Strategy<Value = u64> {
    prop_oneof![2 => 0..=bound.min(1_000), 2 => bound - bound.min(1_000)..=bound, 1 => 0..=bound]
}

fn instants() -> impl Strategy<Value = u64> {
    up_to(Instant::MAX.micros())
}

/// Any state within the bounds.
fn states() -> impl Strategy<Value = State> {
    let horizon = u64::try_from(MAX_HORIZON.as_micros()).unwrap();
    let bucket =
        (instants(), up_to(horizon), any::<bool>(), up_to(MAX_AMOUNT - 1)).prop_map(|(seen, debt, back, rest)| {
            // Below `seen` if the clock had gone back.
            let tat = if back { seen.saturating_sub(debt) } else { seen + debt };
            State::Bucket(Bucket { tat, rest, seen })
        });
    let log = (instants(), vec((up_to(1_000_000), 1..=MAX_LOG / 8), 0..=8)).prop_map(|(newest, mut entries)| {
        let mut at = newest;
        for entry in entries.iter_mut().rev() {
            (at, entry.0) = (at.saturating_sub(entry.0 + 1), at);
        }
        // What would lie before the epoch is left out.
        entries.dedup_by_key(|entry| entry.0);
        State::SlidingLog(SlidingLog::from_entries(entries))
    });
    prop_oneof![
        (instants(), up_to(MAX_AMOUNT)).prop_map(|(start, count)| State::FixedWindow(FixedWindow { start, count })),
        (instants(), up_to(MAX_AMOUNT), up_to(MAX_AMOUNT)).prop_map(|(start, current, previous)| {
            State::SlidingCounter(SlidingCounter { start, current, previous })
        }),
        bucket,
        log,
    ]
}

/// Any view within the bounds.
fn views() -> impl Strategy<Value = View> {
    let opens = up_to(Instant::MAX.micros() + u64::try_from(MAX_PERIOD.as_micros()).unwrap());
    let log = (up_to(MAX_LOG), instants(), opens)
        .prop_map(|(live, newest, opens_at)| View::SlidingLog(LogView { live, newest, opens_at }));
    let other = states().prop_filter_map("a log has its own", |state| match state {
        State::FixedWindow(state) => Some(View::FixedWindow(state)),
        State::SlidingCounter(state) => Some(View::SlidingCounter(state)),
        State::Bucket(state) => Some(View::Bucket(state)),
        _ => None,
    });
    prop_oneof![1 => log, 3 => other]
}

fn request(op: Op, limit: Limit, cost: u64) -> Request {
    Request::new(op, [Check::new(Key::new("t", "stored", ["key"]), limit, cost)]).unwrap()
}

proptest! {
    #![proptest_config(cases(4_096))]

    #[test]
    fn bytes_give_back_the_state(state in states()) {
        prop_assert_eq!(state.check(), Ok(()));
        prop_assert_eq!(State::from_bytes(&bytes_of(&state)), Ok(state));
    }

    /// There is one spelling of each state, so what is read is written again as it was.
    #[test]
    fn any_bytes_are_a_sound_state_or_refused(machine in 0x10..=0x16_u8, rest in vec(any::<u8>(), 0..64)) {
        let mut bytes = vec![machine];
        bytes.extend(rest);
        if let Ok(state) = State::from_bytes(&bytes) {
            prop_assert_eq!(state.check(), Ok(()));
            prop_assert_eq!(bytes_of(&state), bytes);
        }
    }

    /// Bytes that were a state's, with one of them changed: nearer to being accepted than noise.
    #[test]
    fn a_corrupt_state_is_a_sound_state_or_refused(state in states(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = bytes_of(&state);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(state) = State::from_bytes(&bytes) {
            prop_assert_eq!(state.check(), Ok(()));
        }
    }

    #[test]
    fn a_sound_state_stays_sound_whatever_is_done(
        state in states(),
        steps in vec((limits(), instants(), any::<u64>(), 0..5_u8, instants()), 1..6),
    ) {
        let mut cell = Cell { state: Some(state), version: 7 };
        for (limit, now, cost, op, taken) in steps {
            let now = Instant::from_micros(now).unwrap();
            let taken = Instant::from_micros(taken).unwrap();
            let (op, most) = match op {
                0..=2 => (Op::Take, limit.capacity()),
                3 => (Op::Peek, limit.capacity()),
                _ => (Op::Refund { taken }, limit.capacity()),
            };
            let request = request(op, limit, cost % (most + 1));
            let record = decide(&request, now, &mut cell);
            let decisions = record.decisions(&request).unwrap();
            prop_assert_eq!(decisions.allowed, record.allowed);
            prop_assert_eq!(record.layers()[0].view.check(), Ok(()));
            let state = cell.state.as_ref().unwrap();
            prop_assert_eq!(state.check(), Ok(()), "{:?}", state);
            let _ = state.reset_at(&limit);
        }
    }

    #[test]
    fn a_sound_view_is_told_from_without_overflow(view in views(), limit in limits(), now in instants(), cost in any::<u64>()) {
        prop_assert_eq!(view.check(), Ok(()));
        let now = Instant::from_micros(now).unwrap();
        let cost = cost % (limit.capacity() + 1);
        let fits = match (&view, limit.algorithm()) {
            // A view is of the limit's own machine, or the engine has made a fresh one.
            (View::Bucket(_), limiter_core::Algorithm::TokenBucket | limiter_core::Algorithm::LeakyBucket)
            | (View::FixedWindow(_), limiter_core::Algorithm::FixedWindow)
            | (View::SlidingCounter(_), limiter_core::Algorithm::SlidingCounter)
            | (View::SlidingLog(_), limiter_core::Algorithm::SlidingLog) => true,
            _ => false,
        };
        if fits {
            let allowed = view.admits(&limit, now, cost);
            prop_assert_eq!(view.decision(&limit, now, cost, allowed && cost > 0).allowed, allowed);
        }
    }
}

#[test]
fn a_state_tells_the_instant_of_its_last_write() {
    for (limit, latest) in [
        ("5/1m fixed-window", 120_000_000),
        ("5/1m sliding-log", 150_000_000),
        ("5/1m sliding-counter", 120_000_000),
        ("5/1m token-bucket", 150_000_000),
        ("5/1m leaky-bucket", 150_000_000),
    ] {
        let limit: Limit = limit.parse().unwrap();
        let mut state = State::fresh(limit.algorithm());
        assert_eq!(state.latest(), Instant::EPOCH);
        for now in [130_000_000, 150_000_000, 140_000_000] {
            state.take(&limit, Instant::from_micros(now).unwrap(), 1);
        }
        assert_eq!(state.latest().micros(), latest, "{limit}");
    }
}

/// One more than each bound is refused, by its name and without its value.
#[test]
fn each_field_has_its_bound() {
    const LAST: u64 = Instant::MAX.micros();
    let horizon = u64::try_from(MAX_HORIZON.as_micros()).unwrap();
    let window = |start, count| State::FixedWindow(FixedWindow { start, count });
    let counter = |start, current, previous| State::SlidingCounter(SlidingCounter { start, current, previous });
    let bucket = |seen, tat, rest| State::Bucket(Bucket { tat, rest, seen });
    let log = |entries: &[(u64, u64)]| State::SlidingLog(SlidingLog::from_entries(entries.iter().copied()));
    for sound in [
        window(LAST, MAX_AMOUNT),
        counter(LAST, MAX_AMOUNT, MAX_AMOUNT),
        bucket(LAST, LAST + horizon, MAX_AMOUNT - 1),
        bucket(LAST, 0, 0),
        log(&[(LAST - 1, MAX_LOG - 1), (LAST, 1)]),
    ] {
        assert_eq!(sound.check(), Ok(()), "{sound:?}");
        assert_eq!(State::from_bytes(&bytes_of(&sound)), Ok(sound));
    }
    for (unsound, field) in [
        (window(LAST + 1, 0), "fixed-window start"),
        (window(0, MAX_AMOUNT + 1), "fixed-window count"),
        (counter(LAST + 1, 0, 0), "sliding-counter start"),
        (counter(0, MAX_AMOUNT + 1, 0), "sliding-counter current"),
        (counter(0, 0, MAX_AMOUNT + 1), "sliding-counter previous"),
        (bucket(LAST + 1, 0, 0), "bucket last instant"),
        (bucket(5, 6 + horizon, 0), "bucket arrival time"),
        (bucket(0, 0, MAX_AMOUNT), "bucket rest"),
        (log(&[(LAST + 1, 1)]), "newest instant"),
        (log(&[(1, MAX_LOG), (2, 1)]), "sum of units"),
        (log(&[(1, u64::MAX), (2, u64::MAX)]), "sum of units"),
    ] {
        let told = unsound.check().unwrap_err();
        assert!(told.to_string().contains(field), "{unsound:?}: {told}");
    }
    assert_eq!(log(&[(2, 1), (1, 1)]).check(), Err(Unsound::LogOrder));
    for (view, field) in [
        (LogView { live: MAX_LOG + 1, newest: 0, opens_at: 0 }, "live units"),
        (LogView { live: 0, newest: LAST + 1, opens_at: 0 }, "newest instant"),
        (LogView { live: 0, newest: 0, opens_at: u64::MAX }, "opening instant"),
    ] {
        assert!(View::SlidingLog(view).check().unwrap_err().to_string().contains(field), "{view:?}");
    }
}
