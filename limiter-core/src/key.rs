//! Where a state is kept: a readable key that different parts never share.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The longest escaped part that a key spells out, in bytes. A longer one is replaced by its SHA-256.
pub const MAX_PART: usize = 128;
/// The longest list of escaped parts that a key spells out, in bytes. A longer one is replaced by its SHA-256.
pub const MAX_PARTS: usize = 512;

/// The name of a stored state: `rl:{<scope>}:<rule>:<part>…`.
///
/// **Injective**: different scopes, rules or lists of parts give different keys, whatever bytes they hold. `:`, `{`,
/// `}`, `%`, control bytes, spaces and all that is not ASCII are written `%XX`, so a key is printable, has no NUL, and
/// can't leave its braces. What would be longer than its bound is replaced by `%#` and a SHA-256, so a key has at most
/// [`MAX_LEN`](Key::MAX_LEN) bytes.
///
/// The braces are Redis Cluster's hash tag: keys of one scope (a tenant, say) lie in one slot and are decided in one step.
///
/// It is cheap to clone.
///
/// ```
/// use limiter_core::Key;
///
/// let key = Key::new("tenant-7", "api", ["user-42", "/orders"]);
/// assert_eq!(key.as_str(), "rl:{tenant-7}:api:user-42:/orders");
/// assert_ne!(Key::new("t", "r", ["a", "bc"]), Key::new("t", "r", ["ab", "c"]));
/// assert_eq!(Key::new("t", "r", [b"}\0\xff"]).as_str(), "rl:{t}:r:%7D%00%FF");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// The most bytes that a key has.
    pub const MAX_LEN: usize = "rl:{}:".len() + 2 * MAX_PART + 1 + MAX_PARTS;

    /// The key of these parts, in a scope, under a rule.
    pub fn new<P: AsRef<[u8]>>(
        scope: impl AsRef<[u8]>,
        rule: impl AsRef<[u8]>,
        parts: impl IntoIterator<Item = P>,
    ) -> Self {
        let mut key = String::with_capacity(64);
        key.push_str("rl:{");
        push_part(&mut key, scope.as_ref());
        // Empty braces are no hash tag to Redis: it would hash the whole key.
        if scope.as_ref().is_empty() {
            key.push('%');
        }
        key.push_str("}:");
        push_part(&mut key, rule.as_ref());
        let start = key.len();
        for part in parts {
            key.push(':');
            push_part(&mut key, part.as_ref());
        }
        if key.len() - start > MAX_PARTS {
            let digest = hex(key.as_bytes().get(start..).unwrap_or_default());
            key.truncate(start);
            key.push_str(":%##");
            key.push_str(&digest);
        }
        Self(key.into())
    }

    /// The rule, as the key spells it: escaped, or its hash if it is too long. So it is printable, and has neither `:` nor braces.
    ///
    /// ```
    /// use limiter_core::Key;
    ///
    /// assert_eq!(Key::new("tenant-7", "api", ["user-42"]).rule(), "api");
    /// assert_eq!(Key::new("}:x", "a:b", ["c"]).rule(), "a%3Ab");
    /// ```
    #[must_use]
    pub fn rule(&self) -> &str {
        // A scope has no brace of its own.
        let after = self.0.split_once("}:").map_or("", |(_, after)| after);
        after.split(':').next().unwrap_or_default()
    }

    /// The text that is stored: printable ASCII.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

fn push_part(key: &mut String, part: &[u8]) {
    let start = key.len();
    for &byte in part {
        if byte.is_ascii_graphic() && !matches!(byte, b':' | b'{' | b'}' | b'%') {
            key.push(char::from(byte));
        } else {
            key.push('%');
            push_hex(key, byte);
        }
        if key.len() - start > MAX_PART {
            // An escape is never `%#`, so no other part is spelled like this one.
            key.truncate(start);
            key.push_str("%#");
            key.push_str(&hex(part));
            return;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        push_hex(&mut text, byte);
    }
    text
}

fn push_hex(text: &mut String, byte: u8) {
    for nibble in [byte >> 4, byte & 15] {
        text.push(char::from_digit(u32::from(nibble), 16).map_or('0', |digit| digit.to_ascii_uppercase()));
    }
}
