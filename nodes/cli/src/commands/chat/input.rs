//! Lines that somebody types, or that come from a file.

use std::io::{self, BufRead, IsTerminal};

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use tokio::signal::unix::Signal;

use crate::error::CliError;

/// What was typed.
#[derive(Debug)]
pub(super) enum Typed {
    Line(String),
    /// ^C
    Interrupt,
    /// ^D, or the end of the file.
    End,
}

/// A terminal with an editor, or lines as they come.
pub(super) enum Input {
    Terminal(Box<DefaultEditor>),
    Lines,
}

impl Input {
    pub(super) fn new() -> Result<Self, CliError> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Self::Lines);
        }
        let editor = DefaultEditor::new().map_err(|error| CliError::Failed(error.to_string()))?;
        Ok(Self::Terminal(Box::new(editor)))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The next line; the prompt is shown on a terminal only.
    pub(super) async fn line(
        &mut self,
        prompt: &str,
        interrupts: &mut Signal,
    ) -> Result<Typed, CliError> {
        match self {
            // A ^C between two prompts counts as one at the next.
            Self::Terminal(_) if was_interrupted(interrupts).await => Ok(Typed::Interrupt),
            Self::Terminal(editor) => match editor.readline(prompt) {
                Ok(line) => {
                    // The history is a convenience.
                    let _ = editor.add_history_entry(&line);
                    Ok(Typed::Line(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
                Err(ReadlineError::Eof) => Ok(Typed::End),
                Err(error) => Err(CliError::Failed(error.to_string())),
            },
            Self::Lines => {
                let line = tokio::task::spawn_blocking(|| {
                    let mut line = String::new();
                    io::stdin().lock().read_line(&mut line).map(|bytes| (bytes, line))
                });
                tokio::select! {
                    line = line => match line.map_err(io::Error::from)?? {
                        (0, _) => Ok(Typed::End),
                        (_, line) => Ok(Typed::Line(line.trim_end_matches(['\r', '\n']).to_owned())),
                    },
                    _ = interrupts.recv() => Ok(Typed::End),
                }
            }
        }
    }
}

/// Whether ^C was pressed since somebody looked last.
async fn was_interrupted(interrupts: &mut Signal) -> bool {
    tokio::select! {
        biased;
        _ = interrupts.recv() => true,
        () = std::future::ready(()) => false,
    }
}
