//! The chaos program: what becomes of the promises when everything breaks, again and again.

use std::io::Write;
use std::process::ExitCode;

use abide_tests::chaos::{self, Chaos};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let (text, code) = match chaos::run(Chaos::parse()).await {
        Ok(numbers) => (numbers, ExitCode::SUCCESS),
        Err(story) => (story, ExitCode::FAILURE),
    };
    // Nobody reads it; the exit code tells.
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}
