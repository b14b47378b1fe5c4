//! `export` and `import`: conversations as lines, from nodes or a store, and back.

use std::io::{BufRead, Write};

use reqwest::Method;
use serde_json::Value;

use super::conversations;
use crate::command::transfer::{ExportCommand, ImportCommand};
use crate::error::CliError;
use crate::host::Host;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

const MEDIA_TYPE: &str = "application/x-ndjson";
/// How many conversations are listed at a time.
const PAGE_ROWS: &str = "500";
/// The largest conversation; nodes accept no larger body.
const MAX_CONVERSATION_BYTES: usize = 1 << 30;

pub(super) async fn export(
    session: &Session,
    given: &ExportCommand,
    host: Host,
) -> Result<(), CliError> {
    match given {
        ExportCommand { store: Some(store), .. } => {
            let told = (host.export_store)(store.clone()).await.map_err(CliError::Failed)?;
            session.printer.note(&told);
            Ok(())
        }
        ExportCommand { conversation: Some(conversation), .. } => {
            write(session, conversation).await
        }
        ExportCommand { .. } => write_all(session).await,
    }
}

/// Writes one conversation to standard output, as it comes.
async fn write(session: &Session, conversation: &str) -> Result<(), CliError> {
    let path = conversations::path(conversation, &["export"]);
    let mut response = session.http.open_stream(&Request::get(Port::Public, &path), None).await?;
    loop {
        let part = response.chunk().await;
        let cut = |error: reqwest::Error| {
            CliError::Failed(format!("the export of {conversation} was cut off: {error}"))
        };
        let Some(part) = part.map_err(cut)? else { return Ok(std::io::stdout().lock().flush()?) };
        std::io::stdout().lock().write_all(&part)?;
    }
}

/// Writes the agents, and then each conversation as it is at that moment.
async fn write_all(session: &Session) -> Result<(), CliError> {
    write_agents(session).await?;
    let (mut cursor, mut count): (Option<String>, u64) = (None, 0);
    loop {
        let request = Request::get(Port::Public, &["v1", "conversations"]);
        // Children, too.
        let request = request.with("root_only", Some(false));
        let request = request.with("limit", Some(PAGE_ROWS)).with("cursor", cursor.as_deref());
        let page = session.http.send(&request).await?;
        for row in page["conversations"].as_array().into_iter().flatten() {
            match write(session, &cell(&row["id"])).await {
                Ok(()) => count += 1,
                // It was deleted meanwhile.
                Err(CliError::Refused(problem)) if problem.status == 404 => {}
                Err(error) => return Err(error),
            }
        }
        cursor = page["cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    session.printer.note(&format!("{count} conversations exported"));
    Ok(())
}

async fn write_agents(session: &Session) -> Result<(), CliError> {
    let list = session.http.send(&Request::get(Port::Public, &["v1", "agents"])).await?;
    for row in list["agents"].as_array().into_iter().flatten() {
        let [agent, revision] = ["name", "revision"].map(|member| cell(&row[member]));
        let definition = super::revisions::get(session, &agent, &revision).await?;
        let line = serde_json::json!({"abide": "definition", "agent": agent,
            "revision": revision, "definition": definition});
        writeln!(std::io::stdout().lock(), "{line}")?;
    }
    Ok(())
}

pub(super) async fn import(
    session: &Session,
    given: &ImportCommand,
    host: Host,
) -> Result<(), CliError> {
    if let Some(store) = &given.store {
        let told = (host.import_store)(store.clone()).await.map_err(CliError::Failed)?;
        session.printer.note(&told);
        return Ok(());
    }
    let mut conversation: Vec<u8> = Vec::new();
    let mut line = Vec::new();
    // The node counts the lines of a conversation; the first of them is this one of the input.
    let (mut number, mut first) = (0_u64, 0_u64);
    loop {
        line.clear();
        if std::io::stdin().lock().read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        if conversation.is_empty() {
            first = number;
        }
        let kind = kind(&line);
        if conversation.is_empty() && kind.as_deref() == Some("definition") {
            define(session, &line).await?;
            continue;
        }
        conversation.extend_from_slice(&line);
        if conversation.len() > MAX_CONVERSATION_BYTES {
            return Err(CliError::Failed("a conversation has more than 1 GiB".to_owned()));
        }
        if kind.as_deref() == Some("end") {
            let sent = send(session, given.keep_id, std::mem::take(&mut conversation)).await;
            sent.inspect_err(|_| tell_first_line(session, first))?;
        }
    }
    if conversation.trim_ascii().is_empty() {
        return Ok(());
    }
    // The node says which line is wrong.
    let sent = send(session, given.keep_id, conversation).await;
    sent.inspect_err(|_| tell_first_line(session, first))
}

fn tell_first_line(session: &Session, first: u64) {
    if first > 1 {
        session.printer.note(&format!("lines are counted from line {first} of the input"));
    }
}

/// What a line says that it is; `None` for an event, and for what is no line of an export.
fn kind(line: &[u8]) -> Option<String> {
    // Events are many and large: only what begins like another line is parsed.
    let head = line.get(..9)?;
    if head != b"{\"abide\":" {
        return None;
    }
    let value: Value = serde_json::from_slice(line).ok()?;
    value["abide"].as_str().map(str::to_owned)
}

async fn send(session: &Session, keep_id: bool, bytes: Vec<u8>) -> Result<(), CliError> {
    let path = ["v1", "conversations", "import"];
    let request = Request::once(Method::POST, Port::Public, &path);
    let request = request.with("keep_id", keep_id.then_some(true));
    let imported = session.http.upload(&request, MEDIA_TYPE, bytes).await?;
    session.printer.answer(&imported, || cell(&imported["id"]))
}

/// Defines an agent unless there is one of its name.
async fn define(session: &Session, line: &[u8]) -> Result<(), CliError> {
    let line: Value = serde_json::from_slice(line)
        .map_err(|error| CliError::Failed(format!("a definition is no JSON: {error}")))?;
    let agent = cell(&line["agent"]);
    let path = ["v1", "agents", agent.as_str()];
    match session.http.send(&Request::get(Port::Public, &path)).await {
        Ok(_) => return Ok(()),
        Err(CliError::Refused(problem)) if problem.status == 404 => {}
        Err(error) => return Err(error),
    }
    let request = Request::change(Method::PUT, Port::Public, &path);
    session.http.send(&request.with_body(line["definition"].clone())).await.map(drop)
}
