//! Parse, build, report the addresses, wait, drain.

use std::io::Write;
use std::process::ExitCode;

use abide::config::{Cli, Command, Config};
use abide::node::{self, Node, StartError};
use abide::telemetry::{self, TraceExporter};
use abide_actors::shell;
use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use tokio::signal::unix::{SignalKind, signal};

/// Conversations are many small things that come and go on all threads: glibc's allocator took a
/// fifth of the time under load.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bad configuration.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return fail(&first_words(&error), USAGE),
        // The help or the version, which was asked for.
        Err(asked) => asked.exit(),
    };
    let config = match cli.command {
        Some(Command::Openapi) => return openapi(),
        Some(Command::LaunchCommand) => return shell::launch(),
        Some(Command::ConfineCommand) => return shell::confine(),
        Some(Command::Serve(config)) => *config,
        None => cli.serve,
    };
    telemetry::log(&config, &node::name(&config));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string(), 1),
    };
    match runtime.block_on(run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(unready @ (StartError::Config(_) | StartError::Listen(..))) => {
            fail(&unready.to_string(), USAGE)
        }
        Err(unready @ StartError::Broken(_)) => fail(&unready.to_string(), 1),
    }
}

async fn run(config: Config) -> Result<(), StartError> {
    let broken = |error: std::io::Error| StartError::Broken(error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    let patience = config.drain_timeout;
    let exports = TraceExporter::start(&config, &node::name(&config))?;
    let mut node = Node::start(config, telemetry::metrics()).await?;
    let (public, admin, name) = (node.public, node.admin, &node.name);
    let cluster = node.cluster.map_or("-".to_owned(), |cluster| cluster.to_string());
    say(&format!("ready public={public} admin={admin} cluster={cluster} node={name}"));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        unready = node.live(patience) => return Err(unready),
    }
    tracing::info!(?patience, "draining");
    tokio::select! {
        drained = node.drain(patience) => tracing::info!(drained, "drained"),
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    }
    node.stop().await;
    if let Some(exports) = exports {
        exports.finish().await;
    }
    Ok(())
}

fn say(line: &str) {
    // Nobody reads standard output: the node serves all the same.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn fail(line: &str, code: u8) -> ExitCode {
    // What a server that is no Redis answers may have several lines.
    let words: Vec<&str> = line.split_whitespace().collect();
    // Nobody reads standard error either; the exit code tells.
    let _ = writeln!(std::io::stderr(), "abide: {}", words.join(" "));
    ExitCode::from(code)
}

/// What is wrong with the command line, in one line; clap adds tips and usage in more.
fn first_words(error: &clap::Error) -> String {
    let mut text = error.to_string();
    // The URL of a store may hold a password.
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.contains('@')
    {
        text = text.replace(value, "…");
    }
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

fn openapi() -> ExitCode {
    say(abide::http::openapi::text());
    ExitCode::SUCCESS
}
