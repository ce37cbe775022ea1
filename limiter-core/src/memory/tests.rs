//! What the engine keeps beside the states, which no caller sees: that it does not grow.

use super::*;
use crate::clock::ManualClock;
use crate::request::{Check, Op};

const START: u64 = 1_700_000_000_000_000;

/// A table with one shard.
fn table() -> (Memory<ManualClock>, ManualClock) {
    let clock = ManualClock::at(Instant::saturating_from_micros(START));
    (Memory::builder().max_keys(100_000).max_log_entries(1_000).clock(clock.clone()).build(), clock)
}

fn key(client: u64) -> Key {
    Key::new("scope", "rule", [client.to_string()])
}

/// Places in the table, and due instants.
fn kept(memory: &Memory<ManualClock>) -> (usize, usize) {
    memory.lock(0).kept()
}

#[test]
fn refunds_leave_no_due_instants_behind() {
    let (memory, clock) = table();
    let limit = "100000/1h token-bucket".parse().unwrap();
    let taken = Instant::saturating_from_micros(START);
    assert!(memory.take(&key(0), &limit, 100_000).unwrap().allowed());
    let refund = Request::new(Op::Refund { taken }, [Check::new(key(0), limit, 1)]).unwrap();
    for _ in 0..100_000 {
        assert!(matches!(memory.decide(&refund, None), Outcome::Allowed(_)));
        assert!(kept(&memory).1 <= 5);
    }
    // And neither do limits that change, each of them for a shorter time.
    for hours in (1..1_000).rev() {
        clock.set(Instant::saturating_from_micros(START + 1_000 - hours));
        let limit = format!("1000000/{hours}h fixed-window").parse().unwrap();
        assert!(memory.take(&key(0), &limit, 1).unwrap().allowed());
        assert!(kept(&memory).1 <= 5);
    }
}

#[test]
fn a_table_gives_back_what_a_flood_took() {
    let (memory, clock) = table();
    let limit = "5/1s token-bucket".parse().unwrap();
    for client in 0..50_000 {
        assert!(memory.take(&key(client), &limit, 1).unwrap().allowed());
    }
    assert!(kept(&memory).0 >= 50_000);
    for client in 0..50_000 {
        clock.set(Instant::saturating_from_micros(START + 120_000_000 + client * 1_000_000));
        assert!(memory.take(&key(50_000 + client), &limit, 1).unwrap().allowed());
    }
    let (places, due) = kept(&memory);
    assert!(memory.len() <= 100 && places < 2_000 && due < 500, "{} keys, {places}, {due}", memory.len());
}
