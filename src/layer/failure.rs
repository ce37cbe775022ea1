//! What a rule wants when the store does not decide.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use limiter_core::Key;

/// What becomes of a check that the store does not decide: because it is away, because it is too slow, or because the breaker knows it.
///
/// It is written `open`, `closed`, `local` or `local nodes=4`, and so it stands in configuration.
///
/// ```
/// use std::num::NonZeroU32;
/// use limiter::layer::FailurePolicy;
///
/// let policy: FailurePolicy = "local nodes=4".parse()?;
/// assert_eq!(policy, FailurePolicy::Local { nodes: NonZeroU32::new(4).unwrap() });
/// assert_eq!(policy.to_string(), "local nodes=4");
/// assert_eq!(FailurePolicy::default(), FailurePolicy::Closed);
/// # Ok::<(), limiter::layer::FailurePolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// It passes, counted nowhere, with [`Source::Open`](crate::Source::Open). For limits that keep a service fair.
    ///
    /// It opens for a store that is away, not for one that is busy: what a client's own flood can bring about
    /// ([`Full`](crate::ErrorKind::Full), [`Contended`](crate::ErrorKind::Contended),
    /// [`Overloaded`](crate::ErrorKind::Overloaded)) is refused as under `Closed`, else a flood would switch the limit off.
    Open,
    /// The failure is told, as [`CheckError::NotSent`](crate::CheckError::NotSent) or
    /// [`CheckError::Unknown`](crate::CheckError::Unknown): over HTTP a 503, never a 429. For limits that guard something: logins, money.
    #[default]
    Closed,
    /// This node counts by itself, in its memory, under its share of the limit, with [`Source::Local`](crate::Source::Local).
    Local {
        /// How many nodes share the limit: each passes at most one n-th of it, and 1 at least. So all together pass at most the
        /// limit, unless there are more nodes than units.
        nodes: NonZeroU32,
    },
}

impl FailurePolicy {
    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Local { .. } => "local",
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Local { nodes } => write!(f, " nodes={nodes}"),
            Self::Open | Self::Closed => Ok(()),
        }
    }
}

/// A text that is no failure policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FailurePolicyError {
    /// None of the three.
    #[error("a failure policy is `open`, `closed`, `local` or `local nodes=N`")]
    Form,
    /// A number of nodes that is none.
    #[error("the nodes of `local nodes=N` are a whole number, 1 to {}", u32::MAX)]
    Nodes,
}

impl FromStr for FailurePolicy {
    type Err = FailurePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_ascii_whitespace();
        let policy = match (words.next(), words.next()) {
            (Some("open"), None) => Self::Open,
            (Some("closed"), None) => Self::Closed,
            (Some("local"), None) => Self::Local { nodes: NonZeroU32::MIN },
            (Some("local"), Some(option)) => {
                let nodes = option.strip_prefix("nodes=").ok_or(FailurePolicyError::Form)?;
                // A plus sign would parse.
                if !nodes.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(FailurePolicyError::Nodes);
                }
                Self::Local { nodes: nodes.parse().map_err(|_| FailurePolicyError::Nodes)? }
            }
            _ => return Err(FailurePolicyError::Form),
        };
        if words.next().is_some() { Err(FailurePolicyError::Form) } else { Ok(policy) }
    }
}

#[cfg(feature = "serde")]
mod serde_impl {
    use std::fmt;

    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::FailurePolicy;

    /// A policy is its text, in every format.
    impl Serialize for FailurePolicy {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for FailurePolicy {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_str(Text)
        }
    }

    struct Text;

    impl Visitor<'_> for Text {
        type Value = FailurePolicy;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a failure policy such as \"closed\" or \"local nodes=4\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<FailurePolicy, E> {
            text.parse().map_err(E::custom)
        }
    }
}

/// Which policy each rule has. Clones share it, so that it can be changed while requests are answered.
///
/// ```
/// use limiter::layer::{FailurePolicies, FailurePolicy};
///
/// let policies = FailurePolicies::new(FailurePolicy::Closed);
/// policies.set("search", FailurePolicy::Open);
/// assert_eq!(policies.of("search"), FailurePolicy::Open);
/// assert_eq!(policies.of("login"), FailurePolicy::Closed);
/// ```
#[derive(Clone, Debug)]
pub struct FailurePolicies(Arc<RwLock<Table>>);

#[derive(Clone, Debug, Default)]
struct Table {
    /// By the rule as keys spell it.
    rules: HashMap<Box<str>, FailurePolicy, RandomState>,
    otherwise: FailurePolicy,
}

impl FailurePolicies {
    /// One policy for all rules.
    #[must_use]
    pub fn new(otherwise: FailurePolicy) -> Self {
        Self(Arc::new(RwLock::new(Table { rules: HashMap::default(), otherwise })))
    }

    /// Gives `rule` a policy of its own.
    pub fn set(&self, rule: &str, policy: FailurePolicy) {
        self.change(|table| {
            table.rules.insert(spelled(rule), policy);
        });
    }

    /// Puts new policies in place of all, at one moment: those of these rules, and one for all others.
    pub fn replace<R: AsRef<str>>(
        &self,
        otherwise: FailurePolicy,
        rules: impl IntoIterator<Item = (R, FailurePolicy)>,
    ) {
        let rules = rules.into_iter().map(|(rule, policy)| (spelled(rule.as_ref()), policy)).collect();
        self.change(|table| *table = Table { rules, otherwise });
    }

    /// The policy of `rule`.
    #[must_use]
    pub fn of(&self, rule: &str) -> FailurePolicy {
        self.of_spelled(&spelled(rule))
    }

    /// The policy of the rule that a key belongs to.
    #[must_use]
    pub fn of_key(&self, key: &Key) -> FailurePolicy {
        self.of_spelled(key.rule())
    }

    fn of_spelled(&self, rule: &str) -> FailurePolicy {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.rules.get(rule).copied().unwrap_or(table.otherwise)
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        // Nothing under the lock panics half-way through a change.
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Default for FailurePolicies {
    fn default() -> Self {
        Self::new(FailurePolicy::default())
    }
}

/// A rule as keys spell it.
fn spelled(rule: &str) -> Box<str> {
    Key::new("", rule, [""; 0]).rule().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_its_text() {
        for text in ["open", "closed", "local nodes=1", "local nodes=4294967295"] {
            assert_eq!(text.parse::<FailurePolicy>().unwrap().to_string(), text);
        }
        assert_eq!("local".parse(), Ok(FailurePolicy::Local { nodes: NonZeroU32::MIN }));
        assert_eq!(" local  nodes=2 ".parse::<FailurePolicy>().unwrap().to_string(), "local nodes=2");
        for text in ["", "Open", "open nodes=2", "local 2", "local nodes=2 x", "local nodes", "local node=2"] {
            assert_eq!(text.parse::<FailurePolicy>(), Err(FailurePolicyError::Form), "{text}");
        }
        for text in ["local nodes=", "local nodes=0", "local nodes=-1", "local nodes=+1", "local nodes=4294967296"] {
            assert_eq!(text.parse::<FailurePolicy>(), Err(FailurePolicyError::Nodes), "{text}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_policy_is_its_text_in_a_file_too() {
        let policy: FailurePolicy = serde_json::from_str("\"local nodes=3\"").unwrap();
        assert_eq!(serde_json::to_string(&policy).unwrap(), "\"local nodes=3\"");
        assert!(serde_json::from_str::<FailurePolicy>("\"ajar\"").is_err());
    }

    #[test]
    fn a_rule_is_found_however_keys_spell_it() {
        let policies = FailurePolicies::default();
        let long = "long".repeat(100);
        for rule in ["api", "a:b", "{}", "ü %", "", long.as_str()] {
            assert_eq!(policies.of(rule), FailurePolicy::Closed);
            policies.set(rule, FailurePolicy::Open);
            assert_eq!(policies.of_key(&Key::new("}:api", rule, ["x", "y"])), FailurePolicy::Open, "{rule}");
        }
        policies.replace(FailurePolicy::Open, [("api", FailurePolicy::Closed)]);
        assert_eq!([policies.of("api"), policies.of("a:b")], [FailurePolicy::Closed, FailurePolicy::Open]);
    }
}
