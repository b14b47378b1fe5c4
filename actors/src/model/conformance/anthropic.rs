//! The dialect of Anthropic's Messages API.

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::render::{PDF, PNG, texts_beside, without};
use super::{
    Dialect, HostedRun, MessageEnd, ProviderError, Rendered, Unsupported, Utterance, run_cases,
};
use crate::model::Provider;

pub(super) struct AnthropicDialect;

const SEARCH: &str = "srvtoolu_01";

impl Dialect for AnthropicDialect {
    fn provider(&self) -> Provider {
        Provider::Anthropic
    }

    fn frames(
        &self,
        utterances: &[Utterance<'_>],
        end: Option<MessageEnd>,
    ) -> Rendered<Vec<String>> {
        let mut builder = AnthropicFrames::default();
        let usage = end.map(|end| end.usage).unwrap_or_default();
        let message = json!({"id": "msg_01", "type": "message", "role": "assistant", "content": [],
            "model": "some-model", "stop_reason": null, "usage": input(usage)});
        builder.event("message_start", json!({"message": message}));
        for utterance in utterances {
            builder.say(utterance);
        }
        builder.close();
        if let Some(MessageEnd { stop, usage }) = end {
            let reason = match stop {
                StopReason::End => "end_turn",
                StopReason::ToolCalls => "tool_use",
                StopReason::MaxTokens => "max_tokens",
                StopReason::Refusal => "refusal",
                StopReason::Paused => "pause_turn",
            };
            let delta = json!({"stop_reason": reason, "stop_sequence": null});
            let usage = json!({"output_tokens": usage.output_tokens});
            builder.event("message_delta", json!({"delta": delta, "usage": usage}));
            builder.event("message_stop", json!({}));
        }
        Ok(builder.frames)
    }

    fn error(&self, kind: ProviderError, text: &str) -> (u16, Value) {
        let (status, kind, message) = match kind {
            ProviderError::RateLimit => (429, "rate_limit_error", ""),
            ProviderError::Overload => (529, "overloaded_error", "Overloaded. "),
            ProviderError::BadRequest => (400, "invalid_request_error", ""),
            ProviderError::TooLong => {
                (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum")
            }
        };
        let error = json!({"type": kind, "message": format!("{message}{text}")});
        (status, json!({"type": "error", "error": error, "request_id": "req_01"}))
    }

    fn stream_error(&self, kind: ProviderError, text: &str) -> Rendered<String> {
        Ok(format!("event: error\ndata: {}\n\n", self.error(kind, text).1))
    }

    fn messages(&self) -> &'static str {
        "/messages"
    }

    fn calls(&self, body: &Value) -> Vec<String> {
        ids(body, "tool_use", "id")
    }

    fn results(&self, body: &Value) -> Vec<String> {
        ids(body, "tool_result", "tool_use_id")
    }

    fn is_legal(&self, id: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        (1..=64).contains(&id.len()) && id.chars().all(plain)
    }

    fn image(&self) -> Rendered<Value> {
        let source = json!({"type": "base64", "media_type": "image/png", "data": PNG});
        Ok(json!({"type": "image", "source": source}))
    }

    fn document(&self) -> Rendered<Value> {
        let source = json!({"type": "base64", "media_type": "application/pdf", "data": PDF});
        Ok(json!({"type": "document", "source": source, "title": "R"}))
    }

    fn structured_output(&self, schema: &Value) -> Rendered<Value> {
        Ok(json!({"format": {"type": "json_schema", "schema": schema}}))
    }

    fn cache_marks(&self, body: &Value) -> Rendered<Vec<String>> {
        let system = texts_beside(&body["system"], "cache_control");
        let messages = texts_beside(&body["messages"], "cache_control");
        Ok([system, messages].concat())
    }

    fn without_cache_marks(&self, body: &Value) -> Value {
        without(body, "cache_control")
    }

    fn cache_key(&self) -> Rendered<&'static str> {
        Err(Unsupported("its cache has marks, not names"))
    }

    fn hosted(&self) -> Rendered<HostedRun> {
        let found = json!({"type": "web_search_result", "url": "https://a.example/",
            "title": "A", "encrypted_content": "RU5DUllQVEVE", "page_age": null});
        Ok(HostedRun {
            options: json!({"anthropic": {"type": "web_search_20250305", "name": "web_search"}}),
            args: json!({"query": "rain"}),
            result: json!([found]),
        })
    }
}

/// The frames so far, and whether a block of text is open.
#[derive(Default)]
struct AnthropicFrames {
    frames: Vec<String>,
    blocks: u64,
    open: bool,
}

impl AnthropicFrames {
    fn event(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        self.frames.push(format!("event: {kind}\ndata: {data}\n\n"));
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.event("content_block_stop", json!({"index": self.blocks - 1}));
        }
    }

    fn start(&mut self, block: Value) {
        self.close();
        let data = json!({"index": self.blocks, "content_block": block});
        self.event("content_block_start", data);
        self.blocks += 1;
        self.open = true;
    }

    fn delta(&mut self, delta: Value) {
        self.event("content_block_delta", json!({"index": self.blocks - 1, "delta": delta}));
    }

    fn text(&mut self, text: &str) {
        self.delta(json!({"type": "text_delta", "text": text}));
    }

    fn say(&mut self, utterance: &Utterance<'_>) {
        // Text continues in the open block; everything else has a block of its own.
        match *utterance {
            Utterance::Text(text) | Utterance::Refusal(text) => {
                if !self.open {
                    self.start(json!({"type": "text", "text": ""}));
                }
                self.text(text);
            }
            Utterance::Cited(text) => {
                let citation = json!({"type": "web_search_result_location",
                    "cited_text": "rain", "url": "https://a.example/", "title": "A",
                    "encrypted_index": "SU5ERVg="});
                self.start(json!({"type": "text", "text": "", "citations": []}));
                self.delta(json!({"type": "citations_delta", "citation": citation}));
                self.text(text);
                self.close();
            }
            Utterance::Thinking(pieces, signature) => {
                self.start(json!({"type": "thinking", "thinking": "", "signature": ""}));
                for piece in pieces {
                    self.delta(json!({"type": "thinking_delta", "thinking": piece}));
                }
                if let Some(signature) = signature {
                    self.delta(json!({"type": "signature_delta", "signature": signature}));
                }
                self.close();
            }
            Utterance::Sealed(data) => {
                self.start(json!({"type": "redacted_thinking", "data": data}));
                self.close();
            }
            Utterance::Call(id, name, args) => self.call("tool_use", id, name, args),
            Utterance::Hosted => {
                self.call("server_tool_use", SEARCH, "web_search", &["{\"query\":", "\"rain\"}"]);
                self.found();
            }
            Utterance::HostedStart => {
                self.call("server_tool_use", SEARCH, "web_search", &["{\"query\":", "\"rain\"}"]);
            }
            Utterance::HostedResult => self.found(),
            Utterance::KeepAlive => self.event("ping", json!({})),
        }
    }

    fn call(&mut self, kind: &str, id: &str, name: &str, args: &[&str]) {
        self.start(json!({"type": kind, "id": id, "name": name, "input": {}}));
        for args in [""].iter().chain(args) {
            self.delta(json!({"type": "input_json_delta", "partial_json": args}));
        }
        self.close();
    }

    fn found(&mut self) {
        let result = AnthropicDialect.hosted().unwrap().result;
        self.start(json!({"type": "web_search_tool_result", "tool_use_id": SEARCH,
            "content": result}));
        self.close();
    }
}

/// The provider counts separately what it read from its cache and what it wrote to it.
fn input(usage: Usage) -> Value {
    let apart = usage.cached_tokens + usage.cache_write_tokens;
    json!({
        "input_tokens": usage.input_tokens - apart.min(usage.input_tokens),
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": 1,
    })
}

fn ids(body: &Value, kind: &str, field: &str) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    let blocks = blocks.filter(|block| block["type"] == kind);
    blocks.map(|block| block[field].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn anthropic_does_what_every_adapter_does() {
    run_cases(&AnthropicDialect).await;
}
