//! What a node tells of the cluster's slots.

use limiter_core::script::Node;
use redis::Value;

/// The answer to `CLUSTER SLOTS` of a node that was asked at `host`: first and last slot of each range, and its primary. Anything
/// that can't be read is left out.
pub(super) fn ranges(answer: &Value, host: &str) -> Vec<(u16, u16, Node)> {
    list(answer).iter().filter_map(|range| read(range, host)).collect()
}

fn read(range: &Value, host: &str) -> Option<(u16, u16, Node)> {
    let [first, last, primary, ..] = list(range) else { return None };
    let [name, port, ..] = list(primary) else { return None };
    let name = match name {
        Value::BulkString(name) => std::str::from_utf8(name).ok()?,
        Value::SimpleString(name) => name,
        // The one that was asked.
        Value::Nil => "",
        _ => return None,
    };
    let name = match name {
        "?" => return None,
        "" => host,
        name => name,
    };
    Some((number(first)?, number(last)?, (name.to_owned(), number(port)?)))
}

fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        _ => &[],
    }
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_node_is_read() {
        let text = "*4\r\n\
            *4\r\n:5461\r\n:10922\r\n*3\r\n$4\r\nhost\r\n:2\r\n$1\r\nx\r\n*3\r\n$7\r\nreplica\r\n:9\r\n$1\r\ny\r\n\
            *3\r\n:0\r\n:5460\r\n*3\r\n$0\r\n\r\n:1\r\n$1\r\nx\r\n\
            *3\r\n:12000\r\n:16383\r\n*3\r\n$-1\r\n:3\r\n$1\r\nx\r\n\
            *3\r\n:10923\r\n:11999\r\n*3\r\n$1\r\n?\r\n:4\r\n$1\r\nx\r\n";
        let node = |name: &str, port| (name.to_owned(), port);
        let due = [(5_461, 10_922, node("host", 2)), (0, 5_460, node("asked", 1)), (12_000, 16_383, node("asked", 3))];
        assert_eq!(ranges(&redis::parse_redis_value(text.as_bytes()).unwrap(), "asked"), due);
        for text in ["*0\r\n", "+OK\r\n", "*1\r\n*1\r\n:1\r\n", "*1\r\n*3\r\n:1\r\n:-2\r\n*2\r\n$1\r\nx\r\n:1\r\n"] {
            assert_eq!(ranges(&redis::parse_redis_value(text.as_bytes()).unwrap(), "asked"), [], "{text}");
        }
    }
}
