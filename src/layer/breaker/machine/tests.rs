use proptest::prelude::*;

use super::*;

const RULES: Rules = Rules {
    failures: 3,
    window: Duration::from_secs(10),
    pause: (Duration::from_millis(100), Duration::from_millis(400)),
    probes: 2,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn call(machine: &mut Machine, evidence: Evidence, at: u64) {
    let ticket = machine.admit(ms(at)).unwrap_or_else(|| panic!("open at {at} ms"));
    machine.report(ticket, evidence, ms(at));
}

/// A breaker that has just opened at 20 ms.
fn opened() -> Machine {
    let mut machine = Machine::new(RULES);
    for at in [0, 10, 20] {
        assert_eq!(machine.state(), BreakerState::Closed);
        call(&mut machine, Evidence::Silent, at);
    }
    assert_eq!(machine.state(), BreakerState::Open);
    machine
}

#[test]
fn it_opens_after_so_many_silent_calls_and_not_a_call_earlier() {
    let mut machine = opened();
    assert_eq!(machine.admit(ms(119)), None);
    assert!(machine.admit(ms(120)).is_some());
}

#[test]
fn a_long_good_past_does_not_put_it_off() {
    let mut machine = Machine::new(RULES);
    for _ in 0..100_000 {
        call(&mut machine, Evidence::Answered, 0);
    }
    for at in [1, 2, 11] {
        call(&mut machine, Evidence::Silent, at);
    }
    assert_eq!(machine.state(), BreakerState::Open);
}

#[test]
fn one_broken_connection_is_one_incident() {
    let mut machine = Machine::new(RULES);
    let riding: Vec<_> = (0..200).map(|_| machine.admit(ms(0)).unwrap()).collect();
    for ticket in riding {
        machine.report(ticket, Evidence::Silent, ms(1));
    }
    for at in 2..1000 {
        call(&mut machine, Evidence::Answered, at);
    }
    assert_eq!(machine.state(), BreakerState::Closed);
}

#[test]
fn a_store_that_mostly_answers_is_asked_and_one_that_mostly_does_not_is_left_alone() {
    for (answered, state) in [(3, BreakerState::Closed), (1, BreakerState::Open)] {
        let mut machine = Machine::new(RULES);
        for round in 0..20 {
            for _ in 0..answered {
                if machine.state() == BreakerState::Closed {
                    call(&mut machine, Evidence::Answered, round * 100);
                }
            }
            if machine.state() == BreakerState::Closed {
                call(&mut machine, Evidence::Silent, round * 100);
            }
        }
        assert_eq!(machine.state(), state, "{answered} answered for each silent one");
    }
}

#[test]
fn what_is_long_ago_is_forgotten() {
    let mut machine = Machine::new(RULES);
    for at in 0..100 {
        call(&mut machine, Evidence::Silent, at * 5_001);
    }
    assert_eq!(machine.state(), BreakerState::Closed, "never three within ten seconds");
}

#[test]
fn it_probes_with_one_call_at_a_time_and_closes_after_two() {
    let mut machine = opened();
    let first = machine.admit(ms(120)).unwrap();
    assert!(Machine::is_probe(first) && machine.state() == BreakerState::HalfOpen);
    assert_eq!(machine.admit(ms(121)), None, "a second one waits for the first");
    machine.report(first, Evidence::Answered, ms(122));
    assert_eq!(machine.state(), BreakerState::HalfOpen);
    call(&mut machine, Evidence::Answered, 123);
    assert_eq!(machine.state(), BreakerState::Closed);
}

#[test]
fn a_probe_that_is_given_up_leaves_its_place() {
    let mut machine = opened();
    for at in 120..140 {
        call(&mut machine, Evidence::None, at);
        assert_eq!(machine.state(), BreakerState::HalfOpen);
    }
    call(&mut machine, Evidence::Answered, 140);
    call(&mut machine, Evidence::Answered, 141);
    assert_eq!(machine.state(), BreakerState::Closed);
}

#[test]
fn it_waits_longer_each_time_up_to_a_bound_and_starts_anew_once_healed() {
    let mut machine = opened();
    let mut now = 20;
    for pause in [100, 200, 400, 400, 400] {
        assert_eq!(machine.admit(ms(now + pause - 1)), None);
        now += pause;
        call(&mut machine, Evidence::Silent, now);
    }
    now += 400;
    call(&mut machine, Evidence::Answered, now);
    call(&mut machine, Evidence::Answered, now);
    for _ in 0..3 {
        now += 10;
        call(&mut machine, Evidence::Silent, now);
    }
    assert_eq!(machine.admit(ms(now + 99)), None);
    assert!(machine.admit(ms(now + 100)).is_some());
}

#[test]
fn a_call_from_before_says_nothing_of_now() {
    let mut machine = Machine::new(RULES);
    let early: Vec<_> = (0..50).map(|_| machine.admit(ms(0)).unwrap()).collect();
    for at in [0, 10, 20] {
        call(&mut machine, Evidence::Silent, at);
    }
    let probe = machine.admit(ms(120)).unwrap();
    for ticket in early {
        machine.report(ticket, Evidence::Silent, ms(121));
    }
    assert_eq!(machine.state(), BreakerState::HalfOpen, "timeouts of the dead time end now");
    machine.report(probe, Evidence::Answered, ms(122));
    call(&mut machine, Evidence::Answered, 123);
    assert_eq!(machine.state(), BreakerState::Closed);
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Ask,
    End(usize, Evidence),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let evidence = prop_oneof![Just(Evidence::Answered), Just(Evidence::Silent), Just(Evidence::None)];
    let step = prop_oneof![
        2 => (0_u64..300).prop_map(Step::Pass),
        4 => Just(Step::Ask),
        4 => (any::<usize>(), evidence).prop_map(|(call, evidence)| Step::End(call, evidence)),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    /// Whatever happens: at most one probe is out, nobody is let through before the pause is over, the pause keeps to its bounds,
    /// it opens on silence alone, and a store that answers from now on is asked again within the longest pause.
    #[test]
    fn it_keeps_its_word(steps in steps(), failures in 1_u32..6, probes in 1_u32..4) {
        let rules = Rules { failures, probes, ..RULES };
        let mut machine = Machine::new(rules);
        let (mut now, mut out) = (Duration::ZERO, Vec::new());
        let mut opened_at = None;
        for step in steps {
            let before = machine.state();
            match step {
                Step::Pass(millis) => now += ms(millis),
                Step::Ask => match machine.admit(now) {
                    Some(ticket) => {
                        if before == BreakerState::Open {
                            let pause = now.saturating_sub(opened_at.unwrap());
                            prop_assert!(pause >= rules.pause.0, "let through after {pause:?}");
                        }
                        let probing = |ticket: &Ticket| Machine::is_probe(*ticket) && ticket.era == machine.era;
                        prop_assert!(!(probing(&ticket) && out.iter().any(probing)), "two probes at a time");
                        out.push(ticket);
                    }
                    None => prop_assert!(before != BreakerState::Closed),
                },
                Step::End(call, evidence) if !out.is_empty() => {
                    let ticket = out.swap_remove(call % out.len());
                    machine.report(ticket, evidence, now);
                    if machine.state() == BreakerState::Open && before != BreakerState::Open {
                        prop_assert_eq!(evidence, Evidence::Silent);
                        opened_at = Some(now);
                    }
                    if before != BreakerState::Closed && machine.state() == BreakerState::Closed {
                        prop_assert_eq!(evidence, Evidence::Answered);
                    }
                }
                Step::End(..) => {}
            }
        }
        // It heals by itself: all that is out ends, and then the store answers.
        for ticket in out {
            machine.report(ticket, Evidence::None, now);
        }
        now += rules.pause.1;
        for _ in 0..probes {
            let ticket = machine.admit(now);
            prop_assert!(ticket.is_some());
            machine.report(ticket.unwrap(), Evidence::Answered, now);
        }
        prop_assert_eq!(machine.state(), BreakerState::Closed);
    }
}
