//! Limits: what is within the bounds is built and reads back as it prints; all else is refused in one line that names it.

use std::time::Duration;

use limiter_core::{
    Algorithm, Check, Instant, InstantError, Key, Limit, LimitError, MAX_AMOUNT, MAX_BURST, MAX_CHECKS, MAX_HORIZON,
    MAX_LOG, MAX_PERIOD, MIN_PERIOD, Op, Request,
};
use proptest::prelude::*;
use proptest::sample::select;

fn refused(text: &str) -> String {
    text.parse::<Limit>().map_or_else(|error| error.to_string(), |limit| format!("`{text}` was read as {limit}"))
}

/// Each text, and the whole line that refuses it.
const REFUSED: &[(&str, &str)] = &[
    // Zero never switches limiting off, nor divides.
    ("0/1s fixed-window", "amount 0 is under its bound of 1"),
    ("0/1s token-bucket", "amount 0 is under its bound of 1"),
    ("1/0s fixed-window", "period 0s is out of its bounds, 1ms to 366d"),
    ("1/0 fixed-window", "period `0` has no unit of us, ms, s, m, min, h, d"),
    ("1/1s token-bucket burst=0", "burst 0 is under its bound of 1"),
    ("1/1s leaky-bucket queue=0", "queue 0 is under its bound of 1"),
    // One past each bound.
    ("1000000000001/1s fixed-window", "amount 1000000000001 is over its bound of 1000000000000"),
    ("1000000000001/1s sliding-counter", "amount 1000000000001 is over its bound of 1000000000000"),
    ("1000000000001/1s token-bucket", "amount 1000000000001 is over its bound of 1000000000000"),
    ("100001/1s sliding-log", "amount 100001 of a sliding-log is over its bound of 100000"),
    ("1/999us fixed-window", "period 999us is out of its bounds, 1ms to 366d"),
    ("1/367d fixed-window", "period 367d is out of its bounds, 1ms to 366d"),
    ("1/31622400000001us fixed-window", "period 31622400000001us is out of its bounds, 1ms to 366d"),
    ("9/1s token-bucket burst=1000000000002", "burst 1000000000002 is over its bound of 1000000000001"),
    ("9/1s leaky-bucket queue=1000000000001", "queue 1000000000001 is over its bound of 1000000000000"),
    ("1/4503599627370497us token-bucket", "period 4503599627370497us is out of its bounds, 1ms to 366d"),
    ("1000/1s token-bucket burst=4503599627371", "burst 4503599627371 is over its bound of 1000000000001"),
    (
        "3/3s token-bucket burst=4503599628",
        "burst 4503599628 takes 4503599628000000 µs to refill at this rate, over its bound of 4503599627370496 µs (2^52)",
    ),
    (
        "2/366d leaky-bucket queue=1000000000000",
        "queue 1000000000000 takes 15811200000000000000000000 µs to refill at this rate, over its bound of \
         4503599627370496 µs (2^52)",
    ),
    // Numbers past 64 bits, and what only looks like a number.
    ("99999999999999999999/1s fixed-window", "amount 99999999999999999999 is over its bound of 1000000000000"),
    ("1/99999999999999999999s fixed-window", "period 99999999999999999999s is out of its bounds, 1ms to 366d"),
    ("1/18446744073709551615d fixed-window", "period 18446744073709551615d is out of its bounds, 1ms to 366d"),
    ("1/1s token-bucket burst=99999999999999999999", "burst 99999999999999999999 is over its bound of 1000000000001"),
    ("1.5/1s fixed-window", "amount `1.5` is not a whole number"),
    ("1e3/1s fixed-window", "amount `1e3` is not a whole number"),
    ("-1/1s fixed-window", "amount `-1` is not a whole number"),
    ("+1/1s fixed-window", "amount `+1` is not a whole number"),
    ("0x10/1s fixed-window", "amount `0x10` is not a whole number"),
    ("1_000/1s fixed-window", "amount `1_000` is not a whole number"),
    ("NaN/1s fixed-window", "amount `NaN` is not a whole number"),
    ("inf/1s fixed-window", "amount `inf` is not a whole number"),
    ("١٠/1s fixed-window", "amount `١٠` is not a whole number"),
    ("１０/1s fixed-window", "amount `１０` is not a whole number"),
    ("/1s fixed-window", "amount `` is not a whole number"),
    ("1/1.5s fixed-window", "period `1.5s` is not a whole number"),
    ("1/-1s fixed-window", "period `-1s` is not a whole number"),
    ("1/1e3s fixed-window", "period `1e3s` is not a whole number"),
    ("1/１s fixed-window", "period `１s` has no unit of us, ms, s, m, min, h, d"),
    ("1/1s token-bucket burst=1.0", "burst `1.0` is not a whole number"),
    ("1/1s token-bucket burst=-1", "burst `-1` is not a whole number"),
    ("1/1s token-bucket burst=", "burst `` is not a whole number"),
    ("1/1s leaky-bucket queue=many", "queue `many` is not a whole number"),
    // Units and algorithms are spelt one way.
    ("1/ fixed-window", "period `` has no unit of us, ms, s, m, min, h, d"),
    ("1/5 fixed-window", "period `5` has no unit of us, ms, s, m, min, h, d"),
    ("1/1S fixed-window", "period `1S` has no unit of us, ms, s, m, min, h, d"),
    ("1/1w fixed-window", "period `1w` has no unit of us, ms, s, m, min, h, d"),
    ("1/1sec fixed-window", "period `1sec` has no unit of us, ms, s, m, min, h, d"),
    ("1/1ns fixed-window", "period `1ns` has no unit of us, ms, s, m, min, h, d"),
    ("1/µs fixed-window", "period `µs` has no unit of us, ms, s, m, min, h, d"),
    ("1/1/1s fixed-window", "period `1/1s` has no unit of us, ms, s, m, min, h, d"),
    (
        "1/1s gcra",
        "unknown algorithm `gcra`: fixed-window, sliding-log, sliding-counter, token-bucket and leaky-bucket are known",
    ),
    (
        "1/1s Fixed-Window",
        "unknown algorithm `Fixed-Window`: fixed-window, sliding-log, sliding-counter, token-bucket and leaky-bucket \
         are known",
    ),
    // Options: each with its own algorithm, once.
    (
        "1/1s leaky-bucket burst=2",
        "burst does not go with leaky-bucket: burst is for token-bucket, queue for leaky-bucket",
    ),
    (
        "1/1s token-bucket queue=2",
        "queue does not go with token-bucket: burst is for token-bucket, queue for leaky-bucket",
    ),
    (
        "1/1s fixed-window burst=2",
        "burst does not go with fixed-window: burst is for token-bucket, queue for leaky-bucket",
    ),
    (
        "1/1s token-bucket burst=2 queue=2",
        "queue does not go with token-bucket: burst is for token-bucket, queue for leaky-bucket",
    ),
    ("1/1s token-bucket burst=2 burst=2", "unexpected `burst=2`: burst=N or queue=N may follow the algorithm, once"),
    ("1/1s token-bucket Burst=2", "unexpected `Burst=2`: burst=N or queue=N may follow the algorithm, once"),
    ("1/1s token-bucket burst = 2", "unexpected `burst`: burst=N or queue=N may follow the algorithm, once"),
    ("1/1s token-bucket please", "unexpected `please`: burst=N or queue=N may follow the algorithm, once"),
    // No limit at all.
    ("", "`` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]"),
    ("  ", "`  ` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]"),
    ("100", "`100` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]"),
    ("100/1s", "`100/1s` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]"),
    (
        "100 / 1s fixed-window",
        "`100 / 1s fixed-window` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]",
    ),
    (
        "fixed-window 1/1s",
        "`fixed-window 1/1s` is not a limit: it is written <amount>/<period> <algorithm> [burst=N] [queue=N]",
    ),
    // What is not printable is shown escaped, on the one line.
    ("1\u{0}/1s fixed-window", "amount `1\\0` is not a whole number"),
    ("\u{1b}[31m/1s fixed-window", "amount `\\u{1b}[31m` is not a whole number"),
];

#[test]
fn what_is_no_limit_is_refused_with_its_field_its_value_and_its_bound() {
    for (text, error) in REFUSED {
        assert_eq!(refused(text), *error, "{text}");
    }
}

#[test]
fn every_bound_is_in_and_one_past_it_is_out() {
    let second = Duration::from_secs(1);
    let micro = Duration::from_micros(1);
    let horizon = u64::try_from(MAX_HORIZON.as_micros()).unwrap();
    let table = [
        ("amount", Limit::fixed_window(1, second), Limit::fixed_window(0, second)),
        ("amount", Limit::fixed_window(MAX_AMOUNT, second), Limit::fixed_window(MAX_AMOUNT + 1, second)),
        ("amount", Limit::fixed_window(MAX_AMOUNT, second), Limit::fixed_window(u64::MAX, second)),
        ("counter", Limit::sliding_counter(MAX_AMOUNT, second), Limit::sliding_counter(MAX_AMOUNT + 1, second)),
        ("rate", Limit::token_bucket(MAX_AMOUNT, second), Limit::token_bucket(MAX_AMOUNT + 1, second)),
        ("drain", Limit::leaky_bucket(MAX_AMOUNT, second), Limit::leaky_bucket(MAX_AMOUNT + 1, second)),
        ("log", Limit::sliding_log(MAX_LOG, second), Limit::sliding_log(MAX_LOG + 1, second)),
        ("period", Limit::fixed_window(1, MIN_PERIOD), Limit::fixed_window(1, Duration::from_micros(999))),
        ("period", Limit::fixed_window(1, MAX_PERIOD), Limit::fixed_window(1, MAX_PERIOD + micro)),
        ("period", Limit::fixed_window(1, MAX_PERIOD), Limit::fixed_window(1, Duration::MAX)),
        ("period", Limit::fixed_window(1, MIN_PERIOD), Limit::fixed_window(1, Duration::ZERO)),
        ("whole", Limit::fixed_window(1, second + micro), Limit::fixed_window(1, second + Duration::from_nanos(1))),
        ("burst", Limit::token_bucket(9, second).burst(1), Limit::token_bucket(9, second).burst(0)),
        (
            "burst",
            Limit::token_bucket(MAX_AMOUNT, second).burst(MAX_BURST),
            Limit::token_bucket(MAX_AMOUNT, second).burst(MAX_BURST + 1),
        ),
        ("queue", Limit::leaky_bucket(9, second).queue(1), Limit::leaky_bucket(9, second).queue(0)),
        (
            "queue",
            Limit::leaky_bucket(MAX_AMOUNT, second).queue(MAX_AMOUNT),
            Limit::leaky_bucket(MAX_AMOUNT, second).queue(MAX_AMOUNT + 1),
        ),
        // 2^52 µs to the dot, and one unit more.
        (
            "horizon",
            Limit::token_bucket(1, Duration::from_micros(1 << 20)).burst(horizon >> 20),
            Limit::token_bucket(1, Duration::from_micros(1 << 20)).burst((horizon >> 20) + 1),
        ),
        (
            "horizon",
            Limit::leaky_bucket(1, Duration::from_micros(1 << 20)).queue(horizon >> 20),
            Limit::leaky_bucket(1, Duration::from_micros(1 << 20)).queue((horizon >> 20) + 1),
        ),
    ];
    for (bound, within, past) in table {
        let limit = within.build();
        assert!(limit.is_ok(), "{bound}: {within:?}: {limit:?}");
        let limit = past.build();
        assert!(limit.is_err(), "{bound}: {past:?}: {limit:?}");
    }
}

#[test]
fn a_horizon_is_bounded_to_the_fraction_of_a_microsecond() {
    let mut found = 0;
    for (amount, more) in (150..200).flat_map(|amount| (0..200).map(move |more| (amount, more))) {
        let period = Duration::from_micros((1 << 20) + more);
        let most = u64::try_from((u128::from(amount) << 52) / period.as_micros()).unwrap();
        assert!(Limit::token_bucket(amount, period).burst(most).build().is_ok());
        let error = Limit::token_bucket(amount, period).burst(most + 1).build().unwrap_err();
        let LimitError::HorizonTooLong { field: "burst", micros, .. } = error else { unreachable!("{error}") };
        assert!(micros > 1 << 52, "{error}");
        found += u32::from(micros == (1 << 52) + 1);
    }
    assert!(found > 0, "no horizon came within a microsecond of its bound");
}

#[test]
fn an_instant_is_below_2_to_the_53() {
    assert_eq!(Instant::from_micros((1 << 53) - 1), Ok(Instant::MAX));
    assert_eq!(Instant::from_micros(1 << 53), Err(InstantError { micros: 1 << 53 }));
    let error = Instant::from_micros(u64::MAX).unwrap_err();
    assert_eq!(error.to_string(), "instant 18446744073709551615 µs is over its bound of 9007199254740991 µs");
}

#[test]
fn a_request_is_refused_for_what_can_never_be_decided() {
    let limit: Limit = "10/1s token-bucket burst=100".parse().unwrap();
    let check = |key: &str, cost| Check::new(Key::new("", "", [key]), limit, cost);
    let request = |op, checks: Vec<Check>| Request::new(op, checks).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(request(Op::Take, vec![check("a", 100), check("b", 0)]), Ok(()));
    let error = Err("cost-exceeds-limit: cost 101 of check 1 is over its bound of 100".to_owned());
    assert_eq!(request(Op::Take, vec![check("a", 1), check("b", 101)]), error);
    assert_eq!(request(Op::Peek, vec![check("a", 1), check("b", 101)]), error);
    let error = Err("key rl:{%}::a of check 2 is in the request twice".to_owned());
    assert_eq!(request(Op::Take, vec![check("a", 1), check("b", 1), check("a", 2)]), error);
    assert_eq!(request(Op::Reset, vec![]), Err("a request has 0 checks; its bounds are 1 to 64".to_owned()));
    let checks = |count: usize| (0..count).map(|index| check(&index.to_string(), 1)).collect();
    assert_eq!(request(Op::Take, checks(MAX_CHECKS)), Ok(()));
    let error = Err("a request has 65 checks; its bounds are 1 to 64".to_owned());
    assert_eq!(request(Op::Take, checks(MAX_CHECKS + 1)), error);
    // A limit may have been lowered since a take.
    let refund = Op::Refund { taken: Instant::EPOCH };
    assert_eq!(request(refund, vec![check("a", MAX_BURST)]), Ok(()));
    let error = Err("cost-exceeds-limit: cost 1000000000002 of check 0 is over its bound of 1000000000001".to_owned());
    assert_eq!(request(refund, vec![check("a", MAX_BURST + 1)]), error);
}

#[test]
fn a_limit_prints_in_its_shortest_form() {
    let table = [
        ("100/1m fixed-window", "100/1m fixed-window"),
        ("100/min fixed-window", "100/1m fixed-window"),
        ("100/s token-bucket", "100/1s token-bucket"),
        ("100/1s token-bucket burst=100", "100/1s token-bucket"),
        ("5/1s leaky-bucket queue=20", "5/1s leaky-bucket queue=20"),
        ("007/013s sliding-log", "7/13s sliding-log"),
        ("7/13000ms sliding-counter", "7/13s sliding-counter"),
        ("1/1500ms fixed-window", "1/1500ms fixed-window"),
        ("1/60s fixed-window", "1/1m fixed-window"),
        ("1/60m fixed-window", "1/1h fixed-window"),
        ("1/24h fixed-window", "1/1d fixed-window"),
        ("1/90m fixed-window", "1/90m fixed-window"),
        ("1/1001us fixed-window", "1/1001us fixed-window"),
        (" \t10/1s\n token-bucket\u{2003}burst=100\r\n", "10/1s token-bucket burst=100"),
    ];
    for (text, printed) in table {
        assert_eq!(text.parse::<Limit>().map(|limit| limit.to_string()), Ok(printed.to_owned()), "{text}");
    }
}

fn limits() -> impl Strategy<Value = Limit> {
    let amounts = || prop_oneof![1..=1_000_u64, 1..=MAX_LOG, 1..=MAX_AMOUNT];
    let unit = select(vec![1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]);
    let period = (1..=1_000_u64, unit).prop_map(|(number, unit)| Duration::from_micros(number * unit));
    (select(&Algorithm::ALL[..]), amounts(), period, amounts(), any::<bool>()).prop_filter_map(
        "out of bounds",
        |(algorithm, amount, period, capacity, sized)| {
            let builder = match algorithm {
                Algorithm::FixedWindow => Limit::fixed_window(amount, period),
                Algorithm::SlidingLog => Limit::sliding_log(amount, period),
                Algorithm::SlidingCounter => Limit::sliding_counter(amount, period),
                Algorithm::TokenBucket if sized => Limit::token_bucket(amount, period).burst(capacity),
                Algorithm::TokenBucket => Limit::token_bucket(amount, period),
                Algorithm::LeakyBucket if sized => Limit::leaky_bucket(amount, period).queue(capacity),
                Algorithm::LeakyBucket => Limit::leaky_bucket(amount, period),
            };
            builder.build().ok()
        },
    )
}

/// Texts near enough to a limit to get far into the parser.
fn texts() -> impl Strategy<Value = String> {
    let word = select(vec![
        "1",
        "100",
        "0",
        "/",
        "s",
        "1s",
        "1m",
        "min",
        "us",
        " ",
        "\t",
        "\n",
        "fixed-window",
        "token-bucket",
        "leaky-bucket",
        "sliding-log",
        "burst",
        "=",
        "queue=",
        "burst=5",
        "99999999999999999999",
        "-",
        ".",
        "e",
        "é",
        "\u{0}",
        "\u{2028}",
        "１",
        "\u{85}",
    ]);
    let words = prop::collection::vec(word, 0..14).prop_map(|words| words.concat());
    prop_oneof![
        words,
        any::<String>(),
        "[0-9]{0,3}/[0-9]{0,3}[a-z]{0,3} [a-z]{0,8}-[a-z]{0,6}( [a-z]{0,5}=[0-9]{0,3}){0,2}"
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2_000), ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_reads_back_as_the_same_limit(limit in limits()) {
        prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
    }

    #[test]
    fn what_is_read_prints_in_its_normal_form(text in texts()) {
        if let Ok(limit) = text.parse::<Limit>() {
            let printed = limit.to_string();
            prop_assert_eq!(printed.parse::<Limit>().map(|limit| limit.to_string()), Ok(printed));
        }
    }

    #[test]
    fn any_text_is_a_limit_or_one_printable_line_of_error(text in texts()) {
        if let Err(error) = text.parse::<Limit>() {
            let line = error.to_string();
            prop_assert!(!line.is_empty() && line.chars().count() < 1_000, "{}", line);
            let breaks = |char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}');
            prop_assert!(!line.contains(breaks), "{:?}", line);
        }
    }
}

#[cfg(feature = "serde")]
mod serde {
    use super::*;

    #[test]
    fn a_limit_is_its_text_in_every_format() {
        let limit: Limit = "10/1s token-bucket burst=100".parse().unwrap();
        assert_eq!(serde_json::to_string(&limit).unwrap(), "\"10/1s token-bucket burst=100\"");
        assert_eq!(serde_json::from_str::<Limit>("\"10/s token-bucket burst=100\"").unwrap(), limit);
        // From text that is owned and from text that had to be unescaped.
        assert_eq!(serde_json::from_value::<Limit>("10/s token-bucket burst=100".into()).unwrap(), limit);
        assert_eq!(serde_json::from_str::<Limit>("\"10/s token\\u002dbucket burst=100\"").unwrap(), limit);
    }

    #[test]
    fn what_is_no_limit_is_refused_in_the_same_words() {
        for (text, error) in REFUSED {
            let told = serde_json::from_value::<Limit>((*text).into()).unwrap_err().to_string();
            assert_eq!(told, *error, "{text}");
        }
        let told = serde_json::from_str::<Limit>("100").unwrap_err().to_string();
        assert_eq!(
            told,
            "invalid type: integer `100`, expected a limit such as \"100/1m fixed-window\" at line 1 column 3"
        );
    }
}
