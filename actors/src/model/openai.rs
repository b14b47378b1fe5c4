//! The wire format of chat completions, as OpenAI and every compatible server speak it.
//!
//! Written over `reqwest` and not over `genai`: its adapter for this format sizes a buffer by an
//! index that the server sends, copies all arguments so far for every fragment, and drops
//! fragments without an index.

mod body;
mod failure;
mod part;
mod reply;
mod sse;
#[cfg(test)]
mod tests;
mod tool;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};
use tokio::time::{Sleep, sleep, timeout};

use self::reply::Reply;
use self::sse::Decoder;
use super::{Failure, Model, Part, Parts, Request, Settings};
use crate::clock::Clock;

/// Asked when a definition names no other server.
const OPENAI: &str = "https://api.openai.com/v1";

/// Holds the key for [`OPENAI`] when a definition names no other variable.
const OPENAI_KEY: &str = "OPENAI_API_KEY";

/// How much of an error's body is read; its message is cut shorter still.
const ERROR_BODY: usize = 64 * 1024;

/// How long each stage of a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until connected.
    pub connect: Duration,
    /// From the request to the response's header, which some servers send with the first token.
    pub header: Duration,
    /// Between two pieces of a stream; a reasoning model may be silent for a while.
    pub idle: Duration,
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
            tail: Duration::from_secs(5),
            total: Duration::from_secs(3600),
        }
    }
}

/// Looks up an environment variable.
pub type Lookup = fn(&str) -> Option<String>;

/// Asks models over chat completions. Connections are pooled.
pub struct Openai {
    clock: Arc<dyn Clock>,
    limits: Limits,
    lookup: Lookup,
    client: OnceLock<Client>,
}

impl Openai {
    /// Keys are read with `lookup` at every call, by the name that the definition gives.
    pub fn new(clock: Arc<dyn Clock>, limits: Limits, lookup: Lookup) -> Self {
        Self { clock, limits, lookup, client: OnceLock::new() }
    }

    /// Built at the first call, so that a machine without certificates can do all else.
    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .connect_timeout(self.limits.connect)
            .redirect(redirect::Policy::none())
            .user_agent("abide")
            .build()
            .map_err(failure::no_client)?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The key, if the definition names one or the server is OpenAI's own.
    fn key(&self, settings: &Settings) -> Result<Option<String>, Failure> {
        let name = match (&settings.api_key_env, &settings.base_url) {
            (Some(name), _) => name.as_str(),
            (None, None) => OPENAI_KEY,
            (None, Some(_)) => return Ok(None),
        };
        let key = (self.lookup)(name).map(|key| key.trim().to_owned());
        match key.filter(|key| !key.is_empty()) {
            Some(key) => Ok(Some(key)),
            None => {
                // Clients read the failure; the variable's name is for who runs the program.
                tracing::error!(model = settings.name, variable = name, "no key for a model");
                Err(Failure::permanent("the model's key is not configured"))
            }
        }
    }

    async fn begin(&self, request: &Request, key: Option<&str>) -> Result<Response, Failure> {
        let url = address(request.settings.base_url.as_deref().unwrap_or(OPENAI))?;
        let own = url.host_str() == Some("api.openai.com");
        let mut call = self.client()?.post(url).header(ACCEPT, "text/event-stream");
        if let Some(key) = key {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| Failure::permanent("the key has characters that no key can have"))?;
            bearer.set_sensitive(true);
            call = call.header(reqwest::header::AUTHORIZATION, bearer);
        }
        let sent = call.json(&body::body(request, own)).send();
        let response = timeout(self.limits.header, sent)
            .await
            .map_err(|_| failure::silent(self.limits.header))?
            .map_err(failure::transport)?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.refused(response).await)
        }
    }

    async fn refused(&self, mut response: Response) -> Failure {
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
        let wait = header.and_then(|header| failure::retry_after(header, self.clock.now()));
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
        failure::status(status, wait, &String::from_utf8_lossy(&body))
    }
}

#[async_trait]
impl Model for Openai {
    async fn ask(&self, request: Request) -> Result<Parts, Failure> {
        let key = self.key(&request.settings)?;
        let response = self.begin(&request, key.as_deref()).await;
        let response = response.map_err(|failure| failure::redacted(failure, key.as_deref()))?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(Failure::permanent("the model's provider did not stream its answer"));
        }
        let reading = Reading {
            response,
            limits: self.limits,
            deadline: Box::pin(sleep(self.limits.total)),
            decoder: Decoder::default(),
            reply: Some(Reply::default()),
            ready: VecDeque::new(),
        };
        let parts = stream::try_unfold(reading, Reading::next);
        let redact = move |part: Result<Part, Failure>| {
            part.map_err(|failure| failure::redacted(failure, key.as_deref()))
        };
        Ok(parts.map(redact).boxed())
    }
}

/// A response that is being read.
struct Reading {
    response: Response,
    limits: Limits,
    /// Of the whole reply; of the stream's tail once the message has ended.
    deadline: Pin<Box<Sleep>>,
    decoder: Decoder,
    /// `None` once its end is among what is ready.
    reply: Option<Reply>,
    ready: VecDeque<Result<Part, Failure>>,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Part, Self)>, Failure> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some((part?, self)));
            }
            let Some(reply) = self.reply.take() else { return Ok(None) };
            // What came before a failure is handed on before it.
            if let Err(failure) = self.read(reply).await {
                self.ready.push_back(Err(failure));
            }
        }
    }

    /// Reads one piece of the body into the reply, and ends the reply if that was the last.
    async fn read(&mut self, mut reply: Reply) -> Result<(), Failure> {
        let finished = reply.finished();
        let chunk = tokio::select! {
            biased;
            () = &mut self.deadline => None,
            chunk = timeout(self.limits.idle, self.response.chunk()) => Some(chunk),
        };
        let bytes = match chunk {
            Some(Ok(Ok(Some(bytes)))) => bytes,
            None | Some(Ok(Ok(None) | Err(_)) | Err(_)) if finished => {
                self.ready.extend(reply.end().into_iter().map(Ok));
                return Ok(());
            }
            None => return Err(failure::endless(self.limits.total)),
            Some(Ok(Ok(None))) => return Err(failure::ended()),
            Some(Ok(Err(error))) => return Err(failure::transport(error)),
            Some(Err(_)) => return Err(failure::silent(self.limits.idle)),
        };
        for data in self.decoder.feed(&bytes).map_err(|sse::TooLarge| failure::too_large())? {
            self.ready.extend(reply.take(&data)?.into_iter().map(Ok));
            if reply.done() {
                self.ready.extend(reply.end().into_iter().map(Ok));
                return Ok(());
            }
        }
        if reply.finished() && !finished {
            self.deadline = Box::pin(sleep(self.limits.tail));
        }
        self.reply = Some(reply);
        Ok(())
    }
}

/// Where completions are asked for, below a base address that may end in a slash or have a query.
fn address(base: &str) -> Result<Url, Failure> {
    let illegal = || Failure::permanent("the model's base_url is not an http address");
    let mut url = Url::parse(base).map_err(|_| illegal())?;
    url.path_segments_mut().map_err(|()| illegal())?.pop_if_empty().extend(["chat", "completions"]);
    Ok(url)
}
