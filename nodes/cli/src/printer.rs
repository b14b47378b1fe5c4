//! Standard output: tables and lines for people, JSON for programs.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, TableStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::error::CliError;
use crate::options::{Options, Output};
use crate::text::{one_line, visible, visible_json};
use crate::time::TimeStyle;

/// The most characters of a cell.
const MAX_CELL_CHARS: usize = 80;
const CLOSED_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Bold,
    Good,
    Bad,
    Asking,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\u{1b}[2m",
            Self::Bold => "\u{1b}[1m",
            Self::Good => "\u{1b}[32m",
            Self::Bad => "\u{1b}[31m",
            Self::Asking => "\u{1b}[33m",
        }
    }
}

/// Prints as the options say.
pub(crate) struct Printer {
    pub output: Output,
    pub time: TimeStyle,
    is_quiet: bool,
    has_colors: bool,
    is_terminal: bool,
}

impl Printer {
    pub(crate) fn new(options: &Options) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            output: options.output,
            time: options.time,
            is_quiet: options.quiet,
            has_colors: is_terminal && !is_dumb && !is_set("NO_COLOR"),
            is_terminal,
        }
    }

    pub(crate) fn is_for_people(&self) -> bool {
        self.output == Output::Table
    }

    /// Writes text as it comes, without a line's end.
    pub(crate) fn part(&self, text: &str, tone: Tone) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(self.toned(text, tone).as_bytes())?;
        Ok(stdout.flush()?)
    }

    pub(crate) fn line(&self, text: &str) -> Result<(), CliError> {
        self.toned_line(text, Tone::Plain)
    }

    pub(crate) fn toned_line(&self, text: &str, tone: Tone) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", self.toned(text, tone))?;
        Ok(stdout.flush()?)
    }

    /// A remark on standard error.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_quiet {
            // A closed standard error changes nothing of what is done.
            let _ = writeln!(io::stderr(), "{}", visible(text));
        }
    }

    /// One line of JSON.
    pub(crate) fn json_line(&self, value: &Value) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", visible_json(&value.to_string()))?;
        Ok(stdout.flush()?)
    }

    /// A whole document.
    pub(crate) fn json(&self, value: &Value) -> Result<(), CliError> {
        if self.output == Output::Jsonl {
            return self.json_line(value);
        }
        let text = format!("{value:#}");
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", visible_json(&text))?;
        Ok(stdout.flush()?)
    }

    /// A document for programs, a text for people.
    pub(crate) fn answer(
        &self,
        value: &Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        if self.is_for_people() { self.line(&text()) } else { self.json(value) }
    }

    /// A list: a table for people, the document or a line for each of its items for programs.
    pub(crate) fn list(
        &self,
        page: &Value,
        member: &str,
        columns: &[&str],
        row: impl Fn(&Value) -> Vec<String>,
    ) -> Result<(), CliError> {
        let items = page[member].as_array().map(Vec::as_slice).unwrap_or_default();
        match self.output {
            Output::Table => self.table(columns, items.iter().map(row)),
            Output::Json => self.json(page),
            Output::Jsonl => items.iter().try_for_each(|item| self.json_line(item)),
        }
    }

    /// A table without lines; nothing but its head is printed of an empty one.
    pub(crate) fn table(
        &self,
        columns: &[&str],
        rows: impl Iterator<Item = Vec<String>>,
    ) -> Result<(), CliError> {
        let mut table = Table::new();
        table.load_style(TableStyle::new()).set_header(columns);
        if self.is_terminal {
            let (_, width) = console::Term::stdout().size();
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for row in rows {
            table.add_row(row.iter().map(|cell| one_line(cell, MAX_CELL_CHARS)));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let text: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        // Cells have been made visible above.
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", text.join("\n"))?;
        Ok(stdout.flush()?)
    }

    /// Clears the screen before what is watched is printed anew.
    pub(crate) fn clear(&self) -> Result<(), CliError> {
        if self.is_terminal {
            let mut stdout = io::stdout().lock();
            write!(stdout, "\u{1b}[H\u{1b}[2J")?;
        }
        Ok(())
    }

    fn toned(&self, text: &str, tone: Tone) -> String {
        let text = visible(text);
        if self.has_colors && tone != Tone::Plain && !text.is_empty() {
            format!("{}{text}\u{1b}[0m", tone.code())
        } else {
            text.into_owned()
        }
    }
}

/// Ends when nobody reads standard output any more, which a command that waits does not see by writing.
pub(crate) async fn closed() {
    loop {
        let stdout = io::stdout();
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        // Only a pipe or a socket ever reports that its reader has left.
        let count = poll(&mut polled, Some(&Timespec::default())).unwrap_or_default();
        if count > 0 && polled[0].revents().contains(PollFlags::ERR) {
            return;
        }
        tokio::time::sleep(CLOSED_POLL_INTERVAL).await;
    }
}

/// A member as a text: texts as they are, null as a dash, all else as JSON.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
