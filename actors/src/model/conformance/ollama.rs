//! The dialect of Ollama's own API.

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::render;
use super::render::PNG;
use super::{
    Dialect, HostedRun, MessageEnd, ProviderError, Rendered, Unsupported, Utterance, run_cases,
};
use crate::model::Provider;
use crate::model::test_server::TestResponse;

pub(super) struct OllamaDialect;

const NO_TOOLS: Unsupported = Unsupported("it runs no tools of its own");
const NO_SEALS: Unsupported = Unsupported("its thinking is neither signed nor sealed");
const NO_REFUSAL: Unsupported = Unsupported("a refusal is text like any other");
const NO_CACHE: Unsupported = Unsupported("it finds the prefix by itself and tells nothing");
const WHOLE: Unsupported = Unsupported("arguments come whole, as an object");

impl Dialect for OllamaDialect {
    fn provider(&self) -> Provider {
        Provider::Ollama
    }

    fn frames(
        &self,
        utterances: &[Utterance<'_>],
        end: Option<MessageEnd>,
    ) -> Rendered<Vec<String>> {
        let cut = end.is_some_and(|end| end.stop == StopReason::MaxTokens);
        let mut frames = Vec::new();
        for utterance in utterances {
            match *utterance {
                Utterance::Text(text) => frames.push(line(json!({"content": text}))),
                Utterance::Thinking(pieces, None) => {
                    let thinks = |it| line(json!({"content": "", "thinking": it}));
                    frames.extend(pieces.iter().map(thinks));
                }
                Utterance::Call(_, _, _) if cut => return Err(WHOLE),
                Utterance::Call(id, name, args) => frames.push(call(id, name, &args.concat())?),
                Utterance::Thinking(_, Some(_)) | Utterance::Sealed(_) => return Err(NO_SEALS),
                Utterance::Cited(_) => return Err(Unsupported("it cites nothing")),
                Utterance::Hosted | Utterance::HostedStart | Utterance::HostedResult => {
                    return Err(NO_TOOLS);
                }
                Utterance::Refusal(_) => return Err(NO_REFUSAL),
                Utterance::KeepAlive => frames.push("\n".to_owned()),
            }
        }
        let Some(MessageEnd { stop, usage }) = end else { return Ok(frames) };
        let reason = match stop {
            StopReason::End | StopReason::ToolCalls => "stop",
            StopReason::MaxTokens => "length",
            StopReason::Refusal => return Err(NO_REFUSAL),
            StopReason::Paused => return Err(NO_TOOLS),
        };
        let Usage { input_tokens, output_tokens, cached_tokens, cache_write_tokens, .. } = usage;
        if cached_tokens + cache_write_tokens > 0 {
            return Err(NO_CACHE);
        }
        let done = json!({"model": "m", "message": {"role": "assistant", "content": ""},
            "done": true, "done_reason": reason, "total_duration": 7,
            "prompt_eval_count": input_tokens, "eval_count": output_tokens});
        frames.push(format!("{done}\n"));
        Ok(frames)
    }

    fn frame(&self, data: &str) -> String {
        format!("{data}\n")
    }

    fn answer(&self, pieces: Vec<Vec<u8>>) -> TestResponse {
        let headers = vec![("content-type", "application/x-ndjson".to_owned())];
        TestResponse { headers, ..TestResponse::stream(pieces) }
    }

    fn error(&self, kind: ProviderError, text: &str) -> (u16, Value) {
        let (status, message) = match kind {
            ProviderError::RateLimit => (429, "too many requests: "),
            ProviderError::Overload => (503, "server busy, please try again: "),
            ProviderError::BadRequest => (400, "invalid options: "),
            ProviderError::TooLong => {
                (400, "prompt too long; exceeded max context length by 9 tokens ")
            }
        };
        (status, json!({"error": format!("{message}{text}")}))
    }

    fn stream_error(&self, _: ProviderError, _: &str) -> Rendered<String> {
        Err(Unsupported("an error in the stream does not say which kind it is"))
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
        !id.is_empty()
    }

    fn image(&self) -> Rendered<Value> {
        Ok(json!([PNG]))
    }

    fn document(&self) -> Rendered<Value> {
        Err(Unsupported("it reads no documents"))
    }

    fn structured_output(&self, schema: &Value) -> Rendered<Value> {
        let words = "When you have what you need, answer with nothing but JSON that satisfies \
                     this JSON Schema: ";
        Ok(format!("Be brief.\n\n{words}{schema}").into())
    }

    fn cache_marks(&self, _: &Value) -> Rendered<Vec<String>> {
        Err(NO_CACHE)
    }

    fn cache_key(&self) -> Rendered<&'static str> {
        Err(NO_CACHE)
    }

    fn hosted(&self) -> Rendered<HostedRun> {
        Err(NO_TOOLS)
    }
}

fn line(mut message: Value) -> String {
    message["role"] = "assistant".into();
    format!("{}\n", json!({"model": "m", "message": message, "done": false}))
}

/// Writes the arguments unchanged, even numbers that a value would round.
fn call(id: &str, name: &str, args: &str) -> Rendered<String> {
    let args = if args.is_empty() { "{}" } else { args };
    if serde_json::from_str::<Value>(args).is_err() {
        return Err(WHOLE);
    }
    let function = json!({"index": 0, "name": name, "arguments": "ARGS"});
    let call = json!({"id": id, "function": function});
    Ok(line(json!({"content": "", "tool_calls": [call]})).replace("\"ARGS\"", args))
}

#[tokio::test]
async fn ollama_does_what_every_adapter_does() {
    run_cases(&OllamaDialect).await;
}
