//! Keys: different parts never meet, whatever bytes they hold, and every key is one that any store takes.
#![expect(clippy::unwrap_used, reason = "a test stops on the first thing that is not as it should be")]

use std::collections::HashMap;

use limiter_core::{Key, MAX_PART, MAX_PARTS};
use proptest::prelude::*;
use proptest::sample::select;

type Parts = (Vec<u8>, Vec<u8>, Vec<Vec<u8>>);

fn key((scope, rule, parts): &Parts) -> Key {
    Key::new(scope, rule, parts)
}

/// Bytes that escaping could trip over: separators, braces, what an escape or a digest looks like, and lengths at the bound.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let tricky: Vec<&[u8]> = vec![
        b"",
        b"a",
        b"ab",
        b"b",
        b":",
        b"{",
        b"}",
        b"%",
        b"%3A",
        b"%#",
        b"%##",
        b"#",
        b"\0",
        b" ",
        b"\n",
        b"\xff",
        b"\xc3\xa9",
        "é".as_bytes(),
        b"\xe2\x82",
        b"a:b",
        b"{a}",
        b"rl:{a}:b",
    ];
    prop_oneof![
        4 => select(tricky).prop_map(<[u8]>::to_vec),
        2 => prop::collection::vec(any::<u8>(), 0..6),
        1 => (any::<u8>(), MAX_PART - 2..MAX_PART + 3).prop_map(|(byte, length)| vec![byte; length]),
        1 => (any::<u8>(), 40..46_usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    (part(), part(), prop::collection::vec(part(), 0..7))
}

/// Ways to write nearly the same parts, as people and attackers find them.
fn neighbours((scope, rule, parts): &Parts) -> Vec<Parts> {
    let mut all = vec![(rule.clone(), scope.clone(), parts.clone())];
    let mut with = |parts: Vec<Vec<u8>>| all.push((scope.clone(), rule.clone(), parts));
    with([parts.as_slice(), &[Vec::new()]].concat());
    with(parts.iter().rev().cloned().collect());
    with(vec![parts.concat()]);
    with(vec![parts.join(&b':')]);
    if let Some((first, rest)) = parts.split_first() {
        with(rest.to_vec());
        // What the key spells, as a part of its own.
        let spelled = key(&(Vec::new(), Vec::new(), vec![first.clone()])).as_str().as_bytes().to_vec();
        let own = spelled.strip_prefix(b"rl:{%}::").unwrap().to_vec();
        with([&[own], rest].concat());
        if let Some((second, rest)) = rest.split_first() {
            // ("ab", "c") against ("a", "bc").
            let joined = [first.as_slice(), second].concat();
            for cut in [0, first.len() / 2, joined.len()] {
                let (left, right) = joined.split_at(cut);
                with([&[left.to_vec(), right.to_vec()], rest].concat());
            }
        }
        all.push((first.clone(), rule.clone(), rest.to_vec()));
        all.push((scope.clone(), first.clone(), rest.to_vec()));
    }
    all
}

fn is_well_formed(key: &Key) {
    let text = key.as_str();
    assert!(text.len() <= Key::MAX_LEN, "{} bytes: {text}", text.len());
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
    let (scope, rest) = text.strip_prefix("rl:{").and_then(|text| text.split_once('}')).unwrap();
    assert!(!scope.is_empty(), "an empty hash tag is none to Redis: {text}");
    assert!(!scope.contains('{') && rest.starts_with(':') && !rest.contains(['{', '}']), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2_000), ..ProptestConfig::default() })]

    #[test]
    fn different_parts_give_different_keys(one in parts(), other in parts()) {
        for other in neighbours(&one).into_iter().chain([other]) {
            prop_assert_eq!(one == other, key(&one) == key(&other), "{:?} and {:?}", &one, &other);
        }
    }

    #[test]
    fn every_key_is_printable_bounded_and_has_one_hash_tag(parts in parts()) {
        for parts in neighbours(&parts).iter().chain([&parts]) {
            is_well_formed(&key(parts));
        }
    }

    #[test]
    fn keys_of_one_scope_lie_in_one_slot(one in parts(), other in parts()) {
        let tag = |key: &Key| key.as_str().split_once('}').map(|(tag, _)| tag.to_owned());
        let other = (one.0.clone(), other.1, other.2);
        prop_assert_eq!(tag(&key(&one)), tag(&key(&other)));
    }
}

#[test]
fn long_parts_and_long_lists_are_told_apart_too() {
    let mut seen = HashMap::new();
    let mut add = |parts: Parts| {
        let key = key(&parts);
        is_well_formed(&key);
        let twice = seen.insert(key, parts);
        assert_eq!(twice, None, "two lists share a key");
    };
    for length in [0, 1, 42, 43, 126, 127, 128, 129, 130, 3_000, 2_000_000] {
        for byte in [b'a', b'b', b':', b'\0', b'\xff', b'%'] {
            if length == 0 && byte != b'a' {
                continue;
            }
            let part = vec![byte; length];
            add((part.clone(), b"rule".to_vec(), vec![]));
            add((b"scope".to_vec(), part.clone(), vec![]));
            add((b"scope".to_vec(), b"rule".to_vec(), vec![part]));
        }
    }
    // Lists on both sides of their bound, and one part moved over a border within them.
    for count in MAX_PARTS / 2 - 2..MAX_PARTS / 2 + 3 {
        for moved in [0, 1, count - 1] {
            let mut list = vec![b"x".to_vec(); count];
            list.iter_mut().skip(moved).take(1).for_each(|part| part.push(b'y'));
            // And the list as it is spelt, as a part of its own: its digest would be the list's.
            let spelt = [b":".as_slice(), &list.join(&b':')].concat();
            add((b"list".to_vec(), b"rule".to_vec(), vec![spelt]));
            add((b"list".to_vec(), b"rule".to_vec(), list));
        }
    }
}

#[test]
fn a_key_reads_as_what_it_was_made_of() {
    let spelled = |scope: &[u8], rule: &[u8], parts: &[&[u8]]| Key::new(scope, rule, parts).as_str().to_owned();
    assert_eq!(spelled(b"tenant-7", b"api", &[b"user-42", b"/orders"]), "rl:{tenant-7}:api:user-42:/orders");
    assert_eq!(spelled(b"", b"", &[]), "rl:{%}:");
    assert_eq!(spelled(b"", b"", &[b""]), "rl:{%}::");
    assert_eq!(spelled(b"{a}", b"b:c", &[b"100%", b"\xff\0 "]), "rl:{%7Ba%7D}:b%3Ac:100%25:%FF%00%20");
    assert_eq!(spelled(b"s", b"r", &[&[b'a'; 128]]), format!("rl:{{s}}:r:{}", "a".repeat(128)));
    assert_eq!(spelled(b"s", b"r", &[&[b'a'; 128], b"b"]), format!("rl:{{s}}:r:{}:b", "a".repeat(128)));
    // The SHA-256 of 129 times `a`.
    let digest = "C12CB024A2E5551CCA0E08FCE8F1C5E314555CC3FEF6329EE994A3DB752166AE";
    assert_eq!(spelled(b"s", b"r", &[&[b'a'; 129], b"b"]), format!("rl:{{s}}:r:%#{digest}:b"));
}
