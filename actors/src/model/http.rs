//! Providers over HTTP: one client that asks, waits, reads and fails for all of their formats.
//!
//! Written over `reqwest` and not over `genai`, whose streams bound neither a frame nor a reply, size
//! a buffer by an index that the server sends, and whose messages have no place for what must go
//! back as it came: signed and redacted thinking in its order, and what a provider ran by itself.

pub(crate) mod error;
mod format;
pub(crate) mod ids;
pub(crate) mod media;
pub(crate) mod message_body;
mod ndjson;
pub(crate) mod options;
mod response_reader;
mod sse;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, redirect};
use tokio::time::timeout;

pub(crate) use self::format::{Auth, Call, Format, Frame, Framing, Reply, below};
use self::response_reader::Reading;
use super::{MOST_CALLS, ModelError, ModelSettings, ReplyChunk, ReplyStream, Request};
use crate::clock::Clock;

/// How many bytes a reply may have. No model writes as much; what does never ends.
pub(crate) const REPLY: usize = 16 * 1024 * 1024;

/// How many calls one message may make before it counts as endless. More than are carried out, so
/// that those beyond `MOST_CALLS` are answered with an error rather than the reply refused whole.
pub(crate) const CALLS: usize = 2 * MOST_CALLS;

/// How much of an error's body is read; its message is cut shorter still.
const ERROR_BODY: usize = 64 * 1024;

/// How often a request that was refused is asked otherwise: once as its format knows to, and once
/// without its media.
const OTHERWISE: usize = 2;

/// How long each stage of a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until connected.
    pub connect: Duration,
    /// From the request to the response's header, which some servers send with the first token.
    pub header: Duration,
    /// Between two pieces of a stream; a reasoning model may be silent for a while.
    pub idle: Duration,
    /// Without a word of the message, whatever else comes: keep-alives are no answer.
    pub quiet: Duration,
    /// From the message's end to the stream's: usage follows at once or never.
    pub tail: Duration,
    /// The whole reply; nothing else bounds a server that sends only comments.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            header: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            quiet: Duration::from_secs(600),
            tail: Duration::from_secs(5),
            total: Duration::from_secs(3600),
        }
    }
}

/// Why no reply begins.
struct Refused {
    /// What the provider answered; `None` if it did not.
    status: Option<StatusCode>,
    failure: ModelError,
}

impl From<ModelError> for Refused {
    fn from(failure: ModelError) -> Self {
        Self { status: None, failure }
    }
}

/// Looks up an environment variable.
pub type Lookup = fn(&str) -> Option<String>;

/// Asks the models of all providers but `scripted`. Connections are pooled.
pub struct Wire {
    clock: Arc<dyn Clock>,
    limits: Limits,
    lookup: Lookup,
    client: OnceLock<Client>,
}

impl Wire {
    /// Keys are read with `lookup` at every call, by the name that the definition gives.
    pub fn new(clock: Arc<dyn Clock>, limits: Limits, lookup: Lookup) -> Self {
        Self { clock, limits, lookup, client: OnceLock::new() }
    }

    /// Built at the first call, so that a machine without certificates can do all else.
    fn client(&self) -> Result<&Client, ModelError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .connect_timeout(self.limits.connect)
            .redirect(redirect::Policy::none())
            .user_agent("abide")
            .build()
            .map_err(error::no_client)?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The key, if the definition names one or the server is the provider's own.
    fn key(
        &self,
        settings: &ModelSettings,
        usual: Option<&str>,
    ) -> Result<Option<String>, ModelError> {
        let name = match (&settings.api_key_env, &settings.base_url, usual) {
            (Some(name), _, _) => name.as_str(),
            (None, None, Some(usual)) => usual,
            (None, Some(_), _) | (None, None, None) => return Ok(None),
        };
        let key = (self.lookup)(name).map(|key| key.trim().to_owned());
        match key.filter(|key| !key.is_empty()) {
            Some(key) => Ok(Some(key)),
            None => {
                // Clients read the failure; the variable's name is for who runs the program.
                tracing::error!(model = settings.name, variable = name, "no key for a model");
                Err(ModelError::permanent("the model's key is not configured"))
            }
        }
    }

    /// The reply to a request, or to what is asked instead of one that was refused.
    async fn asked(
        &self,
        format: &dyn Format,
        request: &mut Cow<'_, Request>,
        key: Option<&str>,
    ) -> Result<Response, ModelError> {
        let mut call = format.call(request)?;
        let mut response = self.begin(&call, format.auth(), key).await;
        for _ in 0..OTHERWISE {
            let Err(refused) = &response else { break };
            let other = format.instead(request, &refused.failure);
            let Some(other) = other.or_else(|| media::told(request, refused)) else { break };
            let instead = format.call(&other)?;
            if instead.body == call.body {
                break;
            }
            let (model, said) = (&request.settings.name, &refused.failure);
            tracing::warn!(model, %said, "asked otherwise");
            (*request, call) = (Cow::Owned(other), instead);
            response = self.begin(&call, format.auth(), key).await;
        }
        response.map_err(|refused| refused.failure)
    }

    async fn begin(&self, call: &Call, auth: Auth, key: Option<&str>) -> Result<Response, Refused> {
        let mut asked = self.client()?.post(call.url.clone()).json(&call.body);
        for (name, value) in &call.headers {
            asked = asked.header(name, value);
        }
        if let Some(key) = key {
            let (name, value) = match auth {
                Auth::Bearer => (reqwest::header::AUTHORIZATION, format!("Bearer {key}")),
                Auth::Header(name) => (HeaderName::from_static(name), key.to_owned()),
            };
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                ModelError::permanent("the key has characters that no key can have")
            })?;
            value.set_sensitive(true);
            asked = asked.header(name, value);
        }
        let response = timeout(self.limits.header, asked.send())
            .await
            .map_err(|_| error::silent(self.limits.header))?
            .map_err(error::transport)?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.refused(response).await)
        }
    }

    async fn refused(&self, mut response: Response) -> Refused {
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
        let wait = header.and_then(|header| error::retry_after(header, self.clock.now()));
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() >= ERROR_BODY {
                    break;
                }
            }
        };
        // The status says enough if the body does not come.
        let _ = timeout(self.limits.tail, read).await;
        let failure = error::status(status, wait, &String::from_utf8_lossy(&body));
        Refused { status: Some(status), failure }
    }

    /// The reply of a provider to a request, as it streams.
    pub(super) async fn stream(
        &self,
        format: &'static dyn Format,
        request: &Request,
    ) -> Result<ReplyStream, ModelError> {
        let mut request = Cow::Borrowed(request);
        let key = self.key(&request.settings, format.key())?;
        let response = self.asked(format, &mut request, key.as_deref()).await;
        let response = response.map_err(|failure| error::redacted(failure, key.as_deref()))?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(ModelError::permanent("the model's provider did not stream its answer"));
        }
        let reply = format.reply(&request);
        let reading = Reading::new(response, self.limits, format.framing(), reply);
        let parts = stream::try_unfold(reading, Reading::next);
        let redact = move |part: Result<ReplyChunk, ModelError>| {
            part.map_err(|failure| error::redacted(failure, key.as_deref()))
        };
        Ok(parts.map(redact).boxed())
    }
}
