//! Who serves which slots of a cluster, as far as is known.

use std::collections::HashMap;

/// A server's host and port.
pub type Node = (String, u16);

/// The slots and their nodes: what `CLUSTER SLOTS` told, and what nodes have said since.
///
/// ```
/// use limiter_core::script::Slots;
///
/// let mut slots = Slots::default();
/// slots.learn(vec![(0, 8_191, ("a".to_owned(), 1)), (8_192, 16_383, ("b".to_owned(), 2))]);
/// assert_eq!(slots.node(8_192).map(|(host, _)| &**host), Some("b"));
/// slots.moved(8_192, ("a".to_owned(), 1));
/// assert_eq!(slots.node(8_192).map(|(host, _)| &**host), Some("a"));
/// assert!(slots.is_doubtful());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// First and last slot, and who serves them; in order.
    ranges: Vec<(u16, u16, Node)>,
    /// Said by nodes since the ranges were told.
    moved: HashMap<u16, Node>,
    number: u64,
    doubtful: bool,
}

impl Slots {
    /// Takes in what a node told: first and last slot of each range, and who serves it.
    pub fn learn(&mut self, mut ranges: Vec<(u16, u16, Node)>) {
        ranges.sort_unstable();
        *self = Self { ranges, moved: HashMap::new(), number: self.number + 1, doubtful: false };
    }

    /// Notes that a node said where a slot is.
    pub fn moved(&mut self, slot: u16, node: Node) {
        self.moved.insert(slot, node);
        self.doubtful = true;
    }

    /// Notes that something gave reason to ask anew, such as a node that failed.
    pub fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Whether it is time to ask anew.
    #[must_use]
    pub const fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Grows with each answer that was taken in.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Who serves a slot; none if nobody is known to.
    #[must_use]
    pub fn node(&self, slot: u16) -> Option<&Node> {
        if let Some(node) = self.moved.get(&slot) {
            return Some(node);
        }
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, node) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then_some(node)
    }

    /// Each node that was told, once.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.ranges.iter().map(|(.., node)| node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// Where the keys of a slot are to be asked for, by a node that refused: nothing was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elsewhere {
    /// At this node, from now on. None: its address can't be read.
    Moved(Option<Node>),
    /// At this node, this time, and with `ASKING` before it.
    Ask(Option<Node>),
    /// At the same node, a little later.
    Later,
}

impl Elsewhere {
    /// Reads a node's error: its first word, and the rest of it.
    #[must_use]
    pub fn of_error(code: &str, rest: &str) -> Option<Self> {
        // `slot host:port`. A host that is left out is the one that was asked.
        let node = || {
            let (host, port) = rest.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
            Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
        };
        match code {
            "MOVED" => Some(Self::Moved(node())),
            "ASK" => Some(Self::Ask(node())),
            "TRYAGAIN" | "CLUSTERDOWN" => Some(Self::Later),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Node {
        (host.to_owned(), port)
    }

    #[test]
    fn a_redirection_names_its_node() {
        for (code, rest, due) in [
            ("MOVED", "3999 127.0.0.1:6381", Some(Elsewhere::Moved(Some(node("127.0.0.1", 6_381))))),
            ("MOVED", "3999 ::1:6381", Some(Elsewhere::Moved(Some(node("::1", 6_381))))),
            ("MOVED", "3999 [::1]:6381", Some(Elsewhere::Moved(Some(node("::1", 6_381))))),
            ("MOVED", "3999 :6381", Some(Elsewhere::Moved(Some(node("", 6_381))))),
            ("MOVED", "3999 nonsense", Some(Elsewhere::Moved(None))),
            ("ASK", "3999 host:6381", Some(Elsewhere::Ask(Some(node("host", 6_381))))),
            ("TRYAGAIN", "Multiple keys", Some(Elsewhere::Later)),
            ("CLUSTERDOWN", "Hash slot not served", Some(Elsewhere::Later)),
            ("READONLY", "x y:1", None),
        ] {
            assert_eq!(Elsewhere::of_error(code, rest), due, "{code} {rest}");
        }
    }

    #[test]
    fn a_slot_that_is_not_told_has_no_node() {
        let mut slots = Slots::default();
        assert!(slots.node(0).is_none() && slots.nodes().is_empty());
        slots.learn(vec![(9, 10, node("b", 2)), (3, 5, node("a", 1)), (7, 7, node("a", 1))]);
        let known: Vec<u16> = (0..12).filter(|slot| slots.node(*slot).is_some()).collect();
        assert_eq!((known, slots.nodes().len(), slots.number()), (vec![3, 4, 5, 7, 9, 10], 2, 1));
        slots.moved(6, node("c", 3));
        assert!(slots.is_doubtful() && slots.node(6) == Some(&node("c", 3)) && slots.nodes().len() == 2);
        slots.learn(vec![(0, 16_383, node("d", 4))]);
        assert!(!slots.is_doubtful() && slots.node(6) == Some(&node("d", 4)));
    }
}
