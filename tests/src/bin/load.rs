//! The load program: what a node does in a second, and what a waiting conversation costs.

use std::io::Write;
use std::process::ExitCode;

use abide_tests::load::{self, Load};
use clap::Parser;

/// It shares the machine with what it measures, and opens a connection a turn.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let measured = load::run(Load::parse()).await;
    let (text, code) = match measured {
        Ok(report) => (report, ExitCode::SUCCESS),
        Err(wrong) => (format!("load: {wrong}"), ExitCode::FAILURE),
    };
    // Nobody reads the report; the exit code tells.
    let _ = match code == ExitCode::SUCCESS {
        true => writeln!(std::io::stdout(), "{text}"),
        false => writeln!(std::io::stderr(), "{text}"),
    };
    code
}
