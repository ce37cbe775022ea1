//! Which of a Redis Cluster's slots a key lies in.

use crate::key::Key;

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: by what is in its braces, so that all keys of one scope share one.
///
/// ```
/// use limiter_core::Key;
/// use limiter_core::script::slot_of;
///
/// let (user, tenant) = (Key::new("tenant-7", "api", ["user-42"]), Key::new("tenant-7", "all", ["x"]));
/// assert_eq!(slot_of(&user), slot_of(&tenant));
/// assert_ne!(slot_of(&user), slot_of(&Key::new("tenant-8", "api", ["user-42"])));
/// ```
#[must_use]
pub fn slot_of(key: &Key) -> u16 {
    slot(key.as_str())
}

fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    // Empty braces are no tag.
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16 as XMODEM has it. Bit by bit: a scope is short, and a table would be colder than the loop.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // As `CLUSTER KEYSLOT` tells them.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, due) in
            [("k", 7_629), ("foo", 12_182), ("{foo}:bar", 12_182), ("rl:{foo}:x{y}", 12_182), ("a{}b", 13_694), ("", 0)]
        {
            assert_eq!(slot(key), due, "{key}");
        }
    }
}
