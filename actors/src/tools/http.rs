//! HTTP tools: one POST for each run, with a bounded response. See `reference/http-tools.md`.

mod reply;

use std::sync::Arc;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use super::Run;
use super::ToolReturn;
use crate::clock::Clock;
use crate::definition::Endpoint;
use crate::environment::Env;
use crate::signed_post::{PostError, SignedClient};
use crate::trace;
use reply::{Line, LineReader};

/// Calls HTTP tools.
pub(super) struct Http(SignedClient);

impl Http {
    pub(super) fn new(clock: Arc<dyn Clock>, env: Env) -> Result<Self, reqwest::Error> {
        Ok(Self(SignedClient::new("the tool", clock, env)?))
    }

    /// Calls the tool once. Every failure becomes a result, and none reveals a secret.
    pub(super) async fn call(
        &self,
        endpoint: &Endpoint,
        tool: &str,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> ToolReturn {
        match self.exchange(endpoint, tool, run, report).await {
            Ok(returned) => returned,
            Err(PostError { message, failure }) => ToolReturn::failed_attempt(message, failure),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        tool: &str,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> Result<ToolReturn, PostError> {
        let key = run.idempotency_key();
        let Run { conversation, turn, call, attempt, .. } = run;
        let trace = trace::of_attempt(conversation, turn.as_ref(), call, *attempt);
        let response = self.0.post(endpoint, tool, &key, request_body(tool, run), trace).await?;
        if response.status() == StatusCode::ACCEPTED {
            return Ok(accepted(run)?);
        }
        if [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT].contains(&response.status()) {
            return Ok(ToolReturn::ok(Value::Null));
        }
        if is_ndjson(response.headers()) {
            self.read_ndjson(response, report).await
        } else {
            Ok(reply::read_whole(&self.0.body(response).await?)?)
        }
    }

    async fn read_ndjson(
        &self,
        mut response: Response,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> Result<ToolReturn, PostError> {
        let mut lines = LineReader::default();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.0.broken(&error))? {
            lines.push(&chunk)?;
            while let Some(line) = lines.next_line()? {
                match line {
                    Line::Progress(payload) => report(payload),
                    Line::Last(returned) => return Ok(returned),
                }
            }
        }
        match lines.rest()? {
            Some(Line::Last(returned)) => Ok(returned),
            Some(Line::Progress(_)) | None => {
                Err("the tool's answer ended without a result".to_owned().into())
            }
        }
    }
}

fn request_body(tool: &str, run: &Run) -> String {
    let mut body = json!({
        "conversation_id": run.conversation.local(),
        "turn_id": run.turn,
        "call_id": run.call,
        "attempt": run.attempt,
        "tool": tool,
        "args": run.grant.args(),
        "assigns": run.assigns.merged,
        "principal": run.principal,
    });
    if !run.state.is_empty() {
        body["state"] = json!(*run.state);
    }
    if !run.approvals.is_empty() {
        body["approvals"] = json!(run.approvals);
    }
    if let Some(callback) = &run.callback {
        body["callback"] = json!(callback);
    }
    body.to_string()
}

/// The tool calls back, if it could be told where.
fn accepted(run: &Run) -> Result<ToolReturn, String> {
    if run.callback.is_some() {
        return Ok(ToolReturn::accepted());
    }
    let why = match run.turn {
        Some(_) => "--public-url is not set",
        None => "whoever dispatches a call waits for its result",
    };
    Err(format!("the tool answered 202, and was given no callback: {why}"))
}

fn is_ndjson(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-ndjson")
}

#[cfg(test)]
mod tests;
