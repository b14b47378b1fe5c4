//! `completion` and `man`: what clap makes of the command line.

use std::fs;
use std::io::{self, Write};

use crate::command::setup::{CompletionCommand, ManCommand};
use crate::error::CliError;
use crate::host::Host;

const PROGRAM: &str = "abide";

pub(super) fn script(given: &CompletionCommand, host: Host) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(given.shell, &mut (host.command_line)(), PROGRAM, &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

pub(super) fn manual(given: &ManCommand, host: Host) -> Result<(), CliError> {
    let command = (host.command_line)();
    match &given.dir {
        Some(directory) => {
            fs::create_dir_all(directory)?;
            Ok(clap_mangen::generate_to(command, directory)?)
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            Ok(io::stdout().lock().write_all(&page)?)
        }
    }
}
