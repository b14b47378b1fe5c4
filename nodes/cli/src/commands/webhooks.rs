//! `webhooks`: who is told of what happens.

use reqwest::Method;
use serde_json::{Value, json};

use super::pages;
use crate::command::webhooks::{DeliveriesCommand, PutWebhookCommand, WebhooksCommand};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

/// The most rows of one page of deliveries.
const MAX_PAGE_ROWS: u32 = 100;

pub(super) async fn run(session: &Session, given: &WebhooksCommand) -> Result<(), CliError> {
    match given {
        WebhooksCommand::Ls => list(session).await,
        WebhooksCommand::Show(it) => {
            let request = Request::get(Port::Public, &path(&it.name, &[]));
            session.printer.json(&session.http.send(&request).await?)
        }
        WebhooksCommand::Put(it) => put(session, it).await,
        WebhooksCommand::Test(it) => {
            let told = post(session, &it.name, &["test"]).await?;
            session.printer.answer(&told, || match told["error"].as_str() {
                Some(error) => format!("not delivered: {error}"),
                None => "delivered".to_owned(),
            })
        }
        WebhooksCommand::Rotate(it) => {
            let rotated = post(session, &it.name, &["rotate"]).await?;
            session.printer.answer(&rotated, || cell(&rotated["secret"]))
        }
        WebhooksCommand::Deliveries(it) => deliveries(session, it).await,
        WebhooksCommand::Redeliver(it) => {
            let sent = post(session, &it.name, &["deliveries", &it.notice, "redeliver"]).await?;
            session.printer.answer(&sent, || cell(&sent["id"]))
        }
        WebhooksCommand::Rm(it) => {
            session.confirm(&format!("Delete the webhook {}, and what it is owed?", it.name))?;
            let request = Request::once(Method::DELETE, Port::Public, &path(&it.name, &[]));
            session.http.send(&request).await.map(|_| ())
        }
    }
}

fn path<'a>(name: &'a str, below: &[&'a str]) -> Vec<&'a str> {
    ["v1", "webhooks", name].into_iter().chain(below.iter().copied()).collect()
}

async fn list(session: &Session) -> Result<(), CliError> {
    let page = session.http.send(&Request::get(Port::Public, &["v1", "webhooks"])).await?;
    let columns = ["WEBHOOK", "STATE", "EVENTS", "URL"];
    session.printer.list(&page, "webhooks", &columns, |it| {
        let events = match it["events"].as_array() {
            Some(events) => events.iter().map(cell).collect::<Vec<_>>().join(","),
            None => cell(&it["events"]),
        };
        vec![cell(&it["name"]), cell(&it["state"]), events, cell(&it["url"])]
    })
}

async fn put(session: &Session, given: &PutWebhookCommand) -> Result<(), CliError> {
    let events = if given.events.is_empty() { json!("all") } else { json!(given.events) };
    let mut body = json!({"url": given.target, "events": events});
    if !given.agents.is_empty() {
        body["agents"] = json!(given.agents);
    }
    if given.links {
        body["links"] = json!(true);
    }
    if let Some(variable) = &given.secret_env {
        body["secret_env"] = json!(variable);
    }
    // A secret is shown once: a repeat would not show it.
    let request = Request::once(Method::PUT, Port::Public, &path(&given.name, &[]));
    let stored = session.http.send(&request.with_body(body)).await?;
    session.printer.answer(&stored, || match stored["secret"].as_str() {
        Some(secret) => secret.to_owned(),
        None => "changed".to_owned(),
    })
}

async fn deliveries(session: &Session, given: &DeliveriesCommand) -> Result<(), CliError> {
    let state = if given.dead { "dead" } else { "owed" };
    let page = pages::read(session, "deliveries", given.limit.limit, |bounds| {
        Request::get(Port::Public, &path(&given.name, &["deliveries"]))
            .with("state", Some(state))
            .with("limit", Some(bounds.rows.min(MAX_PAGE_ROWS)))
            .with("cursor", bounds.cursor)
    });
    let columns = ["NOTICE", "TYPE", "ATTEMPTS", "NEXT", "LAST ERROR"];
    session.printer.list(&page.await?, "deliveries", &columns, |it| {
        let next = it["next_attempt_at"].as_str();
        let next = next.map_or("-".to_owned(), |at| session.printer.time.show(at));
        let [id, kind, attempts, error] =
            ["id", "type", "attempts", "last_error"].map(|name| cell(&it[name]));
        vec![id, kind, attempts, next, error]
    })
}

async fn post(session: &Session, name: &str, below: &[&str]) -> Result<Value, CliError> {
    let request = Request::once(Method::POST, Port::Public, &path(name, below));
    session.http.send(&request).await
}
