//! The stream of a turn in the protocol of an existing client, event by event.

use std::collections::VecDeque;

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::deadline::within;

/// A protocol whose requests stream the turn that they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    AgUi,
    CopilotKit,
    AiSdk,
    Responses,
    Chat,
}

impl Protocol {
    pub const ALL: [Self; 5] =
        [Self::AgUi, Self::CopilotKit, Self::AiSdk, Self::Responses, Self::Chat];

    /// A conversation for a test of this protocol.
    pub fn conversation(self) -> String {
        format!("of-{self:?}")
    }

    /// The path and the body of a request that says something to an agent.
    pub fn message(self, agent: &str, conversation: &str, text: &str) -> (String, Value) {
        let id = format!("m-{conversation}-{text}");
        match self {
            Self::AgUi | Self::CopilotKit => {
                let path = match self {
                    Self::CopilotKit => format!("/v1/copilotkit/agent/{agent}/run"),
                    _ => format!("/v1/agents/{agent}/ag-ui"),
                };
                let messages = json!([{"id": id, "role": "user", "content": text}]);
                let body = json!({"threadId": conversation, "runId": "r", "state": {},
                    "messages": messages, "tools": [], "context": [], "forwardedProps": {}});
                (path, body)
            }
            Self::AiSdk => {
                let parts = json!([{"type": "text", "text": text}]);
                let messages = json!([{"id": id, "role": "user", "parts": parts}]);
                let body = json!({"id": conversation, "messages": messages,
                    "trigger": "submit-message"});
                (format!("/v1/agents/{agent}/ui"), body)
            }
            Self::Responses => {
                let body = json!({"model": agent, "conversation": conversation, "input": text,
                    "stream": true});
                ("/openai/v1/responses".to_owned(), body)
            }
            Self::Chat => {
                let messages = json!([{"role": "user", "content": text}]);
                let body = json!({"model": agent, "conversation": conversation,
                    "messages": messages, "stream": true});
                ("/openai/v1/chat/completions".to_owned(), body)
            }
        }
    }
}

/// An open stream; dropping it closes its connection.
pub struct ProtocolStream {
    response: reqwest::Response,
    unread: Vec<u8>,
    events: VecDeque<Value>,
}

impl ProtocolStream {
    /// Says something to an agent, and opens the stream of what follows.
    pub async fn open(
        client: &Client,
        protocol: Protocol,
        (agent, conversation): (&str, &str),
        text: &str,
    ) -> Self {
        let (path, body) = protocol.message(agent, conversation, text);
        let response = client.open_stream(Method::POST, &path, &body).await;
        Self { response, unread: Vec::new(), events: VecDeque::new() }
    }

    /// The next event; one that is no JSON is a string. `None` at the proper end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        within("an event of the stream", async {
            loop {
                if let Some(event) = self.events.pop_front() {
                    return Some(event);
                }
                let chunk = self.response.chunk().await.expect("the connection was cut");
                self.unread.extend_from_slice(&chunk?);
                while let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                    let block = String::from_utf8(block).unwrap();
                    let data = block.lines().find_map(|line| line.strip_prefix("data: "));
                    let event = |data| serde_json::from_str(data).unwrap_or_else(|_| json!(data));
                    self.events.extend(data.map(event));
                }
            }
        })
        .await
    }

    /// Reads until an event has this text.
    pub async fn until(&mut self, text: &str) {
        while !self.next().await.expect("the stream has ended").to_string().contains(text) {}
    }

    /// Reads to the proper end of the stream.
    pub async fn rest(mut self) -> Vec<Value> {
        let mut read = Vec::new();
        while let Some(event) = self.next().await {
            read.push(event);
        }
        read
    }
}
