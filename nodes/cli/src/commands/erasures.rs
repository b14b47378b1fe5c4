//! `erasures`: what a person has is deleted.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::pages;
use super::spinner::Spinner;
use crate::command::erasures::{ErasuresCommand, StartErasureCommand};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

/// How often an erasure is asked how far it has come.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn run(session: &Session, given: &ErasuresCommand) -> Result<(), CliError> {
    match given {
        ErasuresCommand::Start(it) => start(session, it).await,
        ErasuresCommand::Ls => list(session).await,
        ErasuresCommand::Show(it) => {
            let erasure = read(session, &it.id).await?;
            session.printer.json(&erasure)
        }
    }
}

async fn start(session: &Session, given: &StartErasureCommand) -> Result<(), CliError> {
    session.confirm(&format!("Erase {}, for ever?", given.owner))?;
    let request = Request::change(Method::POST, Port::Public, &["v1", "erasures"]);
    let begun = session.http.send(&request.with_body(json!({"owner": given.owner}))).await?;
    if !given.wait {
        return session.printer.answer(&begun, || cell(&begun["id"]));
    }
    let spinner = Spinner::start(session, "erasing");
    loop {
        let erasure = read(session, &cell(&begun["id"])).await?;
        if erasure["state"] == "done" {
            drop(spinner);
            return session.printer.json(&erasure);
        }
        spinner.show(&progress(&erasure));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn read(session: &Session, id: &str) -> Result<Value, CliError> {
    session.http.send(&Request::get(Port::Public, &["v1", "erasures", id])).await
}

/// How far an erasure has come, for people.
fn progress(erasure: &Value) -> String {
    let [step, deleted] = ["step", "conversations"].map(|name| cell(&erasure[name]));
    let rewritten = cell(&erasure["rewritten"]["conversations"]);
    let problem = erasure["problem"].as_str();
    let problem = problem.map(|problem| format!(" ({problem}; tried again)")).unwrap_or_default();
    format!("{step}: {deleted} deleted, {rewritten} of others rewritten{problem}")
}

async fn list(session: &Session) -> Result<(), CliError> {
    let page = pages::read(session, "erasures", u32::MAX, |bounds| {
        Request::get(Port::Public, &["v1", "erasures"])
            .with("limit", Some(bounds.rows))
            .with("cursor", bounds.cursor)
    });
    let columns = ["ERASURE", "STATE", "BEGAN", "ENDED", "DELETED", "REWRITTEN"];
    session.printer.list(&page.await?, "erasures", &columns, |it| {
        let time = |name: &str| {
            it[name].as_str().map_or("-".to_owned(), |at| session.printer.time.show(at))
        };
        vec![
            cell(&it["id"]),
            cell(&it["state"]),
            time("started_at"),
            time("ended_at"),
            cell(&it["conversations"]),
            cell(&it["rewritten"]["conversations"]),
        ]
    })
}
