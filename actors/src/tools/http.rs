//! HTTP tools: one POST a run, its answer read within bounds.

mod reply;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::message::ErrorType;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};

use super::bounds::LARGEST_VALUE;
use super::native::Returned;
use super::run::{NOT_CONFIGURED, Run, Variables};
use super::tool::Endpoint;
use crate::clock::Clock;
use reply::{Line, Lines};

/// A tool's server that does not even accept within this is away.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Servers close idle connections, some after 5 s; one that is closed while a call is written to it
/// would fail that call.
const IDLE_LIMIT: Duration = Duration::from_secs(4);

/// Calls HTTP tools over one pool of connections. Follows no redirect, uses no proxy.
pub(super) struct Http {
    client: Client,
    clock: Arc<dyn Clock>,
    variables: Variables,
}

impl Http {
    pub(super) fn new(clock: Arc<dyn Clock>, variables: Variables) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .pool_idle_timeout(IDLE_LIMIT)
            .build()?;
        Ok(Self { client, clock, variables })
    }

    /// Calls the tool once. Every failure is a result; none of them shows a secret.
    pub(super) async fn call(
        &self,
        endpoint: &Endpoint,
        tool: &str,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> Returned {
        match self.exchange(endpoint, tool, run, report).await {
            Ok(returned) => returned,
            Err(message) => Returned::failed(message, ErrorType::ToolError),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        tool: &str,
        run: &Run,
        report: &(impl Fn(Value) + Send + Sync),
    ) -> Result<Returned, String> {
        let body = body(tool, run);
        let headers = self.headers(endpoint, tool, run, &body)?;
        let request = self.client.post(endpoint.url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(|error| broken(&error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(format!("the tool answered {}, a redirect", status.as_u16()));
        }
        if !status.is_success() {
            return Err(format!("the tool answered {}", status.as_u16()));
        }
        if [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT].contains(&status) {
            return Ok(Returned::ok(Value::Null));
        }
        match is_ndjson(response.headers()) {
            true => read_lines(response, report).await,
            false => reply::whole(&read_whole(response).await?),
        }
    }

    fn headers(
        &self,
        endpoint: &Endpoint,
        tool: &str,
        run: &Run,
        body: &str,
    ) -> Result<HeaderMap, String> {
        let key = format!("{}/{}", run.conversation, run.call);
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| "the call's id cannot stand in a header".to_owned())
        };
        let mut headers = endpoint.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("idempotency-key", value(&key)?);
        if let Some(variable) = &endpoint.signing_secret_env {
            // The model reads the result; the variable's name is for who runs the program.
            let unusable = |why| {
                tracing::error!(tool, variable, "a tool's signing secret {why}");
                NOT_CONFIGURED.to_owned()
            };
            let secret = (self.variables)(variable).ok_or_else(|| unusable("is not set"))?;
            let at = self.clock.now().as_second();
            let signature = Webhook::new(&secret)
                .and_then(|webhook| webhook.sign(&key, at, body.as_bytes()))
                .map_err(|_| unusable("is no webhook secret"))?;
            headers.insert(HEADER_WEBHOOK_ID, value(&key)?);
            headers.insert(HEADER_WEBHOOK_TIMESTAMP, HeaderValue::from(at));
            headers.insert(HEADER_WEBHOOK_SIGNATURE, value(&signature)?);
        }
        Ok(headers)
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

/// What broke, without the URL: it may carry a token.
fn broken(error: &reqwest::Error) -> String {
    match error.is_connect() {
        true => "no connection to the tool".to_owned(),
        false => "the connection to the tool broke".to_owned(),
    }
}

fn is_ndjson(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-ndjson")
}

async fn read_whole(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
        if body.len() + chunk.len() > LARGEST_VALUE {
            return Err(reply::TOO_LARGE.to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

async fn read_lines(
    mut response: Response,
    report: &(impl Fn(Value) + Send + Sync),
) -> Result<Returned, String> {
    let mut lines = Lines::default();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
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
        Some(Line::Progress(_)) | None => Err("the tool's answer ended without a result".into()),
    }
}

#[cfg(test)]
mod tests;
