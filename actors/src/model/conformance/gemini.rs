//! Gemini's own wire.

use abide_conversation::message::{StopReason, Usage};
use serde_json::{Value, json};

use super::draw::{PDF, PNG};
use super::{Dialect, Drawn, End, Hosted, NotOnThisWire, Say, Trouble, verdicts};
use crate::model::Provider;
use crate::model::testing::event;

pub(super) struct Gemini;

impl Dialect for Gemini {
    fn provider(&self) -> Provider {
        Provider::Gemini
    }

    /// A signature stands on the call that was thought of, or on an empty text at the end.
    fn frames(&self, said: &[Say<'_>], end: Option<End>) -> Drawn<Vec<String>> {
        let mut frames = Vec::new();
        let mut signed = None;
        for say in said {
            match *say {
                Say::Text(text) | Say::Refuses(text) => frames.push(part(&json!({"text": text}))),
                Say::Thinking(pieces, signature) => {
                    let thought = |text: &&str| part(&json!({"text": text, "thought": true}));
                    frames.extend(pieces.iter().map(thought));
                    signed = signature.or(signed);
                }
                Say::Sealed(seal) => {
                    frames.push(part(&json!({"text": "", "thoughtSignature": seal})));
                }
                Say::Call(id, name, args) => {
                    frames.push(call(id, name, args, signed.take(), end)?);
                }
                Say::Hosted => {
                    let run = self.hosted()?;
                    frames.push(part(&json!({"executableCode": run.args})));
                    frames.push(part(&json!({"codeExecutionResult": run.result})));
                }
                Say::Cited(_) => return Err(NotOnThisWire("its sources are a search's result")),
                Say::HostedBegins | Say::HostedEnds => return Err(NO_PAUSES),
                Say::KeepAlive => frames.push(": keep-alive\n\n".to_owned()),
            }
        }
        if let Some(signature) = signed {
            frames.push(part(&json!({"text": "", "thoughtSignature": signature})));
        }
        let Some(End { stop, usage }) = end else { return Ok(frames) };
        let reason = match stop {
            StopReason::End | StopReason::ToolCalls => "STOP",
            StopReason::MaxTokens => "MAX_TOKENS",
            StopReason::Refusal => "SAFETY",
            StopReason::Paused => return Err(NO_PAUSES),
        };
        if usage.cache_write_tokens > 0 {
            return Err(NotOnThisWire("it does not tell what it writes into its cache"));
        }
        let candidate = json!({"finishReason": reason, "index": 0});
        frames.push(event(json!({"candidates": [candidate], "usageMetadata": tokens(usage)})));
        Ok(frames)
    }

    fn trouble(&self, trouble: Trouble, said: &str) -> (u16, Value) {
        let error = |code: u16, status: &str, message: &str| {
            let message = format!("{message}{said}");
            (code, json!({"error": {"code": code, "message": message, "status": status}}))
        };
        match trouble {
            Trouble::RateLimit => error(429, "RESOURCE_EXHAUSTED", "You exceeded your quota. "),
            Trouble::Overload => error(503, "UNAVAILABLE", "The model is overloaded. "),
            Trouble::BadRequest => error(400, "INVALID_ARGUMENT", ""),
            Trouble::TooLong => {
                let long = "The input token count (2) exceeds the maximum number of tokens \
                            allowed (1). ";
                error(400, "INVALID_ARGUMENT", long)
            }
        }
    }

    fn trouble_in_stream(&self, trouble: Trouble, said: &str) -> Drawn<String> {
        Ok(event(self.trouble(trouble, said).1))
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

    fn image(&self) -> Drawn<Value> {
        Ok(json!({"inlineData": {"mimeType": "image/png", "data": PNG}}))
    }

    fn document(&self) -> Drawn<Value> {
        Ok(json!({"inlineData": {"mimeType": "application/pdf", "data": PDF}}))
    }

    fn structured(&self, schema: &Value) -> Drawn<Value> {
        Ok(json!({"responseMimeType": "application/json", "responseJsonSchema": schema}))
    }

    fn marked(&self, _: &Value) -> Drawn<Vec<String>> {
        Err(NotOnThisWire("it finds the prefix by itself"))
    }

    fn cache_key(&self) -> Drawn<&'static str> {
        Err(NotOnThisWire("it finds the prefix by itself"))
    }

    fn hosted(&self) -> Drawn<Hosted> {
        Ok(Hosted {
            options: json!({"gemini": {"codeExecution": {}}}),
            args: json!({"language": "PYTHON", "code": "print(1)"}),
            result: json!({"outcome": "OUTCOME_OK", "output": "1\n"}),
        })
    }
}

const NO_PAUSES: NotOnThisWire = NotOnThisWire("it never pauses");

fn part(part: &Value) -> String {
    let content = json!({"role": "model", "parts": [part]});
    event(json!({"candidates": [{"content": content, "index": 0}]}))
}

/// Calls come whole: their arguments are an object, as it was written.
fn call(
    id: &str,
    name: &str,
    args: &[&str],
    signature: Option<&str>,
    end: Option<End>,
) -> Drawn<String> {
    let cut = end.is_some_and(|end| end.stop == StopReason::MaxTokens);
    let whole = args.concat();
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(&whole).is_ok();
    if cut || !(object || args.is_empty()) {
        return Err(NotOnThisWire("calls come whole"));
    }
    let mut drawn = json!({"functionCall": {"id": id, "name": name}});
    if object {
        drawn["functionCall"]["args"] = "ARGS".into();
    }
    if let Some(signature) = signature {
        drawn["thoughtSignature"] = signature.into();
    }
    Ok(part(&drawn).replace("\"ARGS\"", &whole))
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
    verdicts(&Gemini).await;
}
