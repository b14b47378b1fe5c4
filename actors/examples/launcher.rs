//! A program that is nothing but a launcher, for tests of this crate that run programs.

use std::env;
use std::process::ExitCode;

use abide_actors::exec::requested_stage;

fn main() -> ExitCode {
    requested_stage(env::args_os()).map_or(ExitCode::FAILURE, |stage| stage())
}
