//! A provider's wire format: how a request is written, and how its reply is read.

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::model::{ModelError, ModelRequest, ReplyChunk};

/// One provider's format.
pub(crate) trait ProviderFormat: Send + Sync + 'static {
    /// The variable that holds the key for the provider's own server; `None` if it needs none.
    fn default_key_env(&self) -> Option<&'static str>;

    /// How the key is sent.
    fn auth(&self) -> KeyHeader;

    /// How the reply is cut into frames.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// The whole request, but for the key. The same request is always written in the same bytes.
    fn http_call(&self, request: &ModelRequest) -> Result<HttpCall, ModelError>;

    /// What to ask instead of a request that was refused; `None` if that would be refused too, as
    /// it is of what this has returned for the same failure.
    fn fallback(&self, request: &ModelRequest, failure: &ModelError) -> Option<ModelRequest> {
        let _ = (request, failure);
        None
    }

    /// Reads the reply to a request.
    fn decoder(&self, request: &ModelRequest) -> Box<dyn ReplyDecoder>;
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// In a header of this name, in lower case.
    Named(&'static str),
}

/// What separates frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse,
    /// A JSON value a line.
    Ndjson,
}

/// A request as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct HttpCall {
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Value,
}

/// One frame of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The `event` of a server-sent event; empty if it has none.
    pub(crate) event: String,
    pub(crate) data: String,
}

/// What has come so far of one reply. Bounds what it keeps by [`super::REPLY`].
pub(crate) trait ReplyDecoder: Send {
    /// Takes a frame and returns what it adds, in order.
    fn push(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError>;

    /// Whether the provider has said that its message ends; something may still follow.
    fn is_message_complete(&self) -> bool;

    /// Whether nothing can follow any more.
    fn is_stream_complete(&self) -> bool;

    /// What the whole reply adds to what was streamed: its calls, and `Part::Done`.
    fn finish_reason(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError>;
}

/// The address of `path` below a base address that may end in a slash or have a query.
pub(crate) fn endpoint(base: &str, path: &[&str]) -> Result<Url, ModelError> {
    let illegal = || ModelError::permanent("the model's base_url is not an http address");
    let mut url = Url::parse(base).map_err(|_| illegal())?;
    url.path_segments_mut().map_err(|()| illegal())?.pop_if_empty().extend(path);
    Ok(url)
}
