//! The dialect of chat completions.

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::render;
use super::render::{PDF, PNG};
use super::{
    Dialect, HostedRun, MessageEnd, ProviderError, Rendered, Unsupported, Utterance, run_cases,
};
use crate::model::Provider;
use crate::model::test_server::{DONE, delta, event, finish};

pub(super) struct OpenaiDialect;

const NO_TOOLS: Unsupported = Unsupported("it runs no tools of its own");
const NO_SEALS: Unsupported = Unsupported("it takes no thinking back");

impl Dialect for OpenaiDialect {
    fn provider(&self) -> Provider {
        Provider::Openai
    }

    fn frames(
        &self,
        utterances: &[Utterance<'_>],
        end: Option<MessageEnd>,
    ) -> Rendered<Vec<String>> {
        let mut frames = vec![delta(json!({"role": "assistant", "content": ""}))];
        let mut calls = 0;
        for utterance in utterances {
            match *utterance {
                Utterance::Text(text) => frames.push(delta(json!({"content": text}))),
                Utterance::Refusal(text) => frames.push(delta(json!({"refusal": text}))),
                Utterance::Thinking(pieces, None) => {
                    frames.extend(pieces.iter().map(|it| delta(json!({"reasoning_content": it}))));
                }
                Utterance::Thinking(_, Some(_)) | Utterance::Sealed(_) => return Err(NO_SEALS),
                Utterance::Call(id, name, args) => {
                    frames.extend(call(calls, id, name, args));
                    calls += 1;
                }
                Utterance::Cited(_) => return Err(Unsupported("it cites nothing")),
                Utterance::Hosted | Utterance::HostedStart | Utterance::HostedResult => {
                    return Err(NO_TOOLS);
                }
                Utterance::KeepAlive => frames.push(": keep-alive\n\n".to_owned()),
            }
        }
        let Some(MessageEnd { stop, usage }) = end else { return Ok(frames) };
        frames.push(finish(match stop {
            StopReason::End => "stop",
            StopReason::ToolCalls => "tool_calls",
            StopReason::MaxTokens => "length",
            StopReason::Refusal
                if utterances
                    .iter()
                    .any(|utterance| matches!(utterance, Utterance::Refusal(_))) =>
            {
                "stop"
            }
            StopReason::Refusal => "content_filter",
            StopReason::Paused => return Err(NO_TOOLS),
        }));
        if usage.cache_write_tokens > 0 {
            return Err(Unsupported("it does not tell what it writes into its cache"));
        }
        frames.push(event(json!({"choices": [], "usage": tokens(usage)})));
        frames.push(DONE.to_owned());
        Ok(frames)
    }

    fn error(&self, kind: ProviderError, text: &str) -> (u16, Value) {
        let error = |status, kind: &str, code: Value, message: &str| {
            let message = format!("{message}{text}");
            (status, json!({"error": {"message": message, "type": kind, "code": code}}))
        };
        match kind {
            ProviderError::RateLimit => error(429, "requests", json!("rate_limit_exceeded"), ""),
            ProviderError::Overload => error(503, "server_error", Value::Null, "Overloaded. "),
            ProviderError::BadRequest => error(400, "invalid_request_error", Value::Null, ""),
            ProviderError::TooLong => {
                let code = json!("context_length_exceeded");
                let message = "This model's maximum context length is 8192 tokens. ";
                error(400, "invalid_request_error", code, message)
            }
        }
    }

    fn stream_error(&self, kind: ProviderError, text: &str) -> Rendered<String> {
        Ok(event(self.error(kind, text).1))
    }

    fn messages(&self) -> &'static str {
        "/messages"
    }

    fn calls(&self, body: &Value) -> Vec<String> {
        render::chat_calls(body)
    }

    fn results(&self, body: &Value) -> Vec<String> {
        render::chat_results(body)
    }

    fn is_legal(&self, id: &str) -> bool {
        (1..=40).contains(&id.len()) && id.chars().all(|c| c.is_ascii_graphic())
    }

    fn image(&self) -> Rendered<Value> {
        let url = format!("data:image/png;base64,{PNG}");
        Ok(json!({"type": "image_url", "image_url": {"url": url}}))
    }

    fn document(&self) -> Rendered<Value> {
        let data = format!("data:application/pdf;base64,{PDF}");
        Ok(json!({"type": "file", "file": {"filename": "R.pdf", "file_data": data}}))
    }

    fn structured_output(&self, schema: &Value) -> Rendered<Value> {
        let shape = json!({"name": "answer", "schema": schema});
        Ok(json!({"type": "json_schema", "json_schema": shape}))
    }

    fn cache_marks(&self, _: &Value) -> Rendered<Vec<String>> {
        Err(Unsupported("it finds the prefix by itself"))
    }

    fn cache_key(&self) -> Rendered<&'static str> {
        Ok("/prompt_cache_key")
    }

    fn hosted(&self) -> Rendered<HostedRun> {
        Err(NO_TOOLS)
    }
}

fn call(index: u64, id: &str, name: &str, args: &[&str]) -> Vec<String> {
    let function = json!({"name": name, "arguments": ""});
    let begun = json!({"index": index, "id": id, "type": "function", "function": function});
    let more = |args: &&str| json!({"index": index, "function": {"arguments": args}});
    let fragments = [begun].into_iter().chain(args.iter().map(more));
    fragments.map(|fragment| delta(json!({"tool_calls": [fragment]}))).collect()
}

fn tokens(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

#[tokio::test]
async fn openai_does_what_every_adapter_does() {
    run_cases(&OpenaiDialect).await;
}
