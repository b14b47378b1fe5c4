//! A provider's wire format: how a request is written, and how its reply is read.

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::model::{ModelError, ReplyChunk, Request};

/// One provider's format.
pub(crate) trait Format: Send + Sync + 'static {
    /// The variable that holds the key for the provider's own server; `None` if it needs none.
    fn key(&self) -> Option<&'static str>;

    /// How the key is sent.
    fn auth(&self) -> Auth;

    /// How the reply is cut into frames.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// The whole request, but for the key. The same request is always written in the same bytes.
    fn call(&self, request: &Request) -> Result<Call, ModelError>;

    /// What to ask instead of a request that was refused; `None` if that would be refused too, as
    /// it is of what this has returned for the same failure.
    fn instead(&self, request: &Request, failure: &ModelError) -> Option<Request> {
        let _ = (request, failure);
        None
    }

    /// Reads the reply to a request.
    fn reply(&self, request: &Request) -> Box<dyn Reply>;
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// In a header of this name, in lower case.
    Header(&'static str),
}

/// What separates frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse,
    /// A JSON value a line.
    Lines,
}

/// A request as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Call {
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
pub(crate) trait Reply: Send {
    /// Takes a frame and returns what it adds, in order.
    fn take(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError>;

    /// Whether the provider has said that its message ends; something may still follow.
    fn finished(&self) -> bool;

    /// Whether nothing can follow any more.
    fn done(&self) -> bool;

    /// What the whole reply adds to what was streamed: its calls, and `Part::Done`.
    fn end(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError>;
}

/// The address of `path` below a base address that may end in a slash or have a query.
pub(crate) fn below(base: &str, path: &[&str]) -> Result<Url, ModelError> {
    let illegal = || ModelError::permanent("the model's base_url is not an http address");
    let mut url = Url::parse(base).map_err(|_| illegal())?;
    url.path_segments_mut().map_err(|()| illegal())?.pop_if_empty().extend(path);
    Ok(url)
}
