//! What is stored under a key: who wrote it, its version, and its state.
//!
//! ```text
//!   1 byte     form (1)
//!   16 bytes   the mark of the transaction that wrote it: this engine's number and the transaction's
//!   8 bytes    the version, the least byte first
//!   the rest   the state, in the core's byte form
//! ```

use limiter_core::{Cell, State, Unsound};

const FORM: u8 = 1;
/// No version gets here: it begins as an instant, below 2^53, and grows by 1 with each write.
const MAX_VERSION: u64 = (1 << 54) - 1;

/// Names one transaction, for ever: whether it was applied can be seen in what it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) engine: u64,
    pub(crate) number: u64,
}

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) mark: Mark,
    pub(crate) cell: Cell,
}

/// The bytes of a state that `mark` wrote.
pub(crate) fn encode(mark: Mark, version: u64, state: &State) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(56);
    bytes.push(FORM);
    for number in [mark.engine, mark.number, version] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    state.write_bytes(&mut bytes);
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Value, Unsound> {
    let (form, mut rest) = bytes.split_first().ok_or(Unsound::Form)?;
    if *form != FORM {
        return Err(Unsound::Form);
    }
    let mut number = || {
        let (number, left) = rest.split_first_chunk().ok_or(Unsound::Form)?;
        rest = left;
        Ok(u64::from_le_bytes(*number))
    };
    let mark = Mark { engine: number()?, number: number()? };
    let version = number()?;
    if version > MAX_VERSION {
        return Err(Unsound::OverBound { field: "version", bound: MAX_VERSION });
    }
    Ok(Value { mark, cell: Cell { state: Some(State::from_bytes(rest)?), version } })
}

#[cfg(test)]
mod tests {
    use limiter_core::FixedWindow;
    use proptest::prelude::*;

    use super::*;

    fn value(version: u64) -> Value {
        let state = State::FixedWindow(FixedWindow { start: 60_000_000, count: 3 });
        Value { mark: Mark { engine: 7, number: 9 }, cell: Cell { state: Some(state), version } }
    }

    fn bytes(value: &Value) -> Vec<u8> {
        encode(value.mark, value.cell.version, value.cell.state.as_ref().unwrap())
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        for version in [0, 1, MAX_VERSION] {
            assert_eq!(decode(&bytes(&value(version))), Ok(value(version)));
        }
    }

    #[test]
    fn what_is_no_value_is_told_so() {
        let good = bytes(&value(1));
        for short in 0..26 {
            assert_eq!(decode(&good[..short]), Err(Unsound::Form), "{short} bytes");
        }
        let over = decode(&bytes(&value(MAX_VERSION + 1))).unwrap_err();
        assert!(over.to_string().contains("version"), "{over}");
        let mut other = good.clone();
        other[0] = 2;
        assert_eq!(decode(&other), Err(Unsound::Form));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(form) = bytes.first_mut() {
                *form = FORM;
            }
            if let Ok(value) = decode(&bytes) {
                prop_assert_eq!(value.cell.state.unwrap().check(), Ok(()));
            }
        }
    }
}
