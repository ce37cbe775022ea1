//! Calls on their way through a cluster, played with made-up answers: who is asked, how often, and what is never asked again.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::sync::Arc;
use std::time::Duration;

use limiter_core::script::{Answer, Elsewhere, Node, Program, Reached, Round, Slots, Spread, slot_of};
use limiter_core::{Batch, Error, ErrorKind, Key, Request};

fn node(name: &str) -> Node {
    (name.to_owned(), 1)
}

fn slots() -> Slots {
    let mut slots = Slots::default();
    slots.learn(vec![(0, 8_191, node("a")), (8_192, 16_383, node("b"))]);
    slots
}

fn round(scopes: &[&str]) -> Round {
    let take = |scope: &&str| Request::take(Key::new(scope, "r", ["k"]), "5/1s fixed-window".parse().unwrap(), 1);
    let batch = Batch { requests: scopes.iter().map(|scope| take(scope).unwrap()).collect(), at: None };
    let mut nonce = 0;
    Round::new("test", Spread::new("test", Arc::new(batch)).next(false), || {
        nonce += 1;
        nonce
    })
}

fn error(kind: ErrorKind) -> Error {
    Error::new("test", kind, "as played")
}

fn refusal(to: Elsewhere) -> Reached<'static> {
    Reached::Elsewhere(to, error(ErrorKind::Refused))
}

/// Plays a round of one call; gives who was asked, with `ASKING` or not, and how it ended.
fn play(
    mut slots: Slots,
    mut answer: impl FnMut(&Node, u32) -> Reached<'static>,
) -> (Vec<(Node, bool)>, ErrorKind, Duration) {
    let (mut round, mut asked, mut waited) = (round(&["x"]), Vec::new(), Duration::ZERO);
    while round.is_open() {
        let sends = round.sends(&slots);
        assert!(sends.len() <= 1);
        let sent = sends.into_iter().next().map(|(node, sends)| (node, sends[0].call, sends[0].asking));
        if let Some((node, call, asking)) = sent {
            asked.push((node.clone(), asking));
            let turn = u32::try_from(asked.len()).unwrap();
            round.answer(call, &node, answer(&node, turn), &mut slots);
        }
        waited += round.advice().map_or(Duration::ZERO, |advice| advice.wait);
        round.end_of_turn(&slots, false);
        assert!(asked.len() < 30, "it does not end");
    }
    let outcomes: Vec<_> = round.outcomes().flat_map(|(_, outcomes)| outcomes).collect();
    (asked, outcomes[0].record().unwrap_err().kind(), waited)
}

fn home() -> Node {
    slots().node(slot_of(&Key::new("x", "r", ["k"]))).unwrap().clone()
}

#[test]
fn what_may_have_run_is_asked_once() {
    let unknown = ErrorKind::Unknown { in_flight: true };
    for kind in [unknown, ErrorKind::Refused, ErrorKind::NotSent] {
        let (asked, ended, _) = play(slots(), |_, _| Reached::Answer(Answer::Failed(error(kind))));
        assert_eq!((asked, ended), (vec![(home(), false)], kind));
    }
    // Also after a redirection.
    let (asked, ended, _) = play(slots(), |_, turn| match turn {
        1 => refusal(Elsewhere::Moved(Some(node("c")))),
        _ => Reached::Answer(Answer::Failed(error(unknown))),
    });
    assert_eq!((asked, ended), (vec![(home(), false), (node("c"), false)], unknown));
}

#[test]
fn redirections_are_followed_so_often_and_no_more() {
    let (asked, ended, waited) =
        play(slots(), |node, _| refusal(Elsewhere::Moved(Some((if node.0 == "a" { "b" } else { "a" }.to_owned(), 1)))));
    assert_eq!((asked.len(), ended, waited), (7, ErrorKind::Refused, Duration::ZERO));
    let (asked, ended, waited) = play(slots(), |_, _| refusal(Elsewhere::Later));
    assert_eq!((asked.len(), ended), (7, ErrorKind::Refused));
    assert!(asked.iter().all(|(node, asking)| *node == home() && !asking));
    assert!((Duration::from_millis(200)..Duration::from_secs(1)).contains(&waited), "{waited:?}");
    // A node that nobody can name, and a slot that nobody serves.
    assert_eq!(play(slots(), |_, _| refusal(Elsewhere::Moved(None))).0.len(), 7);
    let (asked, ended, _) = play(Slots::default(), |_, _| refusal(Elsewhere::Later));
    assert_eq!((asked.len(), ended), (0, ErrorKind::Refused));
}

#[test]
fn a_node_that_is_named_for_one_call_is_told_so_and_forgotten() {
    let (asked, ..) = play(slots(), |_, turn| match turn {
        1 => refusal(Elsewhere::Ask(Some((String::new(), 9)))),
        2 => refusal(Elsewhere::Later),
        _ => Reached::Answer(Answer::Failed(error(ErrorKind::Refused))),
    });
    assert_eq!(asked, [(home(), false), ((home().0, 9), true), (home(), false)]);
}

#[test]
fn a_script_that_is_missing_is_brought_to_the_node_that_lacks_it() {
    let (mut slots, mut round) = (slots(), round(&["x"]));
    let ask = |round: &mut Round, slots: &mut Slots, reached: Reached<'static>| {
        let (node, call, program) = {
            let sends = round.sends(slots);
            let (node, sends) = sends.iter().next().unwrap();
            (node.clone(), sends[0].call, sends[0].command.program)
        };
        round.answer(call, &node, reached, slots);
        round.end_of_turn(slots, false);
        (node, program)
    };
    ask(&mut round, &mut slots, refusal(Elsewhere::Ask(Some(node("c")))));
    let (at, program) = ask(&mut round, &mut slots, Reached::Answer(Answer::NoScript));
    assert!(at == node("c") && matches!(program, Program::Digest(_)));
    let (at, program) = ask(&mut round, &mut slots, Reached::Answer(Answer::Failed(error(ErrorKind::Refused))));
    assert!(at == node("c") && matches!(program, Program::Text(_)), "{at:?}");
}

#[test]
fn a_node_that_was_replaced_is_followed_and_those_of_one_node_go_together() {
    let (mut slots, mut round) = (slots(), round(&["x", "y", "z", "w", "v", "u"]));
    let sends = round.sends(&slots);
    assert_eq!(sends.values().map(Vec::len).sum::<usize>(), 6);
    assert_eq!(sends.len(), 2, "two writes for six calls");
    let all: Vec<(Node, usize)> =
        sends.iter().flat_map(|(node, sends)| sends.iter().map(|send| (node.clone(), send.call))).collect();
    for (node, call) in &all {
        round.answer(*call, node, Reached::Answer(Answer::Failed(error(ErrorKind::NotSent))), &mut slots);
    }
    assert_eq!(round.advice().unwrap().wait, Duration::ZERO);
    slots.learn(vec![(0, 8_191, node("a")), (8_192, 16_383, node("c"))]);
    round.end_of_turn(&slots, false);
    let again: Vec<Node> = round.sends(&slots).into_keys().collect();
    assert_eq!(again, [node("c")], "the other is as it was");
    round.end_of_turn(&slots, true);
    assert!(round.is_open(), "what is sent is answered before it is late");
}
