//! Shows on a terminal that something is waited for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::session::Session;

const TICK_INTERVAL: Duration = Duration::from_millis(120);

/// Turns on standard error until it is dropped; nothing is shown where nobody looks.
pub(super) struct Spinner(ProgressBar);

impl Spinner {
    pub(super) fn start(session: &Session, text: &str) -> Self {
        let is_shown = !session.options.quiet && io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(text.to_owned());
        if is_shown {
            bar.enable_steady_tick(TICK_INTERVAL);
        }
        Self(bar)
    }

    /// Shows another text.
    pub(super) fn show(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
