//! Sends one notice to its receiver, signed after Standard Webhooks.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP,
    Webhook as StandardWebhook,
};
use tokio::time::timeout;
use url::Url;

use crate::clock::Clock;
use crate::environment::Env;
use crate::notices::Webhook;
use crate::outbound::{ClientPair, Outbound, Route, TenantRules, is_blocked};

/// A receiver that does not accept a connection within this time is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Servers close idle connections, some after 5 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long one attempt may take, with the answer's body.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the body of an answer is read.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// What is read of an answer, so that its connection can be used again. A longer one costs its
/// connection.
const MAX_ANSWER_BYTES: usize = 4 * 1024;
/// How many secrets sign: the present one, and the one that it replaces.
const MAX_SIGNATURES: usize = 2;

/// One attempt.
pub struct Sending<'a> {
    pub webhook: &'a Webhook,
    /// The id of the notice, which each attempt repeats.
    pub id: &'a str,
    pub body: String,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    Delivered,
    /// The receiver wants no more.
    Gone,
    /// A text that shows neither a secret nor a URL.
    Failed(String),
}

/// Why a webhook cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookMistake {
    pub field: &'static str,
    pub reason: String,
}

/// Posts notices. Follows no redirects, uses no proxy, and reads little of an answer.
pub struct NoticeSender {
    clients: ClientPair,
    clock: Arc<dyn Clock>,
    variables: Env,
    /// What tenants may reach; `None` if nobody is authenticated.
    tenants: Option<Arc<dyn TenantRules>>,
}

impl NoticeSender {
    /// A sender that reads secrets from the environment of the process.
    pub fn new(
        clock: Arc<dyn Clock>,
        tenants: Option<Arc<dyn TenantRules>>,
    ) -> Result<Self, reqwest::Error> {
        let clients = ClientPair::build(|| {
            Client::builder()
                .redirect(Policy::none())
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
        })?;
        let variables: Env = Arc::new(|name| std::env::var(name).ok());
        Ok(Self { clients, clock, variables, tenants })
    }

    /// Whether the webhook may be used now: its URL, its host and its variables.
    pub fn check(&self, webhook: &Webhook) -> Result<(), WebhookMistake> {
        self.route(webhook).map(drop)?;
        self.headers(webhook, "check", "").map(drop)
    }

    /// Makes one attempt.
    pub async fn send(&self, sending: Sending<'_>) -> Sent {
        match timeout(ATTEMPT_TIMEOUT, self.attempt(sending)).await {
            Ok(sent) => sent,
            Err(_) => Sent::Failed("the receiver did not answer in time".to_owned()),
        }
    }

    async fn attempt(&self, Sending { webhook, id, body }: Sending<'_>) -> Sent {
        let prepared = self.route(webhook).and_then(|(url, route)| {
            let headers = self.headers(webhook, id, &body)?;
            Ok((url, route, headers))
        });
        let (url, route, headers) = match prepared {
            Ok(prepared) => prepared,
            Err(mistake) => return Sent::Failed(format!("{}: {}", mistake.field, mistake.reason)),
        };
        let request = self.clients.get(route).post(url).headers(headers).body(body);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Sent::Failed(describe(&error).to_owned()),
        };
        let status = response.status();
        // The status is the receipt. The rest is read so that the connection can be used again.
        let _ = timeout(DRAIN_TIMEOUT, drain(response)).await;
        if status.is_success() {
            Sent::Delivered
        } else if status == StatusCode::GONE {
            Sent::Gone
        } else if status.is_redirection() {
            Sent::Failed(format!("the receiver answered {}, a redirect", status.as_u16()))
        } else {
            Sent::Failed(format!("the receiver answered {}", status.as_u16()))
        }
    }

    fn route(&self, webhook: &Webhook) -> Result<(Url, Route), WebhookMistake> {
        let mistake = |reason: &str| WebhookMistake { field: "url", reason: reason.to_owned() };
        let url = Url::parse(&webhook.url).map_err(|_| mistake("is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(mistake("must be an http or https URL"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(mistake("must have no user, password or fragment"));
        }
        let outbound = self.outbound(webhook);
        let route = outbound.route(&url).map_err(|error| {
            tracing::debug!(webhook = %webhook.key(), %error, "webhook refused");
            mistake(error.reason())
        })?;
        let variables = webhook.headers_env.values().chain(&webhook.secret_env);
        outbound.check_variables(variables.map(String::as_str)).map_err(|error| {
            let field = if webhook.secret_env.is_some() { "secret_env" } else { "headers_env" };
            WebhookMistake { field, reason: error.reason().to_owned() }
        })?;
        Ok((url, route))
    }

    fn outbound(&self, webhook: &Webhook) -> Outbound {
        match &self.tenants {
            Some(rules) => Outbound::of(rules.clone(), webhook.tenant.clone()),
            None => Outbound::Unbound,
        }
    }

    fn headers(
        &self,
        webhook: &Webhook,
        id: &str,
        body: &str,
    ) -> Result<HeaderMap, WebhookMistake> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("abide-webhooks"));
        for (name, variable) in &webhook.headers_env {
            let mistake = |reason: &str| WebhookMistake {
                field: "headers_env",
                reason: format!("{name}: {reason}"),
            };
            let name = HeaderName::try_from(name).map_err(|_| mistake("is no name of a header"))?;
            let value = (self.variables)(variable).ok_or_else(|| mistake("is not set"))?;
            let value = HeaderValue::try_from(value);
            let mut value = value.map_err(|_| mistake("does not fit into a header"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let at = self.clock.now();
        let mistake = |reason: &str| {
            let field = if webhook.secret_env.is_some() { "secret_env" } else { "secret" };
            WebhookMistake { field, reason: reason.to_owned() }
        };
        let from_variable = match &webhook.secret_env {
            Some(variable) => {
                Some((self.variables)(variable).ok_or_else(|| mistake("is not set"))?)
            }
            None => None,
        };
        let secrets: Vec<&str> = match &from_variable {
            Some(secret) => vec![secret.as_str()],
            None => webhook.signing_secrets(at).take(MAX_SIGNATURES).collect(),
        };
        let sign = |secret: &str| {
            let signer = StandardWebhook::new(secret);
            signer.and_then(|signer| signer.sign(id, at.as_second(), body.as_bytes()))
        };
        let signatures: Result<Vec<String>, _> = secrets.into_iter().map(sign).collect();
        let signatures = signatures.map_err(|_| mistake("is not a webhook secret"))?.join(" ");
        let value = |text: &str| HeaderValue::try_from(text).map_err(|_| mistake("is not usable"));
        headers.insert(HEADER_WEBHOOK_ID, value(id)?);
        headers.insert(HEADER_WEBHOOK_TIMESTAMP, HeaderValue::from(at.as_second()));
        headers.insert(HEADER_WEBHOOK_SIGNATURE, value(&signatures)?);
        Ok(headers)
    }
}

/// Reads a short answer to its end. The status has decided already.
async fn drain(mut response: Response) {
    let mut read = 0_usize;
    while let Ok(Some(chunk)) = response.chunk().await {
        read = read.saturating_add(chunk.len());
        if read > MAX_ANSWER_BYTES {
            return;
        }
    }
}

/// Describes an error without the URL, which may carry a token.
fn describe(error: &reqwest::Error) -> &'static str {
    if is_blocked(error) {
        "the receiver's host has an address that is not public"
    } else if error.is_connect() {
        "no connection to the receiver"
    } else {
        "the connection to the receiver broke"
    }
}
