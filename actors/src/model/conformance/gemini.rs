//! The dialect of Gemini.

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::render::{PDF, PNG};
use super::{
    Dialect, HostedRun, MessageEnd, ProviderError, Rendered, Unsupported, Utterance, run_cases,
};
use crate::model::Provider;
use crate::model::test_server::event;

pub(super) struct GeminiDialect;

impl Dialect for GeminiDialect {
    fn provider(&self) -> Provider {
        Provider::Gemini
    }

    /// A signature is attached to the call that it belongs to, or to an empty text at the end.
    fn frames(
        &self,
        utterances: &[Utterance<'_>],
        end: Option<MessageEnd>,
    ) -> Rendered<Vec<String>> {
        let mut frames = Vec::new();
        let mut signed = None;
        for utterance in utterances {
            match *utterance {
                Utterance::Text(text) | Utterance::Refusal(text) => {
                    frames.push(part(&json!({"text": text})))
                }
                Utterance::Thinking(pieces, signature) => {
                    let thought = |text: &&str| part(&json!({"text": text, "thought": true}));
                    frames.extend(pieces.iter().map(thought));
                    signed = signature.or(signed);
                }
                Utterance::Sealed(seal) => {
                    frames.push(part(&json!({"text": "", "thoughtSignature": seal})));
                }
                Utterance::Call(id, name, args) => {
                    frames.push(call(id, name, args, signed.take(), end)?);
                }
                Utterance::Hosted => {
                    let run = self.hosted()?;
                    frames.push(part(&json!({"executableCode": run.args})));
                    frames.push(part(&json!({"codeExecutionResult": run.result})));
                }
                Utterance::Cited(_) => {
                    return Err(Unsupported("its sources are a search's result"));
                }
                Utterance::HostedStart | Utterance::HostedResult => return Err(NO_PAUSES),
                Utterance::KeepAlive => frames.push(": keep-alive\n\n".to_owned()),
            }
        }
        if let Some(signature) = signed {
            frames.push(part(&json!({"text": "", "thoughtSignature": signature})));
        }
        let Some(MessageEnd { stop, usage }) = end else { return Ok(frames) };
        let reason = match stop {
            StopReason::End | StopReason::ToolCalls => "STOP",
            StopReason::MaxTokens => "MAX_TOKENS",
            StopReason::Refusal => "SAFETY",
            StopReason::Paused => return Err(NO_PAUSES),
        };
        if usage.cache_write_tokens > 0 {
            return Err(Unsupported("it does not tell what it writes into its cache"));
        }
        let candidate = json!({"finishReason": reason, "index": 0});
        frames.push(event(json!({"candidates": [candidate], "usageMetadata": tokens(usage)})));
        Ok(frames)
    }

    fn error(&self, kind: ProviderError, text: &str) -> (u16, Value) {
        let error = |code: u16, status: &str, message: &str| {
            let message = format!("{message}{text}");
            (code, json!({"error": {"code": code, "message": message, "status": status}}))
        };
        match kind {
            ProviderError::RateLimit => {
                error(429, "RESOURCE_EXHAUSTED", "You exceeded your quota. ")
            }
            ProviderError::Overload => error(503, "UNAVAILABLE", "The model is overloaded. "),
            ProviderError::BadRequest => error(400, "INVALID_ARGUMENT", ""),
            ProviderError::TooLong => {
                let long = "The input token count (2) exceeds the maximum number of tokens \
                            allowed (1). ";
                error(400, "INVALID_ARGUMENT", long)
            }
        }
    }

    fn stream_error(&self, kind: ProviderError, text: &str) -> Rendered<String> {
        Ok(event(self.error(kind, text).1))
    }

    fn messages(&self) -> &'static str {
        "/contents"
    }

    fn calls(&self, body: &Value) -> Vec<String> {
        ids(body, "functionCall")
    }

    fn results(&self, body: &Value) -> Vec<String> {
        ids(body, "functionResponse")
    }

    fn is_legal(&self, id: &str) -> bool {
        !id.is_empty()
    }

    fn image(&self) -> Rendered<Value> {
        Ok(json!({"inlineData": {"mimeType": "image/png", "data": PNG}}))
    }

    fn document(&self) -> Rendered<Value> {
        Ok(json!({"inlineData": {"mimeType": "application/pdf", "data": PDF}}))
    }

    fn structured_output(&self, schema: &Value) -> Rendered<Value> {
        Ok(json!({"responseMimeType": "application/json", "responseJsonSchema": schema}))
    }

    fn cache_marks(&self, _: &Value) -> Rendered<Vec<String>> {
        Err(Unsupported("it finds the prefix by itself"))
    }

    fn cache_key(&self) -> Rendered<&'static str> {
        Err(Unsupported("it finds the prefix by itself"))
    }

    fn hosted(&self) -> Rendered<HostedRun> {
        Ok(HostedRun {
            options: json!({"gemini": {"codeExecution": {}}}),
            args: json!({"language": "PYTHON", "code": "print(1)"}),
            result: json!({"outcome": "OUTCOME_OK", "output": "1\n"}),
        })
    }
}

const NO_PAUSES: Unsupported = Unsupported("it never pauses");

fn part(part: &Value) -> String {
    let content = json!({"role": "model", "parts": [part]});
    event(json!({"candidates": [{"content": content, "index": 0}]}))
}

/// Calls are complete: their arguments are an object, written unchanged.
fn call(
    id: &str,
    name: &str,
    args: &[&str],
    signature: Option<&str>,
    end: Option<MessageEnd>,
) -> Rendered<String> {
    let cut = end.is_some_and(|end| end.stop == StopReason::MaxTokens);
    let whole = args.concat();
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(&whole).is_ok();
    if cut || !(object || args.is_empty()) {
        return Err(Unsupported("calls come whole"));
    }
    let mut rendered = json!({"functionCall": {"id": id, "name": name}});
    if object {
        rendered["functionCall"]["args"] = "ARGS".into();
    }
    if let Some(signature) = signature {
        rendered["thoughtSignature"] = signature.into();
    }
    Ok(part(&rendered).replace("\"ARGS\"", &whole))
}

fn ids(body: &Value, kind: &str) -> Vec<String> {
    let contents = body["contents"].as_array().unwrap().iter();
    let parts = contents.flat_map(|content| content["parts"].as_array().unwrap());
    let ids = parts.filter_map(|part| part[kind]["id"].as_str());
    ids.map(str::to_owned).collect()
}

fn tokens(usage: Usage) -> Value {
    let thought = usage.output_tokens / 2;
    json!({
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens - thought,
        "thoughtsTokenCount": thought,
    })
}

#[tokio::test]
async fn gemini_does_what_every_adapter_does() {
    run_cases(&GeminiDialect).await;
}
