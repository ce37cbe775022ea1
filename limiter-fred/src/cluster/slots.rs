//! What a node tells of the cluster's slots.

use fred::types::Value;
use limiter_core::script::Node;

/// The answer to `CLUSTER SLOTS` of a node that was asked at `host`: first and last slot of each range, and its primary. Anything
/// that can't be read is left out.
pub(super) fn ranges(answer: &Value, host: &str) -> Vec<(u16, u16, Node)> {
    list(answer).iter().filter_map(|range| read(range, host)).collect()
}

fn read(range: &Value, host: &str) -> Option<(u16, u16, Node)> {
    let [first, last, primary, ..] = list(range) else { return None };
    let [name, port, ..] = list(primary) else { return None };
    let name = match name {
        // The one that was asked.
        Value::Null => host.to_owned(),
        name => match &*name.as_str()? {
            "?" => return None,
            "" => host.to_owned(),
            name => name.to_owned(),
        },
    };
    Some((number(first)?, number(last)?, (name, number(port)?)))
}

fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        _ => &[],
    }
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Integer(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_node_is_read() {
        let text = |text: &str| Value::String(text.into());
        let server = |name: Value, port| Value::Array(vec![name, Value::Integer(port), text("id")]);
        let range =
            |first, last, primary| Value::Array(vec![Value::Integer(first), Value::Integer(last), primary, text("x")]);
        let answer = Value::Array(vec![
            range(5_461, 10_922, server(text("host"), 2)),
            range(0, 5_460, server(text(""), 1)),
            range(12_000, 16_383, server(Value::Null, 3)),
            range(10_923, 11_999, server(text("?"), 4)),
            range(1, -2, server(text("x"), 4)),
        ]);
        let node = |name: &str, port| (name.to_owned(), port);
        let due = [(5_461, 10_922, node("host", 2)), (0, 5_460, node("asked", 1)), (12_000, 16_383, node("asked", 3))];
        assert_eq!(ranges(&answer, "asked"), due);
        assert_eq!(ranges(&Value::Null, "asked"), []);
    }
}
