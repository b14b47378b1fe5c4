//! The command line of Abide: commands that ask nodes over HTTP, and know nothing else of them.

mod arguments;
mod call_address;
mod command;
mod commands;
mod context;
mod error;
mod form;
mod given;
mod host;
mod http;
mod options;
mod printer;
mod session;
mod stream;
mod text;
mod time;

use std::io::Write;

pub use arguments::{Client, rotate};
pub use command::Verb;
pub use error::Exit;
pub use host::{AgentFile, BoxedTask, ENDS_WITH_PARENT, Host};
pub use options::{Options, Output};
pub use time::TimeStyle;

use error::CliError;

/// Runs a command to its end, with errors on standard error.
pub fn run(client: Client, host: Host) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let output = client.options.output;
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(commands::run(client, host));
            // A thread that reads from the terminal keeps nobody waiting.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(CliError::from(error)),
    };
    let Err(error) = ended else { return Exit::Done };
    if error.is_told() {
        let line = match (&error, output) {
            (CliError::Refused(problem), Output::Json | Output::Jsonl) => {
                text::visible_json(&problem.body.to_string()).into_owned()
            }
            (error, _) => format!("abide: {}", text::visible(&error.to_string())),
        };
        // With standard error closed, too, the exit code is all that is left.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    error.exit()
}
