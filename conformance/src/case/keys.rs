//! Which strings are which keys: different parts never share a state, whatever bytes they hold.

use limiter_core::{Key, Limit, Op};

use super::{Failure, case_list, ensure};
use crate::trial::{Trial, at};

case_list! { Keys:
    awkward_bytes "NUL, braces, separators, escapes, line ends, quotes and invalid UTF-8",
    lengths "0 B, 1 B, 127 B to 129 B, 3 kB and 2 MB, which differ only in their last byte",
    prefixes "keys that are prefixes of one another",
    concatenations "parts that run together to the same text",
    letters "keys that differ in case, or by an accent",
    rules_and_scopes "the same parts under another rule, or in another scope",
    spraying "many new keys do not make the store forget an exhausted one",
}

/// An instant that is no edge of any window here.
const T: u64 = 1_764_559_423_123_456;

/// All of these are different keys: each has its own two units, and resetting one leaves the others alone.
async fn are_different(trial: &Trial, keys: &[Key]) -> Result<(), Failure> {
    let limit: Limit = "2/1h sliding-log".parse()?;
    let now = Some(at(T)?);
    let mut twin = trial.twin().await?;
    for key in keys {
        let decision = twin.take(key, limit, 1, now).await?;
        ensure!(decision.remaining == 1, "{key} shares its state: {} left of a fresh 2", decision.remaining);
    }
    for key in keys {
        let decision = twin.take(key, limit, 1, now).await?;
        ensure!(decision.allowed && decision.remaining == 0, "{key} lost its state: {decision:?}");
    }
    let Some((first, others)) = keys.split_first() else { return Ok(()) };
    let _ = twin.one(Op::Reset, first, limit, 0, now).await?;
    for key in others {
        ensure!(!twin.take(key, limit, 1, now).await?.allowed, "{key} was forgotten with {first}");
    }
    ensure!(twin.take(first, limit, 2, now).await?.allowed, "{first} was not forgotten");
    Ok(())
}

async fn awkward_bytes(trial: &Trial) -> Result<(), Failure> {
    let parts: [&[u8]; 25] = [
        b"\0",
        b"\0\0",
        b"a\0",
        b"\0a",
        b"a\0b",
        b"{",
        b"}",
        b"{}",
        b"}{",
        b"{a}",
        b"a:b",
        b":",
        b"::",
        b"%",
        b"%00",
        b"%3A",
        b"/",
        b"\\",
        b"'",
        b"\"",
        b"\r\n",
        b" ",
        b"\xff",
        b"\xc3\x28",
        b"\xf0\x9f\x92\xa9",
    ];
    let keys: Vec<Key> = parts.iter().map(|part| trial.key("bytes", [part])).collect();
    are_different(trial, &keys).await
}

async fn lengths(trial: &Trial) -> Result<(), Failure> {
    let mut keys = Vec::new();
    for length in [0, 1, 127, 128, 129, 3_000, 2_000_000] {
        keys.push(trial.key("length", ["a".repeat(length)]));
        if length > 0 {
            keys.push(trial.key("length", ["a".repeat(length - 1) + "b"]));
        }
    }
    // Many short parts make a long key too.
    keys.push(trial.key("length", vec!["part"; 200]));
    keys.push(trial.key("length", vec!["part"; 201]));
    are_different(trial, &keys).await
}

async fn prefixes(trial: &Trial) -> Result<(), Failure> {
    let keys: Vec<Key> = ["u", "us", "user", "user-1", "user-10", "user-100", "user-1000", "user-1001"]
        .iter()
        .map(|part| trial.key("prefix", [part]))
        .chain([trial.key("prefix", ["user", "1"]), trial.key("prefix", ["user", "10"]), trial.key("prefix", ["", ""])])
        .collect();
    are_different(trial, &keys).await
}

async fn concatenations(trial: &Trial) -> Result<(), Failure> {
    let lists: [&[&str]; 12] = [
        &["ab", "c"],
        &["a", "bc"],
        &["abc"],
        &["a", "b", "c"],
        &["", "abc"],
        &["abc", ""],
        &["", "abc", ""],
        &["ab:c"],
        &["a:bc"],
        &["a:b:c"],
        &[],
        &[""],
    ];
    let keys: Vec<Key> = lists.iter().map(|parts| trial.key("parts", *parts)).collect();
    are_different(trial, &keys).await
}

async fn letters(trial: &Trial) -> Result<(), Failure> {
    let keys: Vec<Key> = ["user", "User", "USER", "üser", "u\u{308}ser", "user ", " user"]
        .iter()
        .map(|part| trial.key("letters", [part]))
        .collect();
    are_different(trial, &keys).await
}

async fn rules_and_scopes(trial: &Trial) -> Result<(), Failure> {
    let keys = [
        trial.key("rule", ["key"]),
        trial.key("rule2", ["key"]),
        trial.key("", ["key"]),
        trial.key("rule", ["key", "key"]),
        trial.key_elsewhere("one", "rule"),
        trial.key_elsewhere("two", "rule"),
    ];
    are_different(trial, &keys).await
}

async fn spraying(trial: &Trial) -> Result<(), Failure> {
    let limit: Limit = "3/1h sliding-counter".parse()?;
    let victim = trial.key("spray", ["victim"]);
    let mut twin = trial.twin().await?;
    let _ = twin.take(&victim, limit, 3, None).await?;
    let mut number = 0_u32;
    for _ in 0..40 {
        let requests = (0..50)
            .map(|_| {
                number += 1;
                let key = trial.key("spray", [number.to_string()]);
                Ok::<_, Failure>(limiter_core::Request::take(key, limit, 1)?)
            })
            .collect::<Result<_, _>>()?;
        for decisions in twin.batch(requests, None).await? {
            ensure!(decisions.allowed, "a new key was refused after {number} others");
        }
    }
    let decision = twin.take(&victim, limit, 1, None).await?;
    ensure!(!decision.allowed, "the exhausted key was forgotten after {number} new keys");
    Ok(())
}
