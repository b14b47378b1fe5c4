//! Ollama's own format.

use abide_conversation::message::{StopReason, Usage};
use serde_json::{Value, json};

use super::draw;
use super::draw::PNG;
use super::{Dialect, Drawn, End, Hosted, NotOnThisWire, Say, Trouble, verdicts};
use crate::model::Provider;
use crate::model::testing::Answer;

pub(super) struct Ollama;

const NO_TOOLS: NotOnThisWire = NotOnThisWire("it runs no tools of its own");
const NO_SEALS: NotOnThisWire = NotOnThisWire("its thinking is neither signed nor sealed");
const NO_REFUSAL: NotOnThisWire = NotOnThisWire("a refusal is text like any other");
const NO_CACHE: NotOnThisWire = NotOnThisWire("it finds the prefix by itself and tells nothing");
const WHOLE: NotOnThisWire = NotOnThisWire("arguments come whole, as an object");

impl Dialect for Ollama {
    fn provider(&self) -> Provider {
        Provider::Ollama
    }

    fn frames(&self, said: &[Say<'_>], end: Option<End>) -> Drawn<Vec<String>> {
        let cut = end.is_some_and(|end| end.stop == StopReason::MaxTokens);
        let mut frames = Vec::new();
        for say in said {
            match *say {
                Say::Text(text) => frames.push(line(json!({"content": text}))),
                Say::Thinking(pieces, None) => {
                    let thinks = |it| line(json!({"content": "", "thinking": it}));
                    frames.extend(pieces.iter().map(thinks));
                }
                Say::Call(_, _, _) if cut => return Err(WHOLE),
                Say::Call(id, name, args) => frames.push(call(id, name, &args.concat())?),
                Say::Thinking(_, Some(_)) | Say::Sealed(_) => return Err(NO_SEALS),
                Say::Cited(_) => return Err(NotOnThisWire("it cites nothing")),
                Say::Hosted | Say::HostedBegins | Say::HostedEnds => return Err(NO_TOOLS),
                Say::Refuses(_) => return Err(NO_REFUSAL),
                Say::KeepAlive => frames.push("\n".to_owned()),
            }
        }
        let Some(End { stop, usage }) = end else { return Ok(frames) };
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

    fn answer(&self, pieces: Vec<Vec<u8>>) -> Answer {
        let headers = vec![("content-type", "application/x-ndjson".to_owned())];
        Answer { headers, ..Answer::stream(pieces) }
    }

    fn trouble(&self, trouble: Trouble, said: &str) -> (u16, Value) {
        let (status, message) = match trouble {
            Trouble::RateLimit => (429, "too many requests: "),
            Trouble::Overload => (503, "server busy, please try again: "),
            Trouble::BadRequest => (400, "invalid options: "),
            Trouble::TooLong => (400, "prompt too long; exceeded max context length by 9 tokens "),
        };
        (status, json!({"error": format!("{message}{said}")}))
    }

    fn trouble_in_stream(&self, _: Trouble, _: &str) -> Drawn<String> {
        Err(NotOnThisWire("an error in the stream does not say which kind it is"))
    }

    fn messages(&self) -> &'static str {
        "/messages"
    }

    fn calls(&self, body: &Value) -> Vec<String> {
        draw::chat_calls(body)
    }

    fn results(&self, body: &Value) -> Vec<String> {
        draw::chat_results(body)
    }

    fn is_legal(&self, id: &str) -> bool {
        !id.is_empty()
    }

    fn image(&self) -> Drawn<Value> {
        Ok(json!([PNG]))
    }

    fn document(&self) -> Drawn<Value> {
        Err(NotOnThisWire("it reads no documents"))
    }

    fn structured(&self, schema: &Value) -> Drawn<Value> {
        let words = "When you have what you need, answer with nothing but JSON that satisfies \
                     this JSON Schema: ";
        Ok(format!("Be brief.\n\n{words}{schema}").into())
    }

    fn marked(&self, _: &Value) -> Drawn<Vec<String>> {
        Err(NO_CACHE)
    }

    fn cache_key(&self) -> Drawn<&'static str> {
        Err(NO_CACHE)
    }

    fn hosted(&self) -> Drawn<Hosted> {
        Err(NO_TOOLS)
    }
}

fn line(mut message: Value) -> String {
    message["role"] = "assistant".into();
    format!("{}\n", json!({"model": "m", "message": message, "done": false}))
}

/// The arguments as they are written, also those that a value would round.
fn call(id: &str, name: &str, args: &str) -> Drawn<String> {
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
    verdicts(&Ollama).await;
}
