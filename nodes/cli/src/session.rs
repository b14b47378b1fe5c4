//! What every command works with.

use std::io::{self, IsTerminal};

use crate::context::{self, Contexts};
use crate::error::CliError;
use crate::http::{Http, Nodes};
use crate::options::Options;
use crate::printer::Printer;
use crate::text::one_line;

/// The nodes, the output, and what was said on the command line.
pub(crate) struct Session {
    pub http: Http,
    pub printer: Printer,
    pub options: Options,
}

impl Session {
    /// Reads the contexts only if one is asked for, or if nothing else says where the nodes are.
    pub(crate) fn new(options: Options) -> Result<Self, CliError> {
        let printer = Printer::new(&options);
        let contexts = match context::path() {
            Ok(path) => Contexts::read(&path)?,
            Err(error) if options.context.is_some() => return Err(error),
            Err(_) => Contexts::default(),
        };
        let chosen = contexts.choose(options.context.as_deref())?;
        let http = Http::new(Nodes::new(&options, chosen)?, options.verbose)?;
        Ok(Self { http, printer, options })
    }

    /// Asks before something that cannot be undone; `--yes` answers.
    pub(crate) fn confirm(&self, question: &str) -> Result<(), CliError> {
        if self.options.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(CliError::Usage(format!("{question} Give --yes")));
        }
        let question = one_line(question, 300);
        match inquire::Confirm::new(&question).with_default(false).prompt() {
            Ok(true) => Ok(()),
            Ok(false) => Err(CliError::Failed("nothing was done".to_owned())),
            Err(error) => Err(CliError::Failed(error.to_string())),
        }
    }
}
