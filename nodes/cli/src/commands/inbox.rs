//! `inbox`: what waits for somebody.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{pages, pending_line};
use crate::call_address::CallAddress;
use crate::command::InboxCommand;
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::{Printer, Tone, cell};
use crate::session::Session;
use crate::text::one_line;

const WATCH_INTERVAL: Duration = Duration::from_secs(2);
const COLUMNS: [&str; 6] = ["CALL", "KIND", "TOOL", "WAITS SINCE", "ENDS", "QUESTION"];

pub(super) async fn run(session: &Session, given: &InboxCommand) -> Result<(), CliError> {
    let printer = &session.printer;
    let page = read(session, given).await?;
    if !given.watch {
        return printer.list(&page, "pending", &COLUMNS, |call| row(printer, call));
    }
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    let mut page = Some(page);
    loop {
        let now = match page.take() {
            Some(page) => page,
            None => match read(session, given).await {
                Ok(page) => page,
                // It is looked at again soon: a node that is away comes back, or another answers.
                Err(CliError::Away(reason)) => {
                    printer.note(&format!("no node answers: {reason}"));
                    tokio::time::sleep(WATCH_INTERVAL).await;
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        known = tell_difference(printer, known, &now)?;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

async fn read(session: &Session, given: &InboxCommand) -> Result<Value, CliError> {
    pages::read(session, "pending", given.limit.limit, |bounds| {
        Request::get(Port::Public, &["v1", "pending"])
            .with("kind", given.kind.as_ref())
            .with("agent", given.agent.as_ref())
            .with("tool", given.tool.as_ref())
            .with("conversation", given.conversation.as_ref())
            .with("mine", given.mine.then_some(true))
            .with("limit", Some(bounds.rows))
            .with("cursor", bounds.cursor)
    })
    .await
}

fn row(printer: &Printer, call: &Value) -> Vec<String> {
    vec![
        CallAddress::of(call, "").short(),
        cell(&call["kind"]),
        cell(&call["tool"]),
        printer.time.show(&cell(&call["suspended_at"])),
        printer.time.show(&cell(&call["expires_at"])),
        pending_line::question(call),
    ]
}

/// Prints what is new and what is gone; returns what is there now.
fn tell_difference(
    printer: &Printer,
    known: BTreeMap<String, Value>,
    page: &Value,
) -> Result<BTreeMap<String, Value>, CliError> {
    let calls = page["pending"].as_array().into_iter().flatten();
    let now: BTreeMap<String, Value> = calls.map(|call| (key(call), call.clone())).collect();
    for call in now.iter().filter(|(key, _)| !known.contains_key(*key)).map(|(_, call)| call) {
        if !printer.is_for_people() {
            printer.json_line(call)?;
            continue;
        }
        let [kind, tool] = ["kind", "tool"].map(|name| cell(&call[name]));
        let ends = printer.time.show(&cell(&call["expires_at"]));
        let address = CallAddress::of(call, "").short();
        printer.toned_line(&format!("+ {address} {kind} of {tool}, ends {ends}"), Tone::Asking)?;
        printer.line(&format!("  {}", one_line(&pending_line::question(call), 300)))?;
    }
    for call in known.iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, call)| call) {
        if printer.is_for_people() {
            let address = CallAddress::of(call, "").short();
            printer.toned_line(&format!("- {address} waits no longer"), Tone::Dim)?;
        }
    }
    Ok(now)
}

/// A call that is suspended again is another entry.
fn key(call: &Value) -> String {
    format!("{}/{}", CallAddress::of(call, "").short(), call["suspension"])
}
