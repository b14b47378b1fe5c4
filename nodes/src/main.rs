//! The program `abide`: parse, build, report the addresses, wait, drain.

use std::io::Write;
use std::process::ExitCode;

use abide::config::{Cli, Command, Generate, KeysCommand};
use abide::{AuthReloader, Config, Node, StartError, TraceExporter};
use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Conversations are many small values that are allocated and freed on all threads: glibc's allocator
/// took a fifth of the time under load; jemalloc is as fast as this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for a bad configuration.
const USAGE_EXIT_CODE: u8 = 2;

fn main() -> ExitCode {
    abide::run_launcher_if_asked();
    let arguments = abide::client_arguments(std::env::args_os().collect());
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return fail(&first_line(&error), USAGE_EXIT_CODE),
        // The help or the version, which is no error.
        Err(help) => help.exit(),
    };
    let config = match cli.command {
        Some(Command::Openapi) => return openapi(),
        Some(Command::Keys(KeysCommand::Generate(generate))) => return keys_generate(&generate),
        Some(Command::Client(client)) => return abide::run_client(*client).into(),
        Some(Command::Serve(config)) => *config,
        None => cli.serve,
    };
    abide::end_with_parent_if_asked();
    abide::start_logging(&config);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string(), 1),
    };
    let error = match runtime.block_on(run(config)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    // A read that hangs on a broken disk must not keep the process from ending.
    runtime.shutdown_background();
    match error {
        StartError::Config(_) | StartError::Listen(..) => fail(&error.to_string(), USAGE_EXIT_CODE),
        StartError::Broken(_) => fail(&error.to_string(), 1),
    }
}

async fn run(config: Config) -> Result<(), StartError> {
    let broken = |error: std::io::Error| StartError::Broken(error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    // Without a file, the signal ends the process, as it ends any.
    let hangup = config.auth.as_ref().map(|_| signal(SignalKind::hangup()));
    let hangup = hangup.transpose().map_err(broken)?;
    let drain_timeout = config.drain_timeout;
    let trace_exporter = TraceExporter::start(&config)?;
    let mut builder = Node::builder(config);
    if let Some(metrics) = abide::start_metrics() {
        builder = builder.metrics(metrics);
    }
    let mut node = builder.start().await?;
    let cluster = node.cluster.map_or("-".to_owned(), |cluster| cluster.to_string());
    let Node { public, admin, name, .. } = &node;
    print_line(&format!("ready public={public} admin={admin} cluster={cluster} node={name}"));
    let reloader = node.auth_reloader();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = reload_at_hangups(hangup, reloader) => {}
        error = node.supervise(drain_timeout) => return Err(error),
    }
    tracing::info!(?drain_timeout, "draining");
    tokio::select! {
        drained = node.drain(drain_timeout) => tracing::info!(drained, "drained"),
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    }
    node.stop().await;
    if let Some(exporter) = trace_exporter {
        exporter.finish().await;
    }
    Ok(())
}

/// Reads the file of `--auth` again whenever the process is told to (SIGHUP).
async fn reload_at_hangups(hangup: Option<Signal>, reloader: AuthReloader) {
    let Some(mut hangup) = hangup else { return std::future::pending().await };
    while hangup.recv().await.is_some() {
        reloader.reload();
    }
}

fn print_line(line: &str) {
    // A closed standard output does not keep the node from serving.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn fail(line: &str, code: u8) -> ExitCode {
    // An error that a server other than Redis answered with may have several lines.
    let words: Vec<&str> = line.split_whitespace().collect();
    // With standard error closed, too, the exit code is all that is left.
    let _ = writeln!(std::io::stderr(), "abide: {}", words.join(" "));
    ExitCode::from(code)
}

/// The first paragraph of an error of the command line, in one line; clap appends tips and usage.
fn first_line(error: &clap::Error) -> String {
    let mut text = error.to_string();
    // The URL of a store may hold a password.
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.contains('@')
    {
        text = text.replace(value, "…");
    }
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

fn keys_generate(generate: &Generate) -> ExitCode {
    match generate.run() {
        Ok(text) => print_line(&text),
        Err(reason) => return fail(&reason, 1),
    }
    ExitCode::SUCCESS
}

fn openapi() -> ExitCode {
    print_line(abide::http::openapi::text());
    ExitCode::SUCCESS
}
