//! Signed POSTs to servers that definitions name: those of HTTP tools and of HTTP hooks.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};

use crate::clock::Clock;
use crate::definition::Endpoint;
use crate::environment::Env;
use crate::limits::MAX_VALUE_BYTES;

/// A server that does not even accept within this is away.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Servers close idle connections, some after 5 s; one that is closed while a call is written to it
/// would fail that call.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(4);

/// Posts JSON over one pool of connections. Follows no redirect, uses no proxy.
///
/// Every failure is a sentence that shows neither a secret nor a URL.
pub(crate) struct SignedClient {
    /// Who is sent to, in those sentences.
    whom: &'static str,
    client: Client,
    clock: Arc<dyn Clock>,
    variables: Env,
}

impl SignedClient {
    pub(crate) fn new(
        whom: &'static str,
        clock: Arc<dyn Clock>,
        variables: Env,
    ) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .pool_idle_timeout(IDLE_LIMIT)
            .build()?;
        Ok(Self { whom, client, clock, variables })
    }

    /// Posts once, under `key`; the answer's status is 2xx. `name` is for the log, and `trace` is the
    /// `traceparent`, if there is one.
    pub(crate) async fn post(
        &self,
        to: &Endpoint,
        name: &str,
        key: &str,
        body: String,
        trace: Option<String>,
    ) -> Result<Response, String> {
        let mut headers = self.headers(to, name, key, &body)?;
        if let Some(trace) = trace.and_then(|trace| HeaderValue::try_from(trace).ok()) {
            headers.insert("traceparent", trace);
        }
        let request = self.client.post(to.url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        let (status, whom) = (response.status(), self.whom);
        if status.is_redirection() {
            return Err(format!("{whom} answered {}, a redirect", status.as_u16()));
        }
        if !status.is_success() {
            return Err(format!("{whom} answered {}", status.as_u16()));
        }
        Ok(response)
    }

    /// The whole body, of at most 1 MB.
    pub(crate) async fn whole(&self, mut response: Response) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if body.len() + chunk.len() > MAX_VALUE_BYTES {
                return Err(format!("{}'s answer is larger than 1 MB", self.whom));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// What broke, without the URL: it may carry a token.
    pub(crate) fn broken(&self, error: &reqwest::Error) -> String {
        match error.is_connect() {
            true => format!("no connection to {}", self.whom),
            false => format!("the connection to {} broke", self.whom),
        }
    }

    fn headers(
        &self,
        to: &Endpoint,
        name: &str,
        key: &str,
        body: &str,
    ) -> Result<HeaderMap, String> {
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| "the call's id cannot stand in a header".to_owned())
        };
        let mut headers = to.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("idempotency-key", value(key)?);
        if let Some(variable) = &to.signing_secret_env {
            // The model may read the sentence; the variable's name is for who runs the program.
            let unusable = |why| {
                tracing::error!(name, variable, "the signing secret of {} {why}", self.whom);
                format!("{} is not configured", self.whom)
            };
            let secret = (self.variables)(variable).ok_or_else(|| unusable("is not set"))?;
            let at = self.clock.now().as_second();
            let signature = Webhook::new(&secret)
                .and_then(|webhook| webhook.sign(key, at, body.as_bytes()))
                .map_err(|_| unusable("is no webhook secret"))?;
            headers.insert(HEADER_WEBHOOK_ID, value(key)?);
            headers.insert(HEADER_WEBHOOK_TIMESTAMP, HeaderValue::from(at));
            headers.insert(HEADER_WEBHOOK_SIGNATURE, value(&signature)?);
        }
        Ok(headers)
    }
}
