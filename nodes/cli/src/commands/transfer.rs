//! `export` and `import`: conversations as lines, from nodes or a store, and back.

use std::io::{BufRead, Write};

use reqwest::Method;
use serde_json::{Value, json};

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
/// How many of those that could not be read the last line names.
const MAX_NAMED: usize = 20;

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
            write(session, conversation).await.map_err(CliError::from)
        }
        ExportCommand { .. } => write_all(session).await,
    }
}

/// Why a conversation was not written.
enum ExportError {
    Read(CliError),
    Write(std::io::Error),
}

impl From<CliError> for ExportError {
    fn from(error: CliError) -> Self {
        Self::Read(error)
    }
}

impl From<std::io::Error> for ExportError {
    fn from(error: std::io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<ExportError> for CliError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Read(error) => error,
            ExportError::Write(error) => error.into(),
        }
    }
}

/// Writes one conversation to standard output, as it comes. Of a line that is cut off nothing is
/// written: another conversation may follow.
async fn write(session: &Session, conversation: &str) -> Result<(), ExportError> {
    let path = conversations::path(conversation, &["export"]);
    let mut response = session.http.open_stream(&Request::get(Port::Public, &path), None).await?;
    let mut line = Vec::new();
    loop {
        let part = response.chunk().await;
        let cut = |error: reqwest::Error| {
            let reason = format!("the export of {conversation} was cut off: {error}");
            ExportError::Read(CliError::Failed(reason))
        };
        let Some(part) = part.map_err(cut)? else { break };
        let Some(end) = part.iter().rposition(|byte| *byte == b'\n') else {
            line.extend_from_slice(&part);
            continue;
        };
        let (ends_lines, begins_next) = part.split_at(end + 1);
        line.extend_from_slice(ends_lines);
        std::io::stdout().lock().write_all(&line)?;
        line.clear();
        line.extend_from_slice(begins_next);
    }
    let mut output = std::io::stdout().lock();
    output.write_all(&line)?;
    Ok(output.flush()?)
}

/// Writes the agents, and then each conversation as it is at that moment. The last line says how many
/// were written, and which could not be read.
async fn write_all(session: &Session) -> Result<(), CliError> {
    write_agents(session).await?;
    let (mut cursor, mut count): (Option<String>, u64) = (None, 0);
    let mut missing = Vec::new();
    loop {
        let request = Request::get(Port::Public, &["v1", "conversations"]);
        // Children, too, each after its parent: one that is read and ends before its parent is there
        // would tell nobody.
        let request = request.with("root_only", Some(false)).with("dir", Some("asc"));
        let request = request.with("limit", Some(PAGE_ROWS)).with("cursor", cursor.as_deref());
        let page = session.http.send(&request).await?;
        for row in page["conversations"].as_array().into_iter().flatten() {
            let id = cell(&row["id"]);
            match write(session, &id).await {
                Ok(()) => count += 1,
                // It was deleted meanwhile.
                Err(ExportError::Read(CliError::Refused(it))) if it.status == 404 => {}
                Err(ExportError::Read(error)) if is_about_one(&error) => {
                    session.printer.note(&format!("{id} is missing: {error}"));
                    missing.push(id);
                }
                Err(error) => return Err(error.into()),
            }
        }
        cursor = page["cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let mut end = json!({"abide": "store_end", "conversations": count});
    if !missing.is_empty() {
        end["missing"] = json!(missing.len());
        end["missing_ids"] = json!(missing.iter().take(MAX_NAMED).collect::<Vec<_>>());
    }
    writeln!(std::io::stdout().lock(), "{end}")?;
    let told = format!("{count} conversations exported");
    if missing.is_empty() {
        session.printer.note(&told);
        return Ok(());
    }
    let missing = missing.len();
    Err(CliError::Failed(format!("{told}; {missing} could not be read, and are missing")))
}

/// Whether an error is one of a conversation, beside which others can be read.
fn is_about_one(error: &CliError) -> bool {
    match error {
        CliError::Refused(problem) => problem.status >= 500,
        CliError::Away(_) | CliError::Failed(_) => true,
        CliError::Usage(_)
        | CliError::NotFound(_)
        | CliError::Waits
        | CliError::Closed
        | CliError::CredentialEnded => false,
    }
}

async fn write_agents(session: &Session) -> Result<(), CliError> {
    let list = session.http.send(&Request::get(Port::Public, &["v1", "agents"])).await?;
    for row in list["agents"].as_array().into_iter().flatten() {
        let [agent, revision] = ["name", "revision"].map(|member| cell(&row[member]));
        let definition = super::revisions::get(session, &agent, &revision).await?;
        let line = json!({"abide": "definition", "agent": agent,
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
        let importing = (host.import_store)(store.clone(), given.durability.clone());
        let told = importing.await.map_err(CliError::Failed)?;
        session.printer.note(&told);
        return Ok(());
    }
    let mut input = Input::new(given.keep_id);
    let mut line = Vec::new();
    loop {
        line.clear();
        if std::io::stdin().lock().read_until(b'\n', &mut line)? == 0 {
            return input.finish(session).await;
        }
        input.take(session, &line).await?;
    }
}

/// The lines of an import, as far as they were read.
struct Input {
    keeps_id: bool,
    number: u64,
    /// The lines of the conversation that has not ended, of which the first one has this number:
    /// the node counts the lines of a conversation.
    conversation: Vec<u8>,
    first: u64,
    begun: u64,
    imported: u64,
    /// Whether a line was one of a whole store.
    is_store: bool,
    /// Whether the end of the store has come.
    is_whole: bool,
}

impl Input {
    fn new(keeps_id: bool) -> Self {
        Self {
            keeps_id,
            number: 0,
            conversation: Vec::new(),
            first: 0,
            begun: 0,
            imported: 0,
            is_store: false,
            is_whole: false,
        }
    }

    async fn take(&mut self, session: &Session, line: &[u8]) -> Result<(), CliError> {
        self.number += 1;
        if self.conversation.is_empty() && line.trim_ascii().is_empty() {
            return Ok(());
        }
        if self.is_whole {
            return Err(self.failed("follows the end of the store"));
        }
        let marked = marked(line);
        let (kind, names_tenant) = (marked["abide"].as_str(), marked["tenant"].is_string());
        self.begun += u64::from(kind == Some("conversation"));
        self.is_store |= names_tenant;
        let is_outside = match kind {
            Some("conversation" | "store_end") => true,
            // Within a conversation definitions name no tenant.
            Some("definition") => names_tenant,
            Some(_) | None => false,
        };
        if is_outside {
            // A conversation without its end was deleted at the source while it was written.
            self.conversation.clear();
        }
        let is_between = self.conversation.is_empty();
        match kind {
            Some("definition") if is_between => {
                self.is_store = true;
                return define(session, line).await;
            }
            Some("store_end") => return self.end_store(&marked),
            Some(_) | None => {}
        }
        if is_between {
            self.first = self.number;
        }
        self.conversation.extend_from_slice(line);
        if self.conversation.len() > MAX_CONVERSATION_BYTES {
            return Err(CliError::Failed("a conversation has more than 1 GiB".to_owned()));
        }
        if kind == Some("end") {
            self.send(session).await?;
        }
        Ok(())
    }

    /// The end of the store says how many conversations come before it.
    fn end_store(&mut self, line: &Value) -> Result<(), CliError> {
        self.is_whole = line["conversations"] == self.imported;
        if !self.is_whole {
            let rule = "conversations: is not the number of those before the end of the store";
            return Err(self.failed(rule));
        }
        match line["missing"].as_u64().filter(|missing| *missing > 0) {
            Some(missing) => Err(self.failed(&format!(
                "missing: {missing} conversations could not be read where the file was written: {}",
                ids_of(&line["missing_ids"]),
            ))),
            None => Ok(()),
        }
    }

    /// Ends the import. What was cut off between two conversations has no end, unless the input is
    /// one conversation.
    async fn finish(&mut self, session: &Session) -> Result<(), CliError> {
        if !self.conversation.is_empty() {
            // The node says which line is wrong.
            return self.send(session).await;
        }
        let is_one_conversation = (self.begun, self.imported) == (1, 1) && !self.is_store;
        if self.is_whole || is_one_conversation {
            return Ok(());
        }
        let rule =
            "is the last one, but the end of the store is missing, and so may be conversations";
        Err(self.failed(rule))
    }

    fn failed(&self, rule: &str) -> CliError {
        let Self { number, imported, .. } = self;
        CliError::Failed(format!("line {number}: {rule}\n{imported} conversations imported"))
    }

    async fn send(&mut self, session: &Session) -> Result<(), CliError> {
        let sent = send(session, self.keeps_id, std::mem::take(&mut self.conversation)).await;
        if sent.is_err() && self.first > 1 {
            let first = self.first;
            session.printer.note(&format!("lines are counted from line {first} of the input"));
        }
        self.imported += u64::from(sent.is_ok());
        sent
    }
}

fn ids_of(list: &Value) -> String {
    let ids: Vec<String> = list.as_array().into_iter().flatten().map(cell).collect();
    ids.join(", ")
}

/// A line that says what it is; null for an event, and for what is no line of an export.
fn marked(line: &[u8]) -> Value {
    // Events are many and large: only what begins like another line is parsed.
    if line.starts_with(b"{\"abide\":") {
        serde_json::from_slice(line).unwrap_or_default()
    } else {
        Value::Null
    }
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
