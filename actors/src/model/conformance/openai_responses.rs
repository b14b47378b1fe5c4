//! The dialect of OpenAI's Responses API.

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::render::{PDF, PNG};
use super::{
    Dialect, HostedRun, MessageEnd, ProviderError, Rendered, Unsupported, Utterance, run_cases,
};
use crate::model::Provider;
use crate::model::test_server::event;

pub(super) struct ResponsesDialect;

const NO_PAUSE: Unsupported = Unsupported("it never pauses");

impl Dialect for ResponsesDialect {
    fn provider(&self) -> Provider {
        Provider::OpenaiResponses
    }

    fn frames(
        &self,
        utterances: &[Utterance<'_>],
        end: Option<MessageEnd>,
    ) -> Rendered<Vec<String>> {
        let mut builder = ResponsesFrames::default();
        let begun = response("in_progress", &[], Value::Null);
        builder.event("response.created", json!({"response": begun}));
        let mut utterances = utterances.iter().peekable();
        while let Some(utterance) = utterances.next() {
            match *utterance {
                Utterance::Text(text) => {
                    let more = |utterance: &&Utterance<'_>| matches!(utterance, Utterance::Text(_));
                    let more = std::iter::from_fn(|| utterances.next_if(more));
                    let more =
                        more.map(
                            |utterance| {
                                if let Utterance::Text(text) = *utterance { text } else { "" }
                            },
                        );
                    builder.text(&[text].into_iter().chain(more).collect::<Vec<_>>(), json!([]));
                }
                Utterance::Cited(text) => builder.text(&[text], json!([cites()])),
                Utterance::Refusal(text) => builder.refusal(text),
                Utterance::Thinking(pieces, sealed) => builder.thinking(pieces, sealed),
                Utterance::Sealed(sealed) => builder.thinking(&[], Some(sealed)),
                Utterance::Call(id, name, args) => builder.call(id, name, args),
                Utterance::Hosted => builder.item(search()),
                Utterance::HostedStart | Utterance::HostedResult => return Err(NO_PAUSE),
                Utterance::KeepAlive => builder.frames.push(": keep-alive\n\n".to_owned()),
            }
        }
        if let Some(end) = end {
            builder.end(end)?;
        }
        Ok(builder.frames)
    }

    fn error(&self, kind: ProviderError, text: &str) -> (u16, Value) {
        let error = |status, kind: &str, code: Value, message: &str| {
            let message = format!("{message}{text}");
            (status, json!({"error": {"message": message, "type": kind, "code": code}}))
        };
        match kind {
            ProviderError::RateLimit => error(429, "requests", json!("rate_limit_exceeded"), ""),
            ProviderError::Overload => {
                error(503, "server_error", json!("server_error"), "Overloaded. ")
            }
            ProviderError::BadRequest => {
                error(400, "invalid_request_error", json!("invalid_prompt"), "No. ")
            }
            ProviderError::TooLong => {
                let code = json!("context_length_exceeded");
                let message = "Your input exceeds the context window of this model. ";
                error(400, "invalid_request_error", code, message)
            }
        }
    }

    fn stream_error(&self, kind: ProviderError, text: &str) -> Rendered<String> {
        let (_, body) = self.error(kind, text);
        let error = json!({"code": body["error"]["code"], "message": body["error"]["message"]});
        let mut failed = response("failed", &[], Value::Null);
        failed["error"] = error;
        let failed = json!({"type": "response.failed", "response": failed, "sequence_number": 9});
        Ok(event(failed))
    }

    fn messages(&self) -> &'static str {
        "/input"
    }

    fn calls(&self, body: &Value) -> Vec<String> {
        ids(body, "function_call")
    }

    fn results(&self, body: &Value) -> Vec<String> {
        ids(body, "function_call_output")
    }

    fn is_legal(&self, id: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        (1..=64).contains(&id.len()) && id.chars().all(plain)
    }

    fn image(&self) -> Rendered<Value> {
        let url = format!("data:image/png;base64,{PNG}");
        Ok(json!({"type": "input_image", "image_url": url, "detail": "auto"}))
    }

    fn document(&self) -> Rendered<Value> {
        let data = format!("data:application/pdf;base64,{PDF}");
        Ok(json!({"type": "input_file", "filename": "R.pdf", "file_data": data}))
    }

    fn structured_output(&self, schema: &Value) -> Rendered<Value> {
        Ok(json!({"format": {"type": "json_schema", "name": "answer", "schema": schema}}))
    }

    fn cache_marks(&self, _: &Value) -> Rendered<Vec<String>> {
        Err(Unsupported("it finds the prefix by itself"))
    }

    fn cache_key(&self) -> Rendered<&'static str> {
        Ok("/prompt_cache_key")
    }

    fn hosted(&self) -> Rendered<HostedRun> {
        let options = json!({"openai_responses": {"type": "web_search_preview"}});
        let args = search()["action"].clone();
        Ok(HostedRun { options, args, result: search() })
    }
}

fn search() -> Value {
    let action = json!({"type": "search", "query": "weather"});
    json!({"id": "ws_1", "type": "web_search_call", "status": "completed", "action": action})
}

fn cites() -> Value {
    json!({"type": "url_citation", "start_index": 0, "end_index": 9, "title": "Weather",
        "url": "https://example.org/"})
}

fn ids(body: &Value, kind: &str) -> Vec<String> {
    let items = body["input"].as_array().unwrap().iter().filter(|item| item["type"] == kind);
    items.map(|item| item["call_id"].as_str().unwrap().to_owned()).collect()
}

/// The events of a message, and the items that they contain.
#[derive(Default)]
struct ResponsesFrames {
    frames: Vec<String>,
    items: Vec<Value>,
    refused: bool,
}

impl ResponsesFrames {
    fn event(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.frames.len().into();
        self.frames.push(format!("event: {kind}\n{}", event(fields)));
    }

    /// Adds an event about the next item.
    fn within(&mut self, kind: &str, mut fields: Value) {
        fields["item_id"] = "item".into();
        fields["output_index"] = self.items.len().into();
        self.event(kind, fields);
    }

    fn item(&mut self, item: Value) {
        let output_index = self.items.len();
        let fields = json!({"output_index": output_index, "item": item});
        self.event("response.output_item.done", fields);
        self.items.push(item);
    }

    fn text(&mut self, pieces: &[&str], annotations: Value) {
        for piece in pieces {
            let fields = json!({"content_index": 0, "delta": piece, "logprobs": []});
            self.within("response.output_text.delta", fields);
        }
        let text = pieces.concat();
        self.message(json!({"type": "output_text", "text": text, "annotations": annotations}));
    }

    fn refusal(&mut self, text: &str) {
        self.refused = true;
        let fields = json!({"content_index": 0, "delta": text});
        self.within("response.refusal.delta", fields);
        self.message(json!({"type": "refusal", "refusal": text}));
    }

    fn message(&mut self, part: Value) {
        let id = format!("msg_{}", self.items.len());
        self.item(json!({"id": id, "type": "message", "status": "completed", "role": "assistant",
            "content": [part]}));
    }

    fn thinking(&mut self, pieces: &[&str], sealed: Option<&str>) {
        let part = |text: &str| json!({"type": "summary_text", "text": text});
        if !pieces.is_empty() {
            let fields = json!({"summary_index": 0, "part": part("")});
            self.within("response.reasoning_summary_part.added", fields);
        }
        for piece in pieces {
            let fields = json!({"summary_index": 0, "delta": piece});
            self.within("response.reasoning_summary_text.delta", fields);
        }
        let whole = pieces.concat();
        let summary: Vec<Value> =
            [part(&whole)].into_iter().filter(|_| !whole.is_empty()).collect();
        let id = format!("rs_{}", self.items.len());
        self.item(json!({"id": id, "type": "reasoning", "summary": summary,
            "encrypted_content": sealed}));
    }

    fn call(&mut self, id: &str, name: &str, args: &[&str]) {
        let item = |args: &str, status: &str| {
            json!({"id": "fc_1", "type": "function_call", "status": status, "call_id": id,
                "name": name, "arguments": args})
        };
        let begun = json!({"output_index": self.items.len(), "item": item("", "in_progress")});
        self.event("response.output_item.added", begun);
        for piece in args {
            self.within("response.function_call_arguments.delta", json!({"delta": piece}));
        }
        self.item(item(&args.concat(), "completed"));
    }

    fn end(&mut self, MessageEnd { stop, usage }: MessageEnd) -> Rendered<()> {
        let reason = match stop {
            StopReason::End | StopReason::ToolCalls => None,
            StopReason::MaxTokens => Some("max_output_tokens"),
            StopReason::Refusal if self.refused => None,
            StopReason::Refusal => Some("content_filter"),
            StopReason::Paused => return Err(NO_PAUSE),
        };
        let status = if reason.is_some() { "incomplete" } else { "completed" };
        let mut response = response(status, &self.items, tokens(usage));
        response["incomplete_details"] = json!(reason.map(|reason| json!({"reason": reason})));
        self.event(&format!("response.{status}"), json!({"response": response}));
        Ok(())
    }
}

fn response(status: &str, items: &[Value], usage: Value) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 0, "model": "m", "status": status,
        "output": items, "usage": usage, "tools": [], "tool_choice": "auto",
        "parallel_tool_calls": true})
}

fn tokens(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.tokens(),
    })
}

#[tokio::test]
async fn openai_responses_does_what_every_adapter_does() {
    run_cases(&ResponsesDialect).await;
}
