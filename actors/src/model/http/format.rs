//! The port to a provider's wire format: how a request is written, and how its reply is read.

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::model::{CallPiece, ModelError, ModelRequest, ReplyChunk};

/// The wire format of one provider.
pub(crate) trait ProviderFormat: Send + Sync + 'static {
    /// The variable that holds the key for the provider's own server; `None` if that needs no key.
    fn default_key_env(&self) -> Option<&'static str>;

    /// The header that carries the key.
    fn auth(&self) -> KeyHeader;

    /// How the reply is divided into frames.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// The whole HTTP request except for the key. The same request always results in the same
    /// bytes.
    fn http_call(&self, request: &ModelRequest) -> Result<HttpCall, ModelError>;

    /// The request to send instead of one that was refused; `None` if there is nothing to change.
    /// Must return `None` for a request that it has returned for the same error.
    fn fallback(&self, request: &ModelRequest, error: &ModelError) -> Option<ModelRequest> {
        let _ = (request, error);
        None
    }

    /// A decoder for the reply to a request.
    fn decoder(&self, request: &ModelRequest) -> Box<dyn ReplyDecoder>;
}

/// The header that carries an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A header of this name, in lower case.
    Named(&'static str),
}

/// How frames are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value per line.
    Ndjson,
}

/// An HTTP request to a provider, without its key.
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

/// Decodes one reply, frame by frame. Keeps at most [`super::MAX_REPLY_BYTES`].
pub(crate) trait ReplyDecoder: Send {
    /// Decodes a frame and returns the chunks that it adds, in order.
    fn push(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError>;

    /// Takes the pieces of calls that the frames since the last time added.
    fn take_call_pieces(&mut self) -> Vec<CallPiece> {
        Vec::new()
    }

    /// Whether the provider has ended its message; usage may still follow.
    fn is_message_complete(&self) -> bool;

    /// Whether the stream is complete, so that nothing can follow.
    fn is_stream_complete(&self) -> bool;

    /// The last chunks, known only when the reply is complete: its calls, and [`ReplyChunk::Done`].
    fn finish(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError>;
}

/// The URL of `path` below a base URL, which may end in a slash or have a query.
pub(crate) fn endpoint(base: &str, path: &[&str]) -> Result<Url, ModelError> {
    let illegal = || ModelError::permanent("the model's base_url is not an http address");
    let mut url = Url::parse(base).map_err(|_| illegal())?;
    url.path_segments_mut().map_err(|()| illegal())?.pop_if_empty().extend(path);
    Ok(url)
}
