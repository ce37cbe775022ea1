//! The lines of a trace, as `limiter replay` reads them.

use std::io::Cursor;

use limiter_core::{Cell, Cells, Limit, MAX_CHECKS, decide};

use crate::assert_is_a_line;

#[allow(dead_code, reason = "the command uses the rest of it")]
#[path = "../../src/bin/limiter/replay/check.rs"]
mod check;
#[path = "../../src/bin/limiter/replay/clf.rs"]
mod clf;
#[path = "../../src/bin/limiter/replay/jsonl.rs"]
mod jsonl;
#[allow(dead_code, reason = "the command uses the rest of it")]
#[path = "../../src/bin/limiter/replay/lines.rs"]
mod lines;
#[allow(dead_code, reason = "the command uses the rest of it")]
#[path = "../../src/bin/limiter/replay/rules.rs"]
mod rules;

use check::Check;
use lines::Lines;
use rules::{KeyFields, Rules};

/// Each line of JSON is a check that can be decided, or is refused in a line.
///
/// # Panics
/// If not.
pub fn replay_json(bytes: &[u8]) {
    let mut reader = jsonl::Reader::default();
    replay(bytes, |line| {
        let read = reader.read(line);
        // What it remembers of earlier lines changes nothing.
        assert_eq!(format!("{read:?}"), format!("{:?}", jsonl::Reader::default().read(line)));
        read
    });
}

/// Each line of an access log is a check that can be decided, or is refused in a line.
///
/// # Panics
/// If not.
pub fn replay_log(bytes: &[u8]) {
    let limits: Vec<Limit> = ["2/1m sliding-log", "5/1h token-bucket burst=7", "9/1d fixed-window"]
        .map(|limit| limit.parse().expect("a limit"))
        .into();
    let keys: Vec<KeyFields> =
        ["ip", "user,method,path,status", "global"].map(|key| key.parse().expect("a key")).into();
    let common = Rules::new(&limits, &keys, 1).expect("rules");
    let key: KeyFields = "ip,target,referer,user-agent".parse().expect("a key");
    let combined = Rules::new(&limits, &[key], 2).expect("rules");
    replay(bytes, |line| common.read(line));
    replay(bytes, |line| combined.read(line));
}

fn replay(bytes: &[u8], mut read: impl FnMut(&[u8]) -> Result<Check, String>) {
    let mut lines = Lines::new(Box::new(Cursor::new(bytes.to_vec())), None);
    let mut last = 0;
    while let Some(line) = lines.next().expect("reading from memory does not fail") {
        assert!(line.number > last);
        last = line.number;
        let Some(text) = line.text else {
            assert!(bytes.len() > lines::MAX_LINE);
            continue;
        };
        match read(text) {
            Ok(check) => decided(&check),
            Err(reason) => assert_is_a_line(&reason, 1_000),
        }
    }
}

fn decided(check: &Check) {
    for layer in 0..=MAX_CHECKS {
        // 60 characters of each part, of which a control character is written in ten.
        assert_is_a_line(&check.name(layer), 4 * 620);
    }
    match check.request("scope") {
        Ok(request) => {
            let mut cells = Fresh(vec![Cell::default(); request.checks().len()]);
            let record = decide(&request, check.at, &mut cells);
            assert!(record.decisions(&request).expect("the core agrees with itself").allowed, "fresh keys admit");
        }
        Err(error) => assert_is_a_line(&error.to_string(), 2_000),
    }
}

struct Fresh(Vec<Cell>);

impl Cells for Fresh {
    fn cell(&mut self, index: usize) -> &mut Cell {
        &mut self.0[index]
    }
}
