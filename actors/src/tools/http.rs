//! HTTP tools: one POST a run, its answer read within bounds.

mod reply;

use std::sync::Arc;

use abide_conversation::message::ErrorType;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use super::native::ToolReturn;
use super::runner::{Env, Run};
use super::tool::Endpoint;
use crate::clock::Clock;
use crate::signed_post::SignedClient;
use crate::trace;
use reply::{Line, Lines};

/// Calls HTTP tools.
pub(super) struct Http(SignedClient);

impl Http {
    pub(super) fn new(clock: Arc<dyn Clock>, variables: Env) -> Result<Self, reqwest::Error> {
        Ok(Self(SignedClient::new("the tool", clock, variables)?))
    }

    /// Calls the tool once. Every failure is a result; none of them shows a secret.
    pub(super) async fn call(
        &self,
        endpoint: &Endpoint,
        tool: &str,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> ToolReturn {
        match self.exchange(endpoint, tool, run, report).await {
            Ok(returned) => returned,
            Err(message) => ToolReturn::failed(message, ErrorType::ToolError),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        tool: &str,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> Result<ToolReturn, String> {
        let key = format!("{}/{}", run.conversation, run.call);
        let Run { conversation, turn, call, attempt, .. } = run;
        let trace = trace::of_attempt(conversation, turn.as_ref(), call, *attempt);
        let response = self.0.post(endpoint, tool, &key, body(tool, run), trace).await?;
        if [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT].contains(&response.status()) {
            return Ok(ToolReturn::ok(Value::Null));
        }
        match is_ndjson(response.headers()) {
            true => self.lines(response, report).await,
            false => reply::whole(&self.0.body(response).await?),
        }
    }

    async fn lines(
        &self,
        mut response: Response,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> Result<ToolReturn, String> {
        let mut lines = Lines::default();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.0.describe(&error))? {
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
                Err("the tool's answer ended without a result".into())
            }
        }
    }
}

fn body(tool: &str, run: &Run) -> String {
    json!({
        "conversation_id": run.conversation,
        "turn_id": run.turn,
        "call_id": run.call,
        "attempt": run.attempt,
        "tool": tool,
        "args": run.grant.args(),
        "assigns": run.assigns,
        "principal": run.principal,
    })
    .to_string()
}

fn is_ndjson(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-ndjson")
}

#[cfg(test)]
mod tests;
