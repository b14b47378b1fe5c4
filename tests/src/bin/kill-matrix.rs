//! The kill-matrix program: breaks a turn at every await point, and prints the page of the book.

use std::io::Write;
use std::process::ExitCode;

use abide_tests::kill_matrix::{KillMatrix, matrix};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let (text, code) = match matrix(KillMatrix::parse()).await {
        Ok(page) => (page, ExitCode::SUCCESS),
        Err(broken) => (broken, ExitCode::FAILURE),
    };
    // A closed pipe is no failure: the exit code is the result.
    let _ = write!(std::io::stdout(), "{text}");
    code
}
