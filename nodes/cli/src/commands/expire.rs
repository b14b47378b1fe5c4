//! `expire`, and the end that `new` gives a conversation.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use super::conversations::path;
use crate::command::time::ExpireCommand;
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

pub(super) async fn run(session: &Session, given: &ExpireCommand) -> Result<(), CliError> {
    let expires_at = end(given.end.at.clone(), given.end.after)?;
    let path = path(&given.conversation, &[]);
    let request = Request::change(Method::PATCH, Port::Public, &path);
    let request = request.with_body(json!({"expires_at": expires_at}));
    let snapshot = session.http.send(&request).await?;
    session.printer.answer(&snapshot, || match &snapshot["expires_at"] {
        Value::Null => "it is kept".to_owned(),
        at => format!("it is deleted {}", session.printer.time.show(&cell(at))),
    })
}

/// The end that is given as a time, which the node judges, or as a duration from now.
pub(super) fn end(at: Option<String>, after: Option<Duration>) -> Result<Option<String>, CliError> {
    let Some(after) = after else { return Ok(at) };
    let end = SignedDuration::try_from(after).ok();
    let end = end.and_then(|after| Timestamp::now().checked_add(after).ok());
    let too_far = || CliError::Usage("the end is too far ahead".to_owned());
    end.map(|end| Some(end.to_string())).ok_or_else(too_far)
}
