//! `new`, `show`, `ls`, `cancel`, `fork`, `rm`, `messages`, `journal`.

use reqwest::Method;
use serde_json::{Value, json};

use super::expire;
use super::pages;
use super::pending_line;
use crate::command::{ForkCommand, JournalCommand, LsCommand, MessagesCommand, NewCommand};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::{Printer, Tone, cell};
use crate::session::Session;
use crate::text::one_line;

/// The path of a conversation, or of something below it.
pub(super) fn path<'a>(conversation: &'a str, below: &[&'a str]) -> Vec<&'a str> {
    ["v1", "conversations", conversation].into_iter().chain(below.iter().copied()).collect()
}

pub(super) async fn new(session: &Session, given: NewCommand) -> Result<(), CliError> {
    let mut body = json!({"agent": given.agent});
    if let Some(id) = given.conversation {
        body["id"] = json!(id);
    }
    if !given.metadata.is_empty() {
        body["metadata"] = Value::Object(given.metadata.into_iter().collect());
    }
    if let Some(expires_at) = expire::end(given.expires_at, given.expires_in)? {
        body["expires_at"] = json!(expires_at);
    }
    let path = ["v1", "conversations"];
    let request = Request::change(Method::POST, Port::Public, &path).with_body(body);
    let created = session.http.send(&request).await?;
    session.printer.answer(&created, || cell(&created["id"]))
}

pub(super) async fn show(session: &Session, conversation: &str) -> Result<(), CliError> {
    let request = Request::get(Port::Public, &path(conversation, &[]));
    let snapshot = session.http.send(&request).await?;
    let printer = &session.printer;
    if !printer.is_for_people() {
        return printer.json(&snapshot);
    }
    let holder = snapshot["holder"]["node"].as_str().unwrap_or("no node").to_owned();
    let usage = &snapshot["usage"];
    let tokens = format!(
        "{} tokens in, {} out",
        cell(&usage["input_tokens"]),
        cell(&usage["output_tokens"])
    );
    let turn = match &snapshot["turn"] {
        Value::Null => "-".to_owned(),
        turn => format!("{}, step {}", cell(&turn["id"]), cell(&turn["step"])),
    };
    let created = printer.time.show(&cell(&snapshot["created_at"]));
    let expires = match &snapshot["expires_at"] {
        Value::Null => "-".to_owned(),
        at => printer.time.show(&cell(at)),
    };
    for (name, value) in [
        ("conversation", cell(&snapshot["id"])),
        ("agent", format!("{} @ {}", cell(&snapshot["agent"]), cell(&snapshot["revision"]))),
        ("state", cell(&snapshot["state"])),
        ("turn", turn),
        ("queued", cell(&snapshot["queued"])),
        ("events", cell(&snapshot["last_seq"])),
        ("held by", holder),
        ("usage", tokens),
        ("created", created),
        ("expires", expires),
        ("metadata", cell(&snapshot["metadata"])),
    ] {
        printer.line(&format!("{name:<13} {}", one_line(&value, 300)))?;
    }
    for call in snapshot["in_flight"].as_array().into_iter().flatten() {
        let since = printer.time.show(&cell(&call["started_at"]));
        let what = [&call["call_id"], &call["tool"], &call["attempt"]].map(cell);
        let [id, tool, attempt] = what;
        printer.line(&format!("{:<13} {tool} ({id}), attempt {attempt}, {since}", "runs"))?;
    }
    for list in ["pending", "child_pending"] {
        for call in snapshot[list].as_array().into_iter().flatten() {
            pending_line::print(printer, call, conversation)?;
        }
    }
    Ok(())
}

pub(super) async fn list(session: &Session, given: &LsCommand) -> Result<(), CliError> {
    let page = pages::read(session, "conversations", given.limit.limit, |bounds| {
        let request = Request::get(Port::Public, &["v1", "conversations"])
            .with("agent", given.agent.as_ref())
            .with("state", given.state.as_ref());
        let request = given.found.ask(request);
        request.with("limit", Some(bounds.rows)).with("cursor", bounds.cursor)
    });
    let columns = ["CONVERSATION", "AGENT", "STATE", "PENDING", "TURNS", "CREATED", "ACTIVE"];
    let printer = &session.printer;
    printer.list(&page.await?, "conversations", &columns, |row| {
        let [created, active] =
            ["created_at", "active_at"].map(|name| printer.time.show(&cell(&row[name])));
        let [id, agent, state, pending, turns] =
            ["id", "agent", "state", "pending", "turns"].map(|name| cell(&row[name]));
        vec![id, agent, state, pending, turns, created, active]
    })
}

pub(super) async fn cancel(session: &Session, conversation: &str) -> Result<(), CliError> {
    let path = path(conversation, &["cancel"]);
    let cancelled = session.http.send(&Request::change(Method::POST, Port::Public, &path)).await?;
    session.printer.answer(&cancelled, || {
        let is_done = cancelled["cancelled"] == true;
        if is_done { "cancelled" } else { "there was nothing to cancel" }.to_owned()
    })
}

pub(super) async fn fork(session: &Session, given: &ForkCommand) -> Result<(), CliError> {
    let mut body = json!({});
    if let Some(seq) = given.at {
        body["at_seq"] = json!(seq);
    }
    if let Some(id) = &given.id {
        body["id"] = json!(id);
    }
    let path = path(&given.conversation, &["fork"]);
    let request = Request::change(Method::POST, Port::Public, &path).with_body(body);
    let created = session.http.send(&request).await?;
    session.printer.answer(&created, || cell(&created["id"]))
}

pub(super) async fn remove(session: &Session, conversation: &str) -> Result<(), CliError> {
    session.confirm(&format!("Delete the conversation {conversation} with its journal?"))?;
    let path = path(conversation, &[]);
    session.http.send(&Request::change(Method::DELETE, Port::Public, &path)).await?;
    session.printer.note(&format!("{conversation} is deleted"));
    Ok(())
}

pub(super) async fn messages(session: &Session, given: &MessagesCommand) -> Result<(), CliError> {
    let mut messages: Vec<Value> = Vec::new();
    let mut cursor = Value::Null;
    let mut more = true;
    while more && (messages.len() as u32) < given.limit.limit {
        let rows = (given.limit.limit - messages.len() as u32).min(1_000);
        let request = Request::get(Port::Public, &path(&given.conversation, &["messages"]));
        let request = request.with("before", cursor.as_str()).with("limit", Some(rows));
        let mut page = session.http.send(&request).await?;
        // The newest page comes first, and within a page the oldest message.
        if let Value::Array(page) = page["messages"].take() {
            messages.splice(0..0, page);
        }
        more = page["more"] == true;
        cursor = page["cursor"].take();
    }
    let page = json!({"messages": messages, "cursor": cursor, "more": more});
    let printer = &session.printer;
    if !printer.is_for_people() {
        return printer.list(&page, "messages", &[], |_| Vec::new());
    }
    if more {
        printer.note("There are older ones: --limit N");
    }
    messages.iter().try_for_each(|message| print_message(printer, message))
}

fn print_message(printer: &Printer, message: &Value) -> Result<(), CliError> {
    let role = message["role"].as_str().unwrap_or_default();
    let at = printer.time.show(&cell(&message["at"]));
    let title = match role {
        "tool" => format!("tool {}", cell(&message["tool_call_id"])),
        role => role.to_owned(),
    };
    printer.toned_line(&format!("{title} · {at}"), Tone::Dim)?;
    printer.line(&text_of(message))?;
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let line = format!("→ {} {}", cell(&call["name"]), one_line(&cell(&call["args"]), 300));
        printer.toned_line(&line, Tone::Dim)?;
    }
    printer.line("")
}

/// The text of a message; blocks without one are named.
pub(super) fn text_of(message: &Value) -> String {
    let blocks = message["content"].as_array().into_iter().flatten();
    let shown = blocks.map(|block| match (&block["text"], block["type"].as_str()) {
        (Value::String(text), _) => text.clone(),
        (_, Some("json")) => block["data"].to_string(),
        (_, kind) => format!("[{}]", kind.unwrap_or("block")),
    });
    shown.collect::<Vec<_>>().join("\n")
}

pub(super) async fn journal(session: &Session, given: &JournalCommand) -> Result<(), CliError> {
    let mut events: Vec<Value> = Vec::new();
    let mut after = given.after;
    let mut last_seq = Value::Null;
    while (events.len() as u32) < given.limit.limit {
        let rows = (given.limit.limit - events.len() as u32).min(1_000);
        let request = Request::get(Port::Public, &path(&given.conversation, &["journal"]));
        let request = request.with("after", Some(after)).with("limit", Some(rows));
        let mut page = session.http.send(&request).await?;
        last_seq = page["last_seq"].take();
        let Value::Array(page) = page["events"].take() else { break };
        let Some(seq) = page.last().and_then(|event| event["seq"].as_u64()) else { break };
        events.extend(page);
        after = seq;
        if last_seq.as_u64() == Some(seq) {
            break;
        }
    }
    let page = json!({"events": events, "last_seq": last_seq});
    let printer = &session.printer;
    if printer.is_for_people() && last_seq.as_u64().is_some_and(|last| last > after) {
        printer.note(&format!("There are more, up to {last_seq}: --after {after}"));
    }
    printer.list(&page, "events", &["SEQ", "AT", "EVENT", "DATA"], |event| {
        let at = printer.time.show(&cell(&event["at"]));
        vec![cell(&event["seq"]), at, cell(&event["type"]), cell(&event["data"])]
    })
}
