//! A conversation's live events: frames that go on at the next node when one is gone.

use std::time::{Duration, Instant};

use reqwest::Response;
use serde_json::Value;

use crate::error::CliError;
use crate::http::{Http, Port, Request};

/// Nodes send a comment after 15 s of silence: a longer silence is a connection that is gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(40);
/// How long no node may have a stream before the command gives up.
const AWAY_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The most bytes of one frame; a snapshot of a long turn is the largest.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// One frame: `reference/events.md`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub event: String,
    pub data: Value,
    pub id: Option<String>,
}

/// The frames of a conversation, on whichever node.
pub(crate) struct Stream<'a> {
    http: &'a Http,
    request: Request,
    last_id: Option<String>,
    open: Option<(Response, Parser)>,
    /// Since when no node has had a stream; `None` while one has.
    away_since: Option<Instant>,
    was_open: bool,
}

impl<'a> Stream<'a> {
    /// Follows from now on, or from the event after `after`; `with_places` resumes inside messages.
    pub(crate) fn new(
        http: &'a Http,
        conversation: &str,
        after: Option<u64>,
        with_places: bool,
    ) -> Self {
        let path = ["v1", "conversations", conversation, "events"];
        let request = Request::get(Port::Public, &path);
        let request = request.with("cursor", with_places.then_some("chars"));
        let last_id = after.map(|seq| seq.to_string());
        Self { http, request, last_id, open: None, away_since: None, was_open: false }
    }

    /// The next frame; `None` when the stream has ended for good. A stream that is cut goes on at
    /// another node with a snapshot, and then where it was.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, CliError> {
        loop {
            let Some((response, parser)) = &mut self.open else {
                self.connect().await?;
                continue;
            };
            if let Some(frame) = parser.take()? {
                if frame.id.is_some() {
                    self.last_id.clone_from(&frame.id);
                }
                if frame.event == "credential_ended" {
                    return Err(CliError::CredentialEnded);
                }
                return Ok(Some(frame));
            }
            match tokio::time::timeout(SILENCE_TIMEOUT, response.chunk()).await {
                Ok(Ok(Some(bytes))) => parser.feed(&bytes)?,
                Ok(Ok(None)) | Ok(Err(_)) | Err(_) => {
                    self.open = None;
                    self.http.turn(Port::Public);
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), CliError> {
        match self.http.open_stream(&self.request, self.last_id.as_deref()).await {
            Ok(response) => {
                self.open = Some((response, Parser::default()));
                (self.away_since, self.was_open) = (None, true);
                Ok(())
            }
            Err(away @ CliError::Away(_)) => {
                let since = *self.away_since.get_or_insert_with(Instant::now);
                let patience = if self.was_open { AWAY_TIMEOUT } else { RETRY_INTERVAL * 4 };
                if since.elapsed() >= patience {
                    return Err(away);
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Takes frames out of bytes.
#[derive(Default)]
struct Parser {
    bytes: Vec<u8>,
    /// Where the search for a line's end goes on.
    searched: usize,
    event: String,
    data: Vec<String>,
    id: Option<String>,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        if self.bytes.len() + bytes.len() > MAX_FRAME_BYTES {
            return Err(CliError::Failed("a frame is too long".to_owned()));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole frame.
    fn take(&mut self) -> Result<Option<Frame>, CliError> {
        let mut begin = 0;
        let mut frame = None;
        while frame.is_none() {
            let from = begin.max(self.searched);
            let Some(length) = self.bytes[from..].iter().position(|byte| *byte == b'\n') else {
                break;
            };
            let end = from + length;
            let line = String::from_utf8_lossy(&self.bytes[begin..end]).into_owned();
            begin = end + 1;
            frame = self.line(line.trim_end_matches('\r'))?;
        }
        self.bytes.drain(..begin);
        self.searched = if frame.is_some() { 0 } else { self.bytes.len() };
        Ok(frame)
    }

    /// Takes up one line; an empty one ends a frame.
    fn line(&mut self, line: &str) -> Result<Option<Frame>, CliError> {
        if line.is_empty() {
            let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
            let id = self.id.take();
            if data.is_empty() {
                return Ok(None);
            }
            let data = serde_json::from_str(&data.join("\n"))
                .map_err(|error| CliError::Failed(format!("a frame is no JSON: {error}")))?;
            return Ok(Some(Frame { event, data, id }));
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.event),
            "data" => self.data.push(value.to_owned()),
            "id" => self.id = Some(value.to_owned()),
            // Comments, and what is added later.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn frames_come_whole_wherever_the_bytes_are_cut() {
        let text =
            ": hello\n\nevent: a\ndata: {\"x\":\ndata: \"ä\"}\nid: 3\r\n\r\nevent: b\ndata: 1\n\n";
        let expected = [
            Frame { event: "a".to_owned(), data: json!({"x": "ä"}), id: Some("3".to_owned()) },
            Frame { event: "b".to_owned(), data: json!(1), id: None },
        ];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let mut frames = Vec::new();
            for part in text.as_bytes().chunks(size) {
                parser.feed(part).unwrap();
                while let Some(frame) = parser.take().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_frame_that_is_no_json_is_an_error() {
        let mut parser = Parser::default();
        parser.feed(b"event: a\ndata: {\n\n").unwrap();
        assert!(parser.take().is_err());
    }
}
