//! An event stream, read frame by frame.

use serde_json::Value;

use crate::deadline::{DEADLINE, within};

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub name: String,
    pub id: Option<u64>,
    pub data: Value,
}

impl Frame {
    /// Whether this is one of the four frames that end a turn.
    pub fn is_terminal(&self) -> bool {
        ["turn_completed", "turn_cancelled", "turn_halted", "turn_failed"]
            .contains(&self.name.as_str())
    }
}

/// The ids of those frames that have one, in order.
pub fn ids(frames: &[Frame]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame.id).collect()
}

/// An open stream.
pub struct Frames {
    pub(crate) response: reqwest::Response,
    pub(crate) unread: Vec<u8>,
}

impl Frames {
    /// The next frame; `None` when the stream broke or ended.
    pub async fn next(&mut self) -> Option<Frame> {
        within("a frame", self.read()).await
    }

    /// Reads up to and including the first frame of this name.
    pub async fn wait_for(&mut self, name: &str) -> Vec<Frame> {
        let mut read = Vec::new();
        loop {
            match tokio::time::timeout(DEADLINE, self.read()).await {
                Ok(Some(frame)) => read.push(frame),
                Ok(None) => panic!("the stream ended before {name}: {read:#?}"),
                Err(_) => panic!("timed out waiting for {name}: {read:#?}"),
            }
            if read.last().is_some_and(|frame| frame.name == name) {
                return read;
            }
        }
    }

    /// The next frame, however long it takes.
    pub(crate) async fn read(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.buffered() {
                return Some(frame);
            }
            let chunk = self.response.chunk().await.ok()??;
            self.unread.extend_from_slice(&chunk);
        }
    }

    /// Reads the remaining frames, until the stream breaks.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut read = Vec::new();
        while let Some(frame) = self.next().await {
            read.push(frame);
        }
        read
    }

    fn buffered(&mut self) -> Option<Frame> {
        loop {
            let end = self.unread.windows(2).position(|two| two == b"\n\n")?;
            let block: Vec<u8> = self.unread.drain(..end + 2).collect();
            if let Some(frame) = frame(&String::from_utf8(block).unwrap()) {
                return Some(frame);
            }
        }
    }
}

/// Parses a block of lines; `None` for a comment.
fn frame(block: &str) -> Option<Frame> {
    let fields = block.lines().filter_map(|line| line.split_once(": "));
    let mut name = String::new();
    let mut id = None;
    let mut data = Vec::new();
    for (field, value) in fields {
        match field {
            "event" => name = value.to_owned(),
            "id" => id = Some(value.parse().unwrap()),
            "data" => data.push(value),
            _ => {}
        }
    }
    let data = (!data.is_empty()).then(|| data.join("\n"))?;
    Some(Frame { name, id, data: serde_json::from_str(&data).unwrap() })
}
