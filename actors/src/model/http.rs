//! The HTTP client for models: sends requests, enforces timeouts and bounds, and reads streamed
//! replies, in the format of any provider.
//!
//! It is written on `reqwest` and not on `genai`, whose streams bound neither a frame nor a reply,
//! size a buffer by an index that the server sends, and whose messages have no place for what must
//! be sent back unchanged: signed and redacted thinking in its order, and runs of the provider's
//! own tools.

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

pub(crate) use self::format::{
    Frame, Framing, HttpCall, KeyHeader, ProviderFormat, ReplyDecoder, endpoint,
};
use self::response_reader::ResponseReader;
use super::{
    MAX_CALLS_PER_MESSAGE, ModelError, ModelRequest, ModelSettings, ReplyChunk, ReplyStream,
};
use crate::clock::Clock;
use crate::outbound::{ClientPair, Route};

/// The largest reply. No model writes as much; a reply that is larger never ends.
pub(crate) const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// How many calls one message may make before it counts as endless. It is larger than
/// `MAX_CALLS_PER_MESSAGE`, so that the surplus calls get an error each and the reply is not
/// refused as a whole.
pub(crate) const MAX_REPLY_CALLS: usize = 2 * MAX_CALLS_PER_MESSAGE;

/// How much of an error's body is read; the message quoted from it is much shorter.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// How many fallbacks may replace a refused request: one that its format offers, and one without
/// its media.
const MAX_FALLBACKS: usize = 2;

/// How long each stage of a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// Until the connection is established.
    pub connect: Duration,
    /// From the request to the head of the response, which some servers send only with the first
    /// token.
    pub response_head: Duration,
    /// Between two pieces of a stream; a reasoning model may be silent for a while.
    pub idle: Duration,
    /// Without a new chunk of the message, whatever else arrives: keep-alives are no progress.
    pub progress: Duration,
    /// From the message's end to the stream's end: usage follows at once or never.
    pub trailer: Duration,
    /// For the whole reply; nothing else bounds a server that sends only comments.
    pub total: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            response_head: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            progress: Duration::from_secs(600),
            trailer: Duration::from_secs(5),
            total: Duration::from_secs(3600),
        }
    }
}

/// Why a request got no reply.
struct HttpRefusal {
    /// The status of the provider's answer; `None` if it did not answer.
    status: Option<StatusCode>,
    error: ModelError,
}

impl From<ModelError> for HttpRefusal {
    fn from(error: ModelError) -> Self {
        Self { status: None, error }
    }
}

/// Looks up an environment variable.
pub type EnvLookup = fn(&str) -> Option<String>;

/// Calls models over HTTP, in the format of their provider. Connections are pooled.
pub struct HttpModel {
    clock: Arc<dyn Clock>,
    timeouts: HttpTimeouts,
    env: EnvLookup,
    clients: OnceLock<ClientPair>,
}

impl HttpModel {
    /// `env` looks up the key at every call, by the name that the definition gives.
    pub fn new(clock: Arc<dyn Clock>, timeouts: HttpTimeouts, env: EnvLookup) -> Self {
        Self { clock, timeouts, env, clients: OnceLock::new() }
    }

    /// Built at the first call, so that a machine without certificates can do everything else.
    fn clients(&self) -> Result<&ClientPair, ModelError> {
        if let Some(clients) = self.clients.get() {
            return Ok(clients);
        }
        let clients = ClientPair::build(|| {
            Client::builder()
                .connect_timeout(self.timeouts.connect)
                .redirect(redirect::Policy::none())
                .user_agent("abide")
        });
        let clients = clients.map_err(error::no_client)?;
        Ok(self.clients.get_or_init(|| clients))
    }

    /// The route to the model, if the tenant's rules permit its server and its key's variable now.
    fn route(settings: &ModelSettings) -> Result<Route, ModelError> {
        settings.route().map_err(|error| {
            let model = &settings.name;
            tracing::error!(model, %error, "outbound request refused");
            ModelError::permanent(format!("the model may not be called: {}", error.reason()))
        })
    }

    /// The API key, if the definition names its variable or the server is the provider's own.
    fn api_key(
        &self,
        settings: &ModelSettings,
        default_env: Option<&str>,
    ) -> Result<Option<String>, ModelError> {
        let Some(name) = settings.key_variable(default_env) else { return Ok(None) };
        let key = (self.env)(name).map(|key| key.trim().to_owned());
        match key.filter(|key| !key.is_empty()) {
            Some(key) => Ok(Some(key)),
            None => {
                // Clients read the error; the variable's name is for the operator.
                tracing::error!(model = settings.name, variable = name, "model key not configured");
                Err(ModelError::permanent("the model's key is not configured"))
            }
        }
    }

    /// Sends a request and, if it is refused, its fallbacks. `request` becomes the one that was
    /// sent last.
    async fn send_with_fallbacks(
        &self,
        format: &dyn ProviderFormat,
        request: &mut Cow<'_, ModelRequest>,
        key: Option<&str>,
    ) -> Result<Response, ModelError> {
        let client = self.clients()?.get(Self::route(&request.settings)?);
        let mut call = format.http_call(request)?;
        let mut response = self.send(client, &call, format.auth(), key).await;
        for _ in 0..MAX_FALLBACKS {
            let Err(refusal) = &response else { break };
            let changed = format.fallback(request, &refusal.error);
            let Some(changed) = changed.or_else(|| media::without_media(request, refusal)) else {
                break;
            };
            let next_call = format.http_call(&changed)?;
            if next_call.body == call.body {
                break;
            }
            let model = &request.settings.name;
            let content = &refusal.error;
            tracing::warn!(model, %content, "model request refused, sending fallback");
            (*request, call) = (Cow::Owned(changed), next_call);
            response = self.send(client, &call, format.auth(), key).await;
        }
        response.map_err(|refusal| refusal.error)
    }

    async fn send(
        &self,
        client: &Client,
        call: &HttpCall,
        auth: KeyHeader,
        key: Option<&str>,
    ) -> Result<Response, HttpRefusal> {
        let mut builder = client.post(call.url.clone()).json(&call.body);
        for (name, value) in &call.headers {
            builder = builder.header(name, value);
        }
        if let Some(key) = key {
            let (name, value) = match auth {
                KeyHeader::Bearer => (reqwest::header::AUTHORIZATION, format!("Bearer {key}")),
                KeyHeader::Named(name) => (HeaderName::from_static(name), key.to_owned()),
            };
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                ModelError::permanent("the model's key has characters that are illegal in a header")
            })?;
            value.set_sensitive(true);
            builder = builder.header(name, value);
        }
        let response = timeout(self.timeouts.response_head, builder.send())
            .await
            .map_err(|_| error::idle_timeout(self.timeouts.response_head))?
            .map_err(error::from_transport)?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.read_refusal(response).await)
        }
    }

    async fn read_refusal(&self, mut response: Response) -> HttpRefusal {
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
        let wait = header.and_then(|header| error::retry_after(header, self.clock.now()));
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() >= MAX_ERROR_BODY_BYTES {
                    break;
                }
            }
        };
        // The status is enough if the body does not arrive.
        let _ = timeout(self.timeouts.trailer, read).await;
        let error = error::from_status(status, wait, &String::from_utf8_lossy(&body));
        HttpRefusal { status: Some(status), error }
    }

    /// Calls a model in this provider's format.
    pub(super) async fn stream(
        &self,
        format: &'static dyn ProviderFormat,
        request: &ModelRequest,
    ) -> Result<ReplyStream, ModelError> {
        let mut request = Cow::Borrowed(request);
        let key = self.api_key(&request.settings, format.default_key_env())?;
        let response = self.send_with_fallbacks(format, &mut request, key.as_deref()).await;
        let response = response.map_err(|error| error::redact_key(error, key.as_deref()))?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(ModelError::permanent("the model's provider did not stream its answer"));
        }
        let reply = format.decoder(&request);
        let reply = (reply, request.call_pieces.clone());
        let reader = ResponseReader::new(response, self.timeouts, format.framing(), reply);
        let chunks = stream::try_unfold(reader, ResponseReader::next_chunk);
        let redact = move |chunk: Result<ReplyChunk, ModelError>| {
            chunk.map_err(|error| error::redact_key(error, key.as_deref()))
        };
        Ok(chunks.map(redact).boxed())
    }
}
