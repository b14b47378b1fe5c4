//! The event stream of one conversation, frame by frame.

use axum::body::{Body, BodyDataStream};
use futures::StreamExt;
use serde_json::Value;

use super::client::Client;
use super::{LoadError, load_error};

/// More than any frame of the load agent has.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// An open stream; dropping it closes it.
pub(super) struct Stream {
    pieces: BodyDataStream,
    unread: Vec<u8>,
}

/// One frame.
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) data: String,
}

impl Stream {
    pub(super) async fn open(client: &Client, conversation: &str) -> Result<Self, LoadError> {
        let body: Body = client.open(&format!("/v1/conversations/{conversation}/events")).await?;
        Ok(Self { pieces: body.into_data_stream(), unread: Vec::new() })
    }

    /// Reads the next frame. The stream of a running turn always has one.
    pub(super) async fn next(&mut self) -> Result<Frame, LoadError> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                match Frame::parse(&block) {
                    Some(frame) => return Ok(frame),
                    None => continue,
                }
            }
            if self.unread.len() > MAX_FRAME_BYTES {
                return Err(LoadError("a frame is too long".to_owned()));
            }
            let piece = self.pieces.next().await;
            let piece = piece.ok_or_else(|| LoadError("the event stream ended".to_owned()))?;
            self.unread.extend(piece.map_err(|error| load_error("the event stream", error))?);
        }
    }
}

impl Frame {
    /// Parses a block of lines; `None` for a comment.
    fn parse(block: &[u8]) -> Option<Self> {
        let block = String::from_utf8_lossy(block);
        let field = |key: &str| block.lines().find_map(|line| line.strip_prefix(key));
        let (name, data) = (field("event: ")?, field("data: ")?);
        Some(Self { name: name.to_owned(), data: data.to_owned() })
    }

    pub(super) fn json(&self) -> Result<Value, LoadError> {
        serde_json::from_str(&self.data).map_err(|error| load_error(&self.name, error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Frame;

    #[test]
    fn a_frame_has_a_name_and_data_and_a_comment_has_neither() {
        let frame =
            Frame::parse(b"id: 4\nevent: suspended\ndata: {\"call_id\":\"c\"}\n\n").unwrap();
        assert_eq!(frame.name, "suspended");
        assert_eq!(frame.json().unwrap()["call_id"], "c");
        assert!(Frame::parse(b":\n\n").is_none());
    }
}
