//! `schedules`: messages that come at set times.

use reqwest::Method;
use serde_json::{Value, json};

use super::pages;
use crate::command::time::{PutScheduleCommand, SchedulesCommand};
use crate::error::CliError;
use crate::given;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

pub(super) async fn run(session: &Session, given: &SchedulesCommand) -> Result<(), CliError> {
    match given {
        SchedulesCommand::Ls => list(session).await,
        SchedulesCommand::Show(it) => {
            let request = Request::get(Port::Public, &path(&it.name, &[]));
            session.printer.json(&session.http.send(&request).await?)
        }
        SchedulesCommand::Put(it) => put(session, it).await,
        SchedulesCommand::Trigger(it) => {
            let sent = post(session, &it.name, "trigger").await?;
            session.printer.answer(&sent, || cell(&sent["conversation_id"]))
        }
        SchedulesCommand::Pause(it) => change(session, &it.name, "pause").await,
        SchedulesCommand::Resume(it) => change(session, &it.name, "resume").await,
        SchedulesCommand::Rm(it) => {
            session.confirm(&format!("Delete the schedule {}?", it.name))?;
            let request = Request::change(Method::DELETE, Port::Public, &path(&it.name, &[]));
            session.http.send(&request).await.map(|_| ())
        }
    }
}

fn path<'a>(name: &'a str, below: &[&'a str]) -> Vec<&'a str> {
    ["v1", "schedules", name].into_iter().chain(below.iter().copied()).collect()
}

async fn list(session: &Session) -> Result<(), CliError> {
    let page = pages::read(session, "schedules", u32::MAX, |bounds| {
        Request::get(Port::Public, &["v1", "schedules"])
            .with("limit", Some(bounds.rows))
            .with("cursor", bounds.cursor)
    });
    let columns = ["SCHEDULE", "AGENT", "WHEN", "NEXT", "LAST"];
    session.printer.list(&page.await?, "schedules", &columns, |it| {
        let time = &session.printer.time;
        let next = match (&it["paused"], it["next_at"].as_str()) {
            (Value::Bool(true), _) => "paused".to_owned(),
            (_, Some(at)) => time.show(at),
            (_, None) => "ended".to_owned(),
        };
        let last = it["last"]["at"].as_str().map_or("-".to_owned(), |at| time.show(at));
        vec![cell(&it["name"]), cell(&it["agent"]), rhythm(it), next, last]
    })
}

fn rhythm(schedule: &Value) -> String {
    match schedule["cron"].as_str() {
        Some(cron) => format!("{cron} {}", schedule["timezone"].as_str().unwrap_or("UTC")),
        None => format!("every {}", cell(&schedule["every"])),
    }
}

async fn put(session: &Session, given: &PutScheduleCommand) -> Result<(), CliError> {
    let text = if given.text == "-" { given::text("-", "TEXT")? } else { given.text.clone() };
    let mut body = json!({"agent": given.agent, "text": text});
    for (name, value) in [
        ("cron", &given.cron),
        ("every", &given.every),
        ("timezone", &given.timezone),
        ("conversation", &given.conversation),
        ("missed", &given.missed),
        ("start", &given.start),
        ("until", &given.until),
    ] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    if given.paused {
        body["paused"] = json!(true);
    }
    let request = Request::change(Method::PUT, Port::Public, &path(&given.name, &[]));
    print(session, &session.http.send(&request.with_body(body)).await?)
}

async fn change(session: &Session, name: &str, verb: &str) -> Result<(), CliError> {
    print(session, &post(session, name, verb).await?)
}

async fn post(session: &Session, name: &str, verb: &str) -> Result<Value, CliError> {
    let request = Request::change(Method::POST, Port::Public, &path(name, &[verb]));
    session.http.send(&request).await
}

/// A schedule that was changed: for people, when it sends next.
fn print(session: &Session, schedule: &Value) -> Result<(), CliError> {
    session.printer.answer(schedule, || match schedule["next_at"].as_str() {
        Some(at) => format!("next {}", session.printer.time.show(at)),
        None => "it sends nothing".to_owned(),
    })
}
