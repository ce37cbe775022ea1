//! What the drawn pictures share: their file, lengths, and text that can be no markup.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// A picture's file, opened before the run so that a wrong path is no surprise at its end. What is in it stays until then.
pub(crate) struct Picture {
    path: PathBuf,
    file: File,
}

impl Picture {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn draw(self, draw: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
        let Self { path, file } = self;
        let drawn = file.set_len(0).and_then(|()| {
            let mut out = BufWriter::new(file);
            draw(&mut out)?;
            out.flush()
        });
        drawn.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))
    }
}

/// A length in tenths of a pixel.
pub(crate) struct Px(pub(crate) u64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}", self.0 / 10),
            tenths => write!(f, "{}.{tenths}", self.0 / 10),
        }
    }
}

/// Somebody else's text in XML.
pub(crate) struct Xml<'a>(pub(crate) &'a str);

impl fmt::Display for Xml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                // XML has no way to write these.
                '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => f.write_str("\u{fffd}")?,
                _ => write!(f, "{character}")?,
            }
        }
        Ok(())
    }
}
