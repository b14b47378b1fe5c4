//! `tokens mint`: a credential for one conversation, or for some calls.

use reqwest::Method;
use serde_json::{Value, json};

use crate::call_address::CallAddress;
use crate::command::setup::{MintCommand, TokensCommand};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

pub(super) async fn run(session: &Session, given: &TokensCommand) -> Result<(), CliError> {
    let TokensCommand::Mint(given) = given;
    let subject = match &given.subject {
        Some(subject) => json!(subject),
        None => {
            let mut me = session.http.send(&Request::get(Port::Public, &["v1", "me"])).await?;
            me["subject"].take()
        }
    };
    let body = body(given, subject)?;
    // A token that is minted twice would be two.
    let request = Request::once(Method::POST, Port::Public, &["v1", "tokens"]);
    let minted = session.http.send(&request.with_body(body)).await?;
    let ends = session.printer.time.show(&cell(&minted["expires_at"]));
    if session.printer.is_for_people() {
        session.printer.note(&format!("It ends {ends}."));
    }
    session.printer.answer(&minted, || cell(&minted["token"]))
}

fn body(given: &MintCommand, subject: Value) -> Result<Value, CliError> {
    let mut body = json!({"subject": subject});
    if let Some(conversation) = &given.conversation {
        body["conversation"] = json!(conversation);
    }
    if let Some(prefix) = &given.prefix {
        body["conversation_prefix"] = json!(prefix);
    }
    if !given.call.is_empty() {
        let calls: Result<Vec<String>, CliError> = given.call.iter().map(suspension).collect();
        body["calls"] = json!(calls?);
    }
    if !given.can.is_empty() {
        let scope: Vec<&str> = given.can.iter().flat_map(|right| scopes(right)).copied().collect();
        body["scope"] = json!(scope);
    }
    for (name, value) in [("ttl", &given.ttl), ("agent", &given.agent)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    Ok(body)
}

fn suspension(call: &CallAddress) -> Result<String, CliError> {
    let missing = || CliError::Usage("--call: must be CONVERSATION/CALL/SUSPENSION".to_owned());
    let suspension = call.suspension.ok_or_else(missing)?;
    Ok(format!("{}/{suspension}", call.short()))
}

/// The scopes of a right.
fn scopes(right: &str) -> &'static [&'static str] {
    match right {
        "say" => &["send"],
        "create" => &["create"],
        "cancel" => &["cancel"],
        "answer" => &["answer:client", "answer:human"],
        "approve" => &["approve"],
        _ => &["read"],
    }
}
