//! Decodes a reply of chat completions from the chunks of its stream.

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde::Deserialize;
use serde_json::Value;

use crate::model::http;
use crate::model::http::{Frame, MAX_REPLY_BYTES, MAX_REPLY_CALLS, error};
use crate::model::{CallPiece, ModelError, ModelToolCall, ReplyChunk, ReplyEnd};

/// The decoder for one reply.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    calls: Vec<PartialCall>,
    call_pieces: Vec<CallPiece>,
    usage: Option<Usage>,
    finish_reason: Option<String>,
    has_refusal: bool,
    has_text: bool,
    bytes: usize,
    is_done: bool,
}

impl http::ReplyDecoder for ChatDecoder {
    fn push(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        let data = frame.data;
        if data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(Vec::new());
        }
        let chunk: ChatChunk = serde_json::from_str(&data).map_err(|_| error::unreadable())?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(error::from_stream(&error));
        }
        let usage = chunk.usage.and_then(|usage| serde_json::from_value::<ChatUsage>(usage).ok());
        if let Some(usage) = usage {
            self.usage = Some(Usage {
                input_tokens: usage.prompt_tokens.unwrap_or(0),
                output_tokens: usage.completion_tokens.unwrap_or(0),
                cached_tokens: usage
                    .prompt_tokens_details
                    .and_then(|it| it.cached_tokens)
                    .unwrap_or(0),
                ..Usage::default()
            });
        }
        let mut chunks = Vec::new();
        for choice in chunk.choices.unwrap_or_default() {
            if choice.index.unwrap_or(0) != 0 {
                continue;
            }
            self.apply_delta(choice.delta.unwrap_or_default(), &mut chunks)?;
            self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
        }
        Ok(chunks)
    }

    fn take_call_pieces(&mut self) -> Vec<CallPiece> {
        std::mem::take(&mut self.call_pieces)
    }

    fn is_message_complete(&self) -> bool {
        self.is_done || self.finish_reason.is_some()
    }

    fn is_stream_complete(&self) -> bool {
        self.is_done
    }

    fn finish(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let cut = self.finish_reason.as_deref() == Some("length");
        let stop = match self.finish_reason.as_deref() {
            _ if self.has_refusal => Some(StopReason::Refusal),
            Some("stop") => Some(StopReason::End),
            Some("tool_calls" | "function_call") => Some(StopReason::ToolCalls),
            Some("length") => Some(StopReason::MaxTokens),
            Some("content_filter") => Some(StopReason::Refusal),
            Some(_) | None => None,
        };
        if stop == Some(StopReason::Refusal) && !self.has_text && self.calls.is_empty() {
            return Err(error::refused(""));
        }
        let calls = self.calls.into_iter().map(|call| ReplyChunk::Call(call.into_call(cut)));
        let done = ReplyEnd { usage: self.usage, stop, verbatim: None };
        Ok(calls.chain([ReplyChunk::Done(done)]).collect())
    }
}

impl ChatDecoder {
    fn apply_delta(
        &mut self,
        delta: ChatDelta,
        chunks: &mut Vec<ReplyChunk>,
    ) -> Result<(), ModelError> {
        let thinking = text(delta.reasoning_content).or_else(|| text(delta.reasoning));
        if let Some(thinking) = thinking {
            self.count_bytes(thinking.len())?;
            chunks.push(ReplyChunk::Thinking(thinking));
        }
        self.has_refusal |= delta.refusal.as_ref().is_some_and(|text| !text.is_null());
        for text in [text(delta.content), text(delta.refusal)].into_iter().flatten() {
            self.count_bytes(text.len())?;
            self.has_text = true;
            chunks.push(ReplyChunk::Text(text));
        }
        for fragment in delta.tool_calls.unwrap_or_default() {
            self.apply_fragment(fragment)?;
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes += bytes;
        if self.bytes > MAX_REPLY_BYTES { Err(error::too_large()) } else { Ok(()) }
    }

    /// Adds a fragment to its call, which its index names. If a server omits the index or gives
    /// every call the same one, a new id together with a name starts a new call.
    fn apply_fragment(&mut self, fragment: CallFragment) -> Result<(), ModelError> {
        let function = fragment.function.unwrap_or_default();
        let id = fragment.id.unwrap_or_default();
        let name = function.name.unwrap_or_default();
        let args = match function.arguments {
            Some(Value::String(args)) => args,
            Some(Value::Null) | None => String::new(),
            Some(whole) => whole.to_string(),
        };
        self.count_bytes(id.len() + name.len() + args.len())?;
        let belongs = |call: &PartialCall| {
            let begins = !id.is_empty() && !call.id.is_empty() && id != call.id && !name.is_empty();
            fragment.index.is_none_or(|index| call.index == index) && !begins
        };
        let known = match fragment.index {
            Some(index) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1),
        };
        let at = match known.filter(|at| self.calls.get(*at).is_some_and(belongs)) {
            Some(at) => at,
            None if self.calls.len() == MAX_REPLY_CALLS => {
                return Err(error::too_many_calls(MAX_REPLY_CALLS));
            }
            None => {
                let index = fragment.index.unwrap_or(self.calls.len() as u64);
                self.calls.push(PartialCall { index, ..Default::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        let was_named = !call.name.is_empty();
        if !was_named {
            call.name = name;
        }
        call.args.push_str(&args);
        let named = !call.name.is_empty();
        // Arguments that came before the name are told with it.
        let piece = match (was_named, named) {
            (true, _) if !args.is_empty() => Some((None, args)),
            (false, true) => Some((Some(call.name.clone()), call.args.clone())),
            (true, _) | (false, false) => None,
        };
        let piece = piece.map(|(name, args_text)| CallPiece { index: at, name, args_text });
        self.call_pieces.extend(piece);
        Ok(())
    }
}

/// A call whose arguments are still being streamed.
#[derive(Debug, Default)]
struct PartialCall {
    index: u64,
    id: String,
    name: String,
    args: String,
}

impl PartialCall {
    fn into_call(self, cut: bool) -> ModelToolCall {
        ModelToolCall::from_text(self.id, self.name, self.args, cut)
    }
}

/// The text of a field, which some servers send as a list of typed pieces; `None` if it is empty.
fn text(value: Option<Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text,
        Value::Array(pieces) => {
            pieces.iter().filter_map(|piece| piece.get("text")?.as_str()).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

#[derive(Deserialize)]
struct ChatChunk {
    error: Option<Value>,
    choices: Option<Vec<ChatChoice>>,
    /// Parsed separately: malformed usage does not spoil the reply.
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct ChatUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptTokenDetails>,
}

#[derive(Deserialize)]
struct PromptTokenDetails {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ChatChoice {
    index: Option<u64>,
    delta: Option<ChatDelta>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct ChatDelta {
    content: Option<Value>,
    refusal: Option<Value>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<CallFragment>>,
}

#[derive(Deserialize)]
struct CallFragment {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionFragment>,
}

#[derive(Default, Deserialize)]
struct FunctionFragment {
    name: Option<String>,
    arguments: Option<Value>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            Just(json!({})),
            Just(json!([{"text": "x"}, 7])),
            any::<u64>().prop_map(Value::from),
            "[a-z{}\"]{0,4}".prop_map(Value::from),
        ]
    }

    fn chunk() -> impl Strategy<Value = Value> {
        (field(), field(), field(), field(), field()).prop_map(|(id, index, name, args, text)| {
            let function = json!({"name": name, "arguments": args});
            let call = json!({"id": id, "index": index, "function": function});
            let delta = json!({"content": text, "reasoning": args, "tool_calls": [call]});
            json!({"choices": [{"delta": delta, "finish_reason": name}], "usage": index})
        })
    }

    proptest! {
        #[test]
        fn no_chunk_makes_it_panic_and_no_call_gets_lost(
            chunks in prop::collection::vec(chunk(), 0..20),
        ) {
            let mut reply = ChatDecoder::default();
            let mut ids = Vec::new();
            for chunk in chunks {
                let id = chunk["choices"][0]["delta"]["tool_calls"][0]["id"].clone();
                let data = chunk.to_string();
                if http::ReplyDecoder::push(&mut reply, Frame { event: String::new(), data }).is_ok() {
                    ids.extend(id.as_str().filter(|id| !id.is_empty()).map(str::to_owned));
                }
            }
            let begun = !ids.is_empty();
            let parts = http::ReplyDecoder::finish(Box::new(reply)).unwrap_or_default();
            let ended = matches!(parts.last(), Some(ReplyChunk::Done(_)));
            prop_assert!(ended);
            for part in &parts {
                if let ReplyChunk::Call(call) = part {
                    prop_assert!(call.id.is_empty() || ids.contains(&call.id));
                }
            }
            prop_assert!(!begun || parts.len() > 1);
        }
    }
}
