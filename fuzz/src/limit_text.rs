//! A limit's text.

use limiter_core::{Limit, LimitError};

use crate::assert_is_a_line;

/// What is read is printed and read again as the same; what is not is told in a line.
///
/// # Panics
/// If not.
pub fn limit_text(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let read: Result<Limit, LimitError> = text.parse();
    match read {
        Ok(limit) => {
            let printed = limit.to_string();
            assert_is_a_line(&printed, 128);
            assert_eq!(printed.parse(), Ok(limit), "{text:?} is printed {printed}");
            let json = serde_json::to_string(&limit).expect("a limit is a text");
            assert_eq!(serde_json::from_str::<Limit>(&json).expect("and a text is a limit"), limit);
        }
        // 64 characters are repeated, each of which may be written in ten.
        Err(error) => assert_is_a_line(&error.to_string(), 1_000),
    }
}
