//! The input, line by line, in memory that does not grow with it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::exit::Failure;

/// The longest line that is read, in bytes. A longer one is skipped and reported.
pub(super) const MAX_LINE: usize = 1 << 20;
/// What is read at once, in bytes.
const CHUNK: usize = 1 << 16;
/// Some editors write this before the first line: the byte order mark in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A trace that is being read.
pub(super) struct Lines {
    input: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
    /// The input's size in bytes, where it is known.
    size: Option<u64>,
}

/// One line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Its number in the input, from 1.
    pub(super) number: u64,
    /// What it holds, without its end; None if that is over [`MAX_LINE`].
    pub(super) text: Option<&'a [u8]>,
}

impl Lines {
    /// The lines of a file, or of standard input for `-`.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self::new(Box::new(io::stdin().lock()), None));
        }
        let unusable = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(|error| unusable(&error))?;
        let metadata = file.metadata().map_err(|error| unusable(&error))?;
        if metadata.is_dir() {
            return Err(unusable(&"is a directory"));
        }
        // A pipe or a device has a length of 0 that says nothing.
        let size = metadata.is_file().then_some(metadata.len());
        Ok(Self::new(Box::new(file), size))
    }

    pub(super) fn new(input: Box<dyn Read>, size: Option<u64>) -> Self {
        Self { input: BufReader::with_capacity(CHUNK, input), line: Vec::new(), number: 0, bytes: 0, size }
    }

    /// The next line that is not blank. It may end in LF, CR LF or, the last one, in nothing.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.line.clear();
            // One more than a line and its end may have: that tells a line that is too long.
            let most = MAX_LINE + 3;
            let read =
                self.input.by_ref().take(u64::try_from(most).unwrap_or(u64::MAX)).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.bytes += u64::try_from(read).unwrap_or(u64::MAX);
            let unfinished = read == most && !self.line.ends_with(b"\n");
            if unfinished {
                self.bytes += u64::try_from(self.input.skip_until(b'\n')?).unwrap_or(u64::MAX);
            }
            let start =
                if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            let end = without_end(&self.line).len().max(start);
            let blank = self.line.get(start..end).unwrap_or_default().trim_ascii().is_empty();
            if !blank || unfinished {
                let text = self.line.get(start..end).filter(|text| !unfinished && text.len() <= MAX_LINE);
                return Ok(Some(Line { number: self.number, text }));
            }
        }
    }

    /// Whether the next line is there already, so that asking for it waits for nobody.
    pub(super) fn is_ready(&self) -> bool {
        self.input.buffer().contains(&b'\n')
    }

    /// How many bytes were read, and how many there are if that is known.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        (self.bytes, self.size)
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::{Lines, MAX_LINE};

    fn read(input: Vec<u8>) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = Lines::new(Box::new(std::io::Cursor::new(input)), None);
        let mut read = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            read.push((line.number, line.text.map(<[u8]>::to_vec)));
        }
        read
    }

    #[test]
    fn a_line_may_end_in_any_usual_way() {
        let expected = vec![(1, Some(b"a".to_vec())), (2, Some(b"b \xff".to_vec())), (5, Some(b"c\rd".to_vec()))];
        assert_eq!(read(b"\xef\xbb\xbfa\r\nb \xff\n \n\r\nc\rd".to_vec()), expected);
        assert_eq!(read(b"\xef\xbb\xbf".to_vec()), []);
        assert_eq!(read(b"\xef\xbb\xbf\n".to_vec()), []);
    }

    #[test]
    fn a_line_over_the_bound_is_skipped_and_counted() {
        for (length, fits) in [(MAX_LINE, true), (MAX_LINE + 1, false), (MAX_LINE + 3, false), (3 * MAX_LINE, false)] {
            for end in ["", "\n", "\r\n"] {
                let mut input = vec![b'x'; length];
                input.extend_from_slice(end.as_bytes());
                input.extend_from_slice(if end.is_empty() { b"" } else { b"next" });
                let lines = read(input);
                assert_eq!(lines[0].1.is_some(), fits, "{length} {end:?}");
                assert_eq!(
                    lines.get(1).is_some_and(|line| line.0 == 2 && line.1.as_deref() == Some(b"next")),
                    !end.is_empty()
                );
            }
        }
    }
}
