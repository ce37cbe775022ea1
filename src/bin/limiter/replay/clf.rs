//! One line of an access log → its fields: the common and the combined log format.
//!
//! ```text
//! 198.18.0.3 - frank [20/May/2015:21:05:00 +0000] "GET /feed?f=atom HTTP/1.1" 200 32352 "http://…" "Mozilla/5.0 …"
//! ip    ident  user   time                         method target protocol   status bytes   referer     user-agent
//! ```
//! Fields are bytes, as they stand in the log: a server writes a quote as `\"` and what is no text as `\xHH`, always in
//! the same way, so that equal fields stay equal and others differ. What follows the last known field is left alone,
//! since servers are often set up to log more.

use jiff::fmt::strtime;
use limiter::Instant;

use crate::terminal::printable;

/// The longest piece of a line that an error repeats, in characters.
const QUOTED: usize = 64;

/// What a line of a log tells. A field that the server had nothing for is `-`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) at: Instant,
    pub(super) ip: &'a [u8],
    pub(super) user: &'a [u8],
    /// The request line: method, target and protocol, unless the client sent something else.
    pub(super) request: &'a [u8],
    pub(super) status: &'a [u8],
    /// Only in the combined format.
    pub(super) referer: Option<&'a [u8]>,
    /// Only in the combined format.
    pub(super) user_agent: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// Reads a line, or tells why it can't be read.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, String> {
        let (ip, rest) = word(line).ok_or("ip: there is none")?;
        let (_ident, rest) = word(rest).ok_or("ident: the line ends before it")?;
        // A name may hold spaces, so it ends where the time begins.
        let (user, rest) = split_once(rest, b" [").ok_or("time: there is no ` [` before it")?;
        let user = user.trim_ascii();
        if user.is_empty() {
            return Err("user: there is none".to_owned());
        }
        let (time, rest) = split_once(rest, b"]").ok_or("time: the line ends in it")?;
        let at = instant(time)?;
        let (request, rest) = quoted(rest).map_err(|reason| format!("request: {reason}"))?;
        let (status, rest) = word(rest).ok_or("status: the line ends before it")?;
        if status != b"-" && !(status.len() == 3 && status.iter().all(u8::is_ascii_digit)) {
            return Err(format!("status `{}` is not a number of three digits", lossy(status)));
        }
        let (bytes, rest) = word(rest).ok_or("bytes: the line ends before them")?;
        if bytes != b"-" && !bytes.iter().all(u8::is_ascii_digit) {
            return Err(format!("bytes `{}` is not a whole number", lossy(bytes)));
        }
        let (referer, rest) = optional(rest).map_err(|reason| format!("referer: {reason}"))?;
        let (user_agent, _) = optional(rest).map_err(|reason| format!("user-agent: {reason}"))?;
        Ok(Self { at, ip, user, request, status, referer, user_agent })
    }

    pub(super) fn method(&self) -> &'a [u8] {
        word(self.request).map_or(b"-", |(method, _)| method)
    }

    /// What was asked for, with its query. What is no request line has none.
    pub(super) fn target(&self) -> &'a [u8] {
        word(self.request).and_then(|(_, rest)| word(rest)).map_or(b"-", |(target, _)| target)
    }

    /// The target up to its query.
    pub(super) fn path(&self) -> &'a [u8] {
        let target = self.target();
        split_once(target, b"?").map_or(target, |(path, _)| path)
    }
}

/// The first word, and what follows it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    text.split_at_checked(end).filter(|(word, _)| !word.is_empty())
}

fn split_once<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(mark.len()).position(|window| window == mark)?;
    Some((text.get(..at)?, text.get(at + mark.len()..)?))
}

/// A field in quotes, and what follows it. A quote or a backslash in it has a backslash before it.
fn quoted(text: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let text = text.trim_ascii_start().strip_prefix(b"\"").ok_or("there is no quote before it")?;
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    let (field, rest) = end.and_then(|end| text.split_at_checked(end)).ok_or("the line ends in it")?;
    Ok((field, rest.strip_prefix(b"\"").unwrap_or(rest)))
}

/// A field in quotes, if the line has one more.
fn optional(text: &[u8]) -> Result<(Option<&[u8]>, &[u8]), &'static str> {
    if !text.trim_ascii_start().starts_with(b"\"") {
        return Ok((None, text));
    }
    quoted(text).map(|(field, rest)| (Some(field), rest))
}

/// `20/May/2015:21:05:00 +0000`
fn instant(time: &[u8]) -> Result<Instant, String> {
    let wrong = |reason: &dyn std::fmt::Display| format!("time `{}`: {reason}", lossy(time));
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time)
        .and_then(|time| time.to_timestamp())
        .map_err(|error| wrong(&printable(&error.to_string(), 2 * QUOTED)))?;
    let micros = u64::try_from(time.as_microsecond()).map_err(|_| wrong(&"is before 1970"))?;
    Instant::from_micros(micros).map_err(|error| wrong(&error))
}

fn lossy(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes), QUOTED).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Entry;

    const COMMON: &str = r#"198.18.0.3 - frank [20/May/2015:21:05:00 +0000] "GET /a?f=atom HTTP/1.1" 200 32352"#;

    #[test]
    fn the_combined_format_has_every_field() {
        let line = format!(r#"{COMMON} "http://ex.org/\"q\"" "Mozilla/5.0 (X11; \\) é" "10.0.0.1" 0.003"#);
        let entry = Entry::read(line.as_bytes()).unwrap();
        assert_eq!(entry.at.micros(), 1_432_155_900_000_000);
        assert_eq!((entry.ip, entry.user), (&b"198.18.0.3"[..], &b"frank"[..]));
        assert_eq!((entry.method(), entry.path(), entry.target()), (&b"GET"[..], &b"/a"[..], &b"/a?f=atom"[..]));
        assert_eq!(entry.status, b"200");
        assert_eq!(entry.referer, Some(&br#"http://ex.org/\"q\""#[..]));
        assert_eq!(entry.user_agent, Some("Mozilla/5.0 (X11; \\\\) é".as_bytes()));
    }

    #[test]
    fn a_server_may_have_nothing_to_say() {
        let line = br#"::1 - - [01/Jan/1970:01:30:00 +0130] "-" - -"#;
        let entry = Entry::read(line).unwrap();
        assert_eq!(entry.at.micros(), 0);
        assert_eq!((entry.method(), entry.path(), entry.referer), (&b"-"[..], &b"-"[..], None));
        let line = b"h - two words [20/May/2015:21:05:00 -0700] \"\\x16\\x03\" 400 0 \"-\" \"\xff\"";
        let entry = Entry::read(line).unwrap();
        assert_eq!((entry.user, entry.target(), entry.user_agent), (&b"two words"[..], &b"-"[..], Some(&b"\xff"[..])));
        assert_eq!(entry.at.micros(), 1_432_181_100_000_000);
    }

    #[test]
    fn a_bad_line_is_told_by_its_field() {
        let wrong = [
            ("x", "ident: the line ends before it"),
            ("h - - 20/May/2015", "time: there is no ` [` before it"),
            ("h - - [20/May/2015:21:05:00 +0000", "time: the line ends in it"),
            ("h - - [20/May/2015:21:05:00 +0000] GET", "request: there is no quote before it"),
            (r#"h - - [20/May/2015:21:05:00 +0000] "GET / HT\""#, "request: the line ends in it"),
            (r#"h - - [20/May/2015:21:05:00 +0000] "GET /""#, "status: the line ends before it"),
            (r#"h - - [20/May/2015:21:05:00 +0000] "GET /" 2x0 1"#, "status `2x0` is not a number of three digits"),
            (r#"h - - [20/May/2015:21:05:00 +0000] "GET /" 200"#, "bytes: the line ends before them"),
            (r#"h - - [20/May/2015:21:05:00 +0000] "GET /" 200 -5"#, "bytes `-5` is not a whole number"),
            (r#"h - - [20/May/2015:21:05:00 +0000] "GET /" 200 5 "-" "cut o"#, "user-agent: the line ends in it"),
            (
                r#"h - - [31/Dec/1969:23:59:59 +0000] "GET /" 200 5"#,
                "time `31/Dec/1969:23:59:59 +0000`: is before 1970",
            ),
        ];
        for (line, reason) in wrong {
            assert_eq!(Entry::read(line.as_bytes()).unwrap_err(), reason);
        }
        for time in
            ["20/Mai/2015:21:05:00 +0000", "31/Feb/2015:21:05:00 +0000", "20/May/2015:25:05:00 +0000", "20/May/2015"]
        {
            let reason = Entry::read(COMMON.replace("20/May/2015:21:05:00 +0000", time).as_bytes()).unwrap_err();
            assert!(reason.starts_with(&format!("time `{time}`: ")), "{reason}");
        }
        let far = Entry::read(COMMON.replace("2015", "2999").as_bytes()).unwrap_err();
        assert!(far.ends_with("over its bound of 9007199254740991 µs"), "{far}");
    }
}
