//! `approve`, `deny`, `answer`.

use std::io::{self, IsTerminal};

use reqwest::Method;
use serde_json::{Value, json};

use super::conversations;
use crate::call_address::CallAddress;
use crate::command::resolving::{AnswerCommand, ApproveCommand, DenyCommand, Remember};
use crate::command::time::ExtendCommand;
use crate::error::CliError;
use crate::form;
use crate::given;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

pub(super) async fn approve(session: &Session, given: &ApproveCommand) -> Result<(), CliError> {
    let mut body = json!({"approved": true});
    if let Some(args) = &given.args {
        body["args"] = given::json(args, "--args")?;
    }
    decide(session, &given.call.call, body, given.reason.as_deref(), &given.remember).await
}

pub(super) async fn deny(session: &Session, given: &DenyCommand) -> Result<(), CliError> {
    let body = json!({"approved": false});
    decide(session, &given.call.call, body, given.reason.as_deref(), &given.remember).await
}

async fn decide(
    session: &Session,
    call: &CallAddress,
    mut body: Value,
    reason: Option<&str>,
    remember: &Remember,
) -> Result<(), CliError> {
    if let Some(reason) = reason {
        body["reason"] = json!(reason);
    }
    if let Some(duration) = &remember.remember {
        body["remember"] = json!({"for": duration});
        for (name, value) in [("match", &remember.matching), ("scope", &remember.scope)] {
            if let Some(value) = value {
                body["remember"][name] = json!(value);
            }
        }
    }
    print(session, &send(session, call, body).await?)
}

pub(super) async fn answer(session: &Session, given: &AnswerCommand) -> Result<(), CliError> {
    let call = &given.call.call;
    let body = match (&given.error, &given.value) {
        (None, None) if given.retry => json!({"outcome": "retry"}),
        (Some(error), _) => json!({"error": error}),
        (None, Some(value)) => json!({"result": value_of(session, call, value).await?}),
        (None, None) if !io::stdin().is_terminal() => {
            let text = "a value is missing, and no form can be shown: give JSON, @FILE or -";
            return Err(CliError::Usage(text.to_owned()));
        }
        (None, None) => {
            let pending = pending(session, call).await?;
            let body = form::answer(&pending)?;
            // The form was that of this suspension: a later one asks for something else.
            let call = CallAddress::of(&pending, &call.conversation);
            return print(session, &send(session, &call, body).await?);
        }
    };
    print(session, &send(session, call, body).await?)
}

/// Lets a call wait longer.
pub(super) async fn extend(session: &Session, given: &ExtendCommand) -> Result<(), CliError> {
    let call = &given.call.call;
    let body = match &given.until {
        Some(until) => json!({"until": until}),
        None => json!({"for": given.duration}),
    };
    let path = conversations::path(&call.conversation, &["calls", &call.call, "extend"]);
    let request = Request::change(Method::POST, Port::Public, &path).with_body(body);
    let extended = session.http.send(&request).await?;
    let time = session.printer.time.show(&cell(&extended["expires_at"]));
    session.printer.answer(&extended, || format!("it expires {time}"))
}

/// The value as JSON; a text without quotes where the call asks for a text.
async fn value_of(session: &Session, call: &CallAddress, given: &str) -> Result<Value, CliError> {
    let text = given::text(given, "JSON")?;
    let parsed = given::parse(text.trim(), "JSON");
    let is_plain = given != "-" && !given.starts_with('@');
    if parsed.as_ref().is_ok_and(Value::is_string) || !is_plain {
        return parsed;
    }
    let asks_for_text = match pending(session, call).await {
        Ok(pending) => form::is_text(&pending["answer_schema"]),
        // Whoever may not read the conversation may still answer.
        Err(_) => false,
    };
    if asks_for_text { Ok(Value::String(text)) } else { parsed }
}

/// The call as its conversation shows it.
async fn pending(session: &Session, call: &CallAddress) -> Result<Value, CliError> {
    let path = conversations::path(&call.conversation, &[]);
    let snapshot = session.http.send(&Request::get(Port::Public, &path)).await?;
    let calls = snapshot["pending"].as_array().into_iter().flatten();
    let found = calls.into_iter().find(|pending| pending["call_id"] == call.call.as_str());
    let missing = || CliError::NotFound(format!("{} waits for nobody", call.short()));
    found.cloned().ok_or_else(missing)
}

/// Answers a call.
pub(super) async fn send(
    session: &Session,
    call: &CallAddress,
    mut body: Value,
) -> Result<Value, CliError> {
    if let Some(suspension) = call.suspension {
        body["suspension"] = json!(suspension);
    }
    let path = conversations::path(&call.conversation, &["calls", &call.call, "resolution"]);
    let request = Request::change(Method::POST, Port::Public, &path).with_body(body);
    session.http.send(&request).await
}

fn print(session: &Session, answer: &Value) -> Result<(), CliError> {
    session.printer.answer(answer, || match answer["status"].as_str() {
        Some("recorded") => {
            let [votes, needed] = ["votes", "needed"].map(|name| cell(&answer[name]));
            format!("recorded: {votes} of {needed} votes")
        }
        status => status.unwrap_or("accepted").to_owned(),
    })
}
