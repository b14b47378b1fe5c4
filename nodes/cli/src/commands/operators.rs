//! The operators' commands: nodes, actors, repairs, alarms, the audit.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::pages;
use crate::command::Limit;
use crate::command::operators::{
    ActorsCommand, AuditCommand, FailCommand, MoveCommand, NodesCommand, ReasonCommand,
    ReleaseCommand,
};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;
use crate::time::span;

const WATCH_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn nodes(session: &Session, given: &NodesCommand) -> Result<(), CliError> {
    loop {
        let request = Request::get(Port::Admin, &["admin", "nodes"]);
        let page = session.http.send(&request).await?;
        if given.watch {
            session.printer.clear()?;
        }
        let columns = ["NODE", "STATE", "ACTORS", "SILENT", "ADDRESS", "VERSION", "SINCE"];
        session.printer.list(&page, "nodes", &columns, |node| {
            let silent = format!("{} ms", cell(&node["heartbeat_age_ms"]));
            let since = session.printer.time.show(&cell(&node["since"]));
            let [name, state, actors, address, version] =
                ["name", "state", "live_actors", "address", "version"].map(|it| cell(&node[it]));
            vec![name, state, actors, silent, address, version, since]
        })?;
        if !given.watch {
            return Ok(());
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

pub(super) async fn queues(session: &Session) -> Result<(), CliError> {
    let page = session.http.send(&Request::get(Port::Admin, &["admin", "queues"])).await?;
    let columns = ["QUEUE", "WAITING", "OLDEST", "WORKERS", "LAST SEEN"];
    session.printer.list(&page, "queues", &columns, |queue| {
        let shown = |at: &Value| at.as_str().map(|at| session.printer.time.show(at));
        let [oldest, seen] =
            ["oldest", "last_seen"].map(|it| shown(&queue[it]).unwrap_or("-".to_owned()));
        let workers = queue["workers"].as_array().map_or(0, Vec::len).to_string();
        vec![cell(&queue["queue"]), cell(&queue["depth"]), oldest, workers, seen]
    })
}

pub(super) async fn drain(session: &Session, node: &str) -> Result<(), CliError> {
    session.confirm(&format!("Drain the node {node}? It takes nothing new until it restarts."))?;
    let request = Request::once(Method::POST, Port::Admin, &["admin", "nodes", node, "drain"]);
    session.http.send(&request).await?;
    session.printer.note(&format!("{node} drains: abide nodes --watch"));
    Ok(())
}

pub(super) async fn actors(session: &Session, given: &ActorsCommand) -> Result<(), CliError> {
    loop {
        let page = pages::read(session, "actors", given.limit.limit, |bounds| {
            Request::get(Port::Admin, &["admin", "actors"])
                .with("node", given.node.as_ref())
                .with("state", given.state.as_ref())
                .with("limit", Some(bounds.rows))
                .with("cursor", bounds.cursor)
        });
        let page = page.await?;
        if given.watch {
            session.printer.clear()?;
        }
        let columns = ["CONVERSATION", "NODE", "STATE", "EVENTS", "CALLS", "MAILBOX", "SINCE"];
        session.printer.list(&page, "actors", &columns, |actor| {
            let since = session.printer.time.show(&cell(&actor["since"]));
            let [id, node, state, events, calls, mailbox] =
                ["conversation_id", "node", "state", "seq", "open_calls", "mailbox_depth"]
                    .map(|name| cell(&actor[name]));
            vec![id, node, state, events, calls, mailbox, since]
        })?;
        if !given.watch {
            return Ok(());
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

pub(super) async fn move_away(session: &Session, given: &MoveCommand) -> Result<(), CliError> {
    let mut body = force(&given.release);
    if let Some(node) = &given.node {
        body["node"] = json!(node);
    }
    let moved = repair(session, &given.release.reason, "move", body).await?;
    session.printer.answer(&moved, || format!("moved to {}", cell(&moved["node"])))
}

pub(super) async fn release(session: &Session, given: &ReleaseCommand) -> Result<(), CliError> {
    let released = repair(session, &given.reason, "release", force(given)).await?;
    session.printer.answer(&released, || {
        let was_held = released["released"] == true;
        if was_held { "released" } else { "nobody held it" }.to_owned()
    })
}

pub(super) async fn kill(session: &Session, given: &ReasonCommand) -> Result<(), CliError> {
    session.confirm(&format!("Crash the actor of {}? It is revived.", given.conversation))?;
    repair(session, given, "kill", json!({})).await?;
    session.printer.note(&format!("the actor of {} crashed", given.conversation));
    Ok(())
}

pub(super) async fn retry(session: &Session, given: &ReasonCommand) -> Result<(), CliError> {
    let retried = repair(session, given, "retry", json!({})).await?;
    session.printer.answer(&retried, || {
        let texts = retried["retried"].as_array().into_iter().flatten();
        let texts: Vec<String> = texts.map(cell).collect();
        if texts.is_empty() { "there was nothing to retry".to_owned() } else { texts.join("\n") }
    })
}

pub(super) async fn fail(session: &Session, given: &FailCommand) -> Result<(), CliError> {
    let mut body = json!({});
    for (name, value) in [("error", &given.error), ("reason", &given.reason)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let call = &given.call.call;
    let path = ["admin", "actors", &call.conversation, "calls", &call.call, "fail"];
    let request = Request::change(Method::POST, Port::Admin, &path).with_body(body);
    let failed = session.http.send(&request).await?;
    session.printer.answer(&failed, || cell(&failed["status"]))
}

async fn repair(
    session: &Session,
    given: &ReasonCommand,
    verb: &str,
    mut body: Value,
) -> Result<Value, CliError> {
    if let Some(reason) = &given.reason {
        body["reason"] = json!(reason);
    }
    let path = ["admin", "actors", &given.conversation, verb];
    let request = Request::change(Method::POST, Port::Admin, &path).with_body(body);
    session.http.send(&request).await
}

fn force(given: &ReleaseCommand) -> Value {
    if given.force { json!({"force": true}) } else { json!({}) }
}

pub(super) async fn alarms(session: &Session, limit: Limit) -> Result<(), CliError> {
    let request = Request::get(Port::Admin, &["admin", "alarms"]);
    let request = request.with("limit", Some(limit.limit.min(1_000)));
    let page = session.http.send(&request).await?;
    session.printer.list(&page, "alarms", &["CONVERSATION", "DUE", "LATE"], |alarm| {
        let due = session.printer.time.show(&cell(&alarm["due_at"]));
        let late = span(alarm["lag_ms"].as_u64().unwrap_or_default() / 1_000);
        vec![cell(&alarm["conversation_id"]), due, late]
    })
}

pub(super) async fn audit(session: &Session, given: &AuditCommand) -> Result<(), CliError> {
    let mut entries: Vec<Value> = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let rows = (given.limit.limit - entries.len() as u32).min(50);
        let request = Request::get(Port::Admin, &["admin", "audit", &given.conversation]);
        let before = Some(cell(&cursor)).filter(|_| !cursor.is_null());
        let request = request.with("limit", Some(rows)).with("before", before);
        let mut page = session.http.send(&request).await?;
        if let Value::Array(more) = page["entries"].take() {
            entries.extend(more);
        }
        cursor = page["cursor"].take();
        if cursor.is_null() || entries.len() as u32 >= given.limit.limit {
            break;
        }
    }
    let page = json!({"conversation_id": given.conversation, "entries": entries, "cursor": cursor});
    let columns = ["AT", "PURPOSE", "TURN", "STEP", "ATTEMPTS", "TOOK", "CAME"];
    session.printer.list(&page, "entries", &columns, |entry| {
        let at = session.printer.time.show(&cell(&entry["at"]));
        let took = format!("{} ms", cell(&entry["whole_ms"]));
        let [purpose, turn, step, attempts, came] =
            ["purpose", "turn_id", "step", "attempts", "came"].map(|name| cell(&entry[name]));
        vec![at, purpose, turn, step, attempts, took, came]
    })
}
