//! How far a long replay has come, on a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal::tell;

/// How long a replay runs before there is a bar: a short one would only flash it.
const PATIENCE: Duration = Duration::from_millis(300);

/// A bar on standard error, if that is a terminal and the run takes its time.
pub(super) struct Progress {
    started: Instant,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `shared`: whether the results go to the same terminal while the bar would be there.
    pub(super) fn new(shared: bool) -> Self {
        let wanted = io::stderr().is_terminal() && !(shared && io::stdout().is_terminal());
        Self { started: Instant::now(), wanted, bar: None }
    }

    /// So many bytes were read, of so many if that is known.
    pub(super) fn at(&mut self, (bytes, size): (u64, Option<u64>)) {
        if self.bar.is_none() && self.wanted && self.started.elapsed() >= PATIENCE {
            self.bar = Some(bar(size));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    /// Tells something without tearing the bar.
    pub(super) fn tell(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(message)),
            None => tell(message),
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} read, {binary_bytes_per_sec}"),
    };
    // Were the template wrong, the bar would look otherwise; that is no reason to stop.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
