//! Signed POST requests to the servers of HTTP tools and HTTP hooks (`reference/http-tools.md`).

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};

use crate::attempt_failure::{Failure, FailureKind};
use crate::clock::Clock;
use crate::definition::Endpoint;
use crate::environment::Env;
use crate::limits::{MAX_VALUE_BYTES, cut};
use crate::model::http::error::retry_after;
use crate::outbound::{ClientPair, Route, is_blocked};

/// A server that does not accept a connection within this time is down.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Servers close idle connections, some after 5 s. A call that is written to a connection while it
/// is closed would fail.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// What the model is told of the body of an answer that is no success.
const MAX_DETAIL_BYTES: usize = 2_000;

/// Why a request has no response.
pub(crate) struct PostError {
    pub(crate) message: String,
    /// Set if another attempt may succeed.
    pub(crate) failure: Option<Failure>,
}

impl From<PostError> for String {
    fn from(error: PostError) -> Self {
        error.message
    }
}

impl From<String> for PostError {
    fn from(message: String) -> Self {
        Self { message, failure: None }
    }
}

/// Posts JSON over one pool of connections. Follows no redirects, uses no proxy.
///
/// Every error is a message that shows neither a secret nor a URL.
pub(crate) struct SignedClient {
    /// The name of the recipient in those messages.
    recipient: &'static str,
    clients: ClientPair,
    clock: Arc<dyn Clock>,
    variables: Env,
}

impl SignedClient {
    pub(crate) fn new(
        recipient: &'static str,
        clock: Arc<dyn Clock>,
        variables: Env,
    ) -> Result<Self, reqwest::Error> {
        let clients = ClientPair::build(|| {
            Client::builder()
                .redirect(Policy::none())
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
        })?;
        Ok(Self { recipient, clients, clock, variables })
    }

    /// Posts once, under `key`. A response is returned only with a 2xx status. `name` is for the
    /// log, and `trace` is the `traceparent` header.
    pub(crate) async fn post(
        &self,
        endpoint: &Endpoint,
        name: &str,
        key: &str,
        body: String,
        trace: Option<String>,
    ) -> Result<Response, PostError> {
        let route = self.route(endpoint, name)?;
        let mut headers = self.headers(endpoint, name, key, &body)?;
        if let Some(trace) = trace.and_then(|trace| HeaderValue::try_from(trace).ok()) {
            headers.insert("traceparent", trace);
        }
        let request =
            self.clients.get(route).post(endpoint.url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        let recipient = self.recipient;
        if status.is_redirection() {
            return Err(format!("{recipient} answered {}, a redirect", status.as_u16()).into());
        }
        if !status.is_success() {
            return Err(self.refusal(response).await);
        }
        Ok(response)
    }

    /// The error of an answer with another status, with what its body says.
    async fn refusal(&self, response: Response) -> PostError {
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
        let retry_after = header.and_then(|header| retry_after(header, self.clock.now()));
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => Some(FailureKind::TooManyRequests),
            status if status.is_server_error() => Some(FailureKind::ServerError),
            _ => None,
        };
        let detail = detail(&beginning(response).await);
        let colon = if detail.is_empty() { "" } else { ": " };
        let message = format!("{} answered {}{colon}{detail}", self.recipient, status.as_u16());
        PostError { message, failure: kind.map(|kind| Failure { kind, retry_after }) }
    }

    /// The error of a request that was not answered, or not to its end.
    pub(crate) fn broken(&self, error: &reqwest::Error) -> PostError {
        let failure = match (is_blocked(error), error.is_connect()) {
            (true, _) => None,
            (false, true) => Some(FailureKind::NoConnection.into()),
            (false, false) => Some(FailureKind::ConnectionBroke.into()),
        };
        PostError { message: self.describe(error), failure }
    }

    /// Reads the whole body, of at most 1 MB.
    pub(crate) async fn body(&self, mut response: Response) -> Result<Vec<u8>, PostError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if body.len() + chunk.len() > MAX_VALUE_BYTES {
                return Err(format!("{}'s answer is larger than 1 MB", self.recipient).into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Describes an error without the URL, which may carry a token.
    pub(crate) fn describe(&self, error: &reqwest::Error) -> String {
        if is_blocked(error) {
            format!("the host of {} has an address that is not public", self.recipient)
        } else if error.is_connect() {
            format!("no connection to {}", self.recipient)
        } else {
            format!("the connection to {} broke", self.recipient)
        }
    }

    /// The route to the server, if the tenant's rules permit the server and its variables now. The
    /// model may read the message that this returns otherwise; the names are for the operator only.
    fn route(&self, endpoint: &Endpoint, name: &str) -> Result<Route, String> {
        let variables = endpoint.outbound.check_variables(endpoint.variables());
        let route = variables.and_then(|()| endpoint.outbound.route(&endpoint.url));
        route.map_err(|error| {
            let recipient = self.recipient;
            tracing::error!(name, recipient, %error, "outbound request refused");
            format!("{recipient} may not be called: {}", error.reason())
        })
    }

    fn headers(
        &self,
        endpoint: &Endpoint,
        name: &str,
        key: &str,
        body: &str,
    ) -> Result<HeaderMap, String> {
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| "the call's id is not valid in a header".to_owned())
        };
        let mut headers = endpoint.headers.clone();
        for (header, variable) in &endpoint.secret_headers {
            headers.insert(header, self.secret_header(name, variable)?);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("idempotency-key", value(key)?);
        if let Some(variable) = &endpoint.signing_secret_env {
            let unusable = |why| self.unusable(name, variable, why);
            let secret = (self.variables)(variable).ok_or_else(|| unusable("is not set"))?;
            let at = self.clock.now().as_second();
            let signature = Webhook::new(&secret)
                .and_then(|webhook| webhook.sign(key, at, body.as_bytes()))
                .map_err(|_| unusable("is not a webhook secret"))?;
            headers.insert(HEADER_WEBHOOK_ID, value(key)?);
            headers.insert(HEADER_WEBHOOK_TIMESTAMP, HeaderValue::from(at));
            headers.insert(HEADER_WEBHOOK_SIGNATURE, value(&signature)?);
        }
        Ok(headers)
    }

    /// The value of a header from its variable, marked so that it is never logged.
    fn secret_header(&self, name: &str, variable: &str) -> Result<HeaderValue, String> {
        let unusable = |why| self.unusable(name, variable, why);
        let value = (self.variables)(variable).ok_or_else(|| unusable("is not set"))?;
        let value = HeaderValue::from_str(&value);
        let mut value = value.map_err(|_| unusable("does not fit into a header"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Logs why a secret cannot be used. The model may read the message that this returns; the
    /// variable's name is for the operator only.
    fn unusable(&self, name: &str, variable: &str, why: &str) -> String {
        let recipient = self.recipient;
        tracing::error!(name, variable, recipient, why, "secret unusable");
        format!("{recipient} is not configured")
    }
}

/// The beginning of a body: enough for an error, and no more, whatever the server sends.
async fn beginning(mut response: Response) -> Vec<u8> {
    let mut beginning = Vec::new();
    while beginning.len() <= 2 * MAX_DETAIL_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        let room = (2 * MAX_DETAIL_BYTES + 1).saturating_sub(beginning.len());
        beginning.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    beginning
}

/// What a body says of an error: its `error`, or its text.
fn detail(body: &[u8]) -> String {
    let error = serde_json::from_slice(body).ok().and_then(|value: Value| match value {
        Value::Object(mut object) => object.remove("error").filter(|error| !error.is_null()),
        _ => None,
    });
    let text = match error {
        Some(Value::String(text)) => text,
        Some(error) => error.to_string(),
        None => String::from_utf8_lossy(body).into_owned(),
    };
    cut(text.trim(), MAX_DETAIL_BYTES)
}
