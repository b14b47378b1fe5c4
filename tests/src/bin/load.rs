//! The load program: how many turns a node completes per second, and what a waiting conversation
//! costs.

use std::io::Write;
use std::process::ExitCode;

use abide_tests::load::{self, Load};
use clap::Parser;

/// The program shares the machine with what it measures and opens one connection per turn, so a
/// fast allocator keeps it from distorting the result.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let (text, code) = match load::run(Load::parse()).await {
        Ok(report) => (report, ExitCode::SUCCESS),
        Err(error) => (format!("load: {error}"), ExitCode::FAILURE),
    };
    // A closed pipe is no failure: the exit code is the result.
    let _ = if code == ExitCode::SUCCESS {
        writeln!(std::io::stdout(), "{text}")
    } else {
        writeln!(std::io::stderr(), "{text}")
    };
    code
}
