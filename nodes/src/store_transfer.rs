//! `abide export --store` and `abide import --store`: a whole store as lines, without a node.

use std::io::{BufRead, Read, Write};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_cli::BoxedTask;
use abide_registry::store::embedded;
use abide_registry::transfer::{
    Exported, ImportCounts, ImportError, MAX_LINE_BYTES, StoreImport, export_store,
};
use clap::Parser;
use tokio::sync::mpsc;

use crate::clock::SystemClock;
use crate::config::{Cli, Config, StoreCompression, StoreUrl};
use crate::node::{open_store, open_store_to_read};

/// How many lines wait to be written.
const MAX_WAITING_LINES: usize = 4;

/// Writes the whole store to standard output. Says what was done. It writes nothing into the store, so
/// that no server has to promise anything.
pub(crate) fn export(url: String) -> BoxedTask {
    Box::pin(async move {
        let url = parse(&url)?;
        if let StoreUrl::Embedded(dir) = &url
            && !embedded::exists(dir)
        {
            return Err(format!("--store: there is no store in {}", dir.display()));
        }
        let store = open_store_to_read(&config(url)?).await.map_err(|error| error.to_string())?;
        let (sender, mut lines) = mpsc::channel(MAX_WAITING_LINES);
        let export = tokio::spawn(async move { export_store(&*store, &sender).await });
        while let Some(line) = lines.recv().await {
            let written = std::io::stdout().lock().write_all(&line);
            written.map_err(|error| error.to_string())?;
        }
        let exported = export.await.map_err(|error| error.to_string())?;
        let Exported { conversations, missing, missing_ids } =
            exported.map_err(|error| error.to_string())?;
        std::io::stdout().lock().flush().map_err(|error| error.to_string())?;
        let told = format!("{conversations} conversations exported");
        if missing == 0 {
            return Ok(told);
        }
        let ids = missing_ids.join(", ");
        Err(format!("{told}; {missing} could not be read, and are missing: {ids}"))
    })
}

/// Reads a whole store from standard input. Says what was done.
pub(crate) fn import(url: String, durability: Option<String>) -> BoxedTask {
    Box::pin(async move {
        let mut config = config(parse(&url)?)?;
        if let Some(durability) = durability {
            let parsed = durability.parse();
            config.durability = parsed.map_err(|error: String| format!("--durability: {error}"))?;
        }
        let store = open_store(&config).await.map_err(|error| error.to_string())?;
        let clock = SystemClock;
        let me = Holder {
            node: NodeName::new("import"),
            incarnation: Incarnation::new(abide_actors::clock::Clock::id(&clock, "inc")),
        };
        let mut import =
            StoreImport::new(store, me, || abide_actors::clock::Clock::now(&SystemClock));
        let mut number = 0_u64;
        loop {
            // The store's own tasks go on while the input is awaited.
            let read = tokio::task::spawn_blocking(read_line).await;
            let read = read.map_err(|error| error.to_string())?;
            let Some(line) = read.map_err(|error| error.to_string())? else { break };
            number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            if let Err(error) = import.take(&line).await {
                return Err(refusal(number, &error, import.counts()));
            }
        }
        match import.finish().await {
            Ok(()) => Ok(summary(import.counts())),
            Err(error) => Err(refusal(number, &error, import.counts())),
        }
    })
}

/// Why an import went no further, and what was done before that.
fn refusal(line: u64, error: &ImportError, counts: &ImportCounts) -> String {
    format!("line {line}: {error}\n{}", summary(counts))
}

/// What was done, in one line.
fn summary(counts: &ImportCounts) -> String {
    let ImportCounts { imported, skipped, shorter, cut_off } = counts;
    let mut line = format!("{imported} conversations imported, {skipped} were there already");
    for (what, ids) in [
        ("with fewer events (delete them and repeat)", shorter),
        (
            "left out, since they were deleted while they were exported, or could not be read",
            cut_off,
        ),
    ] {
        if !ids.is_empty() {
            let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
            line = format!("{line}; {what}: {}", names.join(", "));
        }
    }
    line
}

/// The next line of standard input; `None` at its end.
fn read_line() -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limit = MAX_LINE_BYTES as u64 + 1;
    std::io::stdin().lock().take(limit).read_until(b'\n', &mut line)?;
    if line.len() as u64 >= limit {
        return Err(std::io::Error::other(format!("a line is longer than {MAX_LINE_BYTES} bytes")));
    }
    Ok((!line.is_empty()).then_some(line))
}

fn parse(url: &str) -> Result<StoreUrl, String> {
    match url.parse().map_err(|error| format!("--store: {error}"))? {
        StoreUrl::Memory => {
            Err("--store: a store in memory is another one in each process".to_owned())
        }
        url @ (StoreUrl::Embedded(_) | StoreUrl::Redis(_)) => Ok(url),
    }
}

/// The certificates and the keys of the store are those of the environment, as for a node.
fn config(store: StoreUrl) -> Result<Config, String> {
    let Cli { mut serve, .. } =
        Cli::try_parse_from(["abide"]).map_err(|error| error.to_string())?;
    if let StoreUrl::Embedded(_) = store {
        // The environment may be that of nodes over Redis.
        serve.store_compression = StoreCompression::None;
    }
    Ok(Config { store, ..serve })
}
