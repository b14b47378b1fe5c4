//! Reads an event stream, frame by frame.

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::api::DEADLINE;
use crate::spec::Spec;

pub(crate) struct Stream {
    response: Response,
    received: String,
    spec: Spec,
    /// The schema of its frames.
    schema: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) event: String,
    pub(crate) data: Value,
    /// The seq of the event whose last frame this is.
    pub(crate) id: Option<u64>,
    /// The id as it was sent; with `cursor=chars` it may be a place inside a message.
    pub(crate) place: Option<String>,
}

impl Stream {
    pub(crate) async fn open(request: RequestBuilder) -> Self {
        Self::open_of(request, "StreamFrame").await
    }

    /// A stream whose frames have this schema.
    pub(crate) async fn open_of(request: RequestBuilder, schema: &'static str) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, received: String::new(), spec: Spec::new(), schema }
    }

    /// The next frame, checked against the document; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((block, rest)) = self.received.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.received = rest;
                if block.starts_with(':') {
                    continue;
                }
                return Some(self.frame(&block));
            }
            let chunk = tokio::time::timeout(DEADLINE, self.response.chunk()).await.unwrap();
            self.received.push_str(std::str::from_utf8(&chunk.unwrap()?).unwrap());
        }
    }

    fn frame(&self, block: &str) -> Frame {
        let line = |name: &str| {
            let mut lines = block.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let frame = Frame {
            event: line("event").unwrap().to_owned(),
            data: serde_json::from_str(line("data").unwrap()).unwrap(),
            id: line("id").filter(|id| !id.contains('.')).map(|id| id.parse().unwrap()),
            place: line("id").map(str::to_owned),
        };
        let mut whole = json!({"event": frame.event, "data": frame.data});
        if let Some(id) = line("id") {
            whole["id"] = json!(id);
        }
        self.spec.fits(self.schema, &whole);
        frame
    }

    /// The next frame of this name.
    pub(crate) async fn until(&mut self, event: &str) -> Frame {
        self.all_until(event).await.pop().unwrap()
    }

    /// All frames up to the next of this name.
    pub(crate) async fn all_until(&mut self, event: &str) -> Vec<Frame> {
        let mut all = Vec::new();
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("no {event}: {all:?}"));
            all.push(frame);
            if all.last().unwrap().event == event {
                return all;
            }
        }
    }
}
