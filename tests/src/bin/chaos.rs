//! The chaos program: breaks a cluster in every way, again and again, and checks every promise.

use std::io::Write;
use std::process::ExitCode;

use abide_tests::chaos::{self, Chaos};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let (text, code) = match chaos::run(Chaos::parse()).await {
        Ok(summary) => (summary, ExitCode::SUCCESS),
        Err(report) => (report, ExitCode::FAILURE),
    };
    // A closed pipe is no failure: the exit code is the result.
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}
