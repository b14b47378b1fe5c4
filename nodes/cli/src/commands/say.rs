//! `say`: one message, and the answer to it.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::outcome;
use super::spinner::Spinner;
use crate::command::SayCommand;
use crate::error::CliError;
use crate::given;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

/// The longest wait of one request: gateways cut longer ones. What is left is waited for by a repeat.
const MAX_REQUEST_WAIT: Duration = Duration::from_secs(50);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn run(session: &Session, given: SayCommand) -> Result<(), CliError> {
    let body = body(&given)?;
    if given.deliver_in.is_some() || given.deliver_at.is_some() {
        let sent = session.http.send(&request(&given, body, Duration::ZERO)).await?;
        return session.printer.answer(&sent, || cell(&sent["scheduled_id"]));
    }
    if given.wait.is_zero() {
        let sent = session.http.send(&request(&given, body, Duration::ZERO)).await?;
        return session.printer.answer(&sent, || cell(&sent["turn_id"]));
    }
    let answer = {
        let _spinner = Spinner::start(session, "waiting for the answer");
        wait(session, &given, body).await?
    };
    if answer["outcome"].is_null() {
        if !session.printer.is_for_people() {
            session.printer.json(&answer)?;
        }
        let turn = cell(&answer["turn_id"]);
        let still = format!("the turn {turn} still runs: abide tail {}", given.conversation);
        return Err(CliError::Failed(still));
    }
    outcome::print(session, &answer)
}

/// Sends the message until its turn has ended or rests, or the time is over. A message that is sent
/// again has the same id, so that it is the same message, also at another node.
async fn wait(session: &Session, given: &SayCommand, body: Value) -> Result<Value, CliError> {
    let begun = Instant::now();
    let mut was_sent = false;
    loop {
        let left = given.wait.saturating_sub(begun.elapsed());
        let request = request(given, body.clone(), left.min(MAX_REQUEST_WAIT)).patient(left);
        match session.http.answer(&request).await {
            Ok(answer) if answer.status == StatusCode::OK => return Ok(answer.body),
            Ok(answer) if begun.elapsed() >= given.wait => return Ok(answer.body),
            // Waited for as long as one request may, or the node could not wait.
            Ok(_) => was_sent = true,
            Err(CliError::Away(_)) if was_sent && begun.elapsed() < given.wait => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

fn request(given: &SayCommand, body: Value, wait: Duration) -> Request {
    let path = ["v1", "conversations", &given.conversation, "messages"];
    // The message's own id is what makes a repeat safe.
    Request::repeatable(Method::POST, Port::Public, &path).with_body(body).waiting(wait)
}

fn body(given: &SayCommand) -> Result<Value, CliError> {
    let text = if given.text == "-" { given::text("-", "TEXT")? } else { given.text.clone() };
    let id = given.message_id.clone().unwrap_or_else(|| format!("cli-{}", Uuid::new_v4()));
    let mut body = json!({"text": text, "message_id": id});
    if let Some(agent) = &given.agent {
        body["agent"] = json!(agent);
    }
    if let Some(if_busy) = &given.if_busy {
        body["if_busy"] = json!(if_busy);
    }
    for (name, value) in [("deliver_in", &given.deliver_in), ("deliver_at", &given.deliver_at)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    if let Some(schema) = &given.schema {
        body["schema"] = given::parse(&given::file(schema, "--schema")?, "--schema")?;
    }
    Ok(body)
}
