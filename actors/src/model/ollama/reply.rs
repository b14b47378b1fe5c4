//! Decodes a reply of Ollama from the lines of its stream.

use abide_conversation::message::{ProviderMessage, StopReason};
use abide_conversation::usage::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::PROVIDER;
use crate::model::http;
use crate::model::http::{Frame, MAX_REPLY_BYTES, MAX_REPLY_CALLS, error};
use crate::model::{ModelError, ModelRequest, ModelToolCall, ReplyChunk, ReplyEnd};

/// The decoder for one reply.
#[derive(Debug, Default)]
pub(super) struct OllamaDecoder {
    model: String,
    thinking: String,
    calls: Vec<ModelToolCall>,
    usage: Option<Usage>,
    done_reason: Option<String>,
    bytes: usize,
    is_done: bool,
}

impl OllamaDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self { model: request.settings.name.clone(), ..Self::default() }
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes += bytes;
        if self.bytes > MAX_REPLY_BYTES { Err(error::too_large()) } else { Ok(()) }
    }

    /// Adds a call, which is always complete and often has no id.
    fn push_call(&mut self, call: OllamaCall<'_>) -> Result<(), ModelError> {
        let function = call.function.unwrap_or_default();
        let args = function.arguments.map_or("", RawValue::get);
        // Some models write their arguments as a string of JSON.
        let args = serde_json::from_str(args).unwrap_or_else(|_| args.to_owned());
        let (id, name) = (call.id.unwrap_or_default(), function.name.unwrap_or_default());
        self.count_bytes(id.len() + name.len() + args.len())?;
        if self.calls.len() == MAX_REPLY_CALLS {
            return Err(error::too_many_calls(MAX_REPLY_CALLS));
        }
        self.calls.push(ModelToolCall::from_text(id, name, args, false));
        Ok(())
    }
}

impl http::ReplyDecoder for OllamaDecoder {
    fn push(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        let line: OllamaLine<'_> =
            serde_json::from_str(&frame.data).map_err(|_| error::unreadable())?;
        if let Some(error) = line.error {
            return Err(error::from_stream(&error));
        }
        let message = line.message.unwrap_or_default();
        let mut chunks = Vec::new();
        if let Some(thinking) = message.thinking.filter(|text| !text.is_empty()) {
            self.count_bytes(thinking.len())?;
            self.thinking.push_str(&thinking);
            chunks.push(ReplyChunk::Thinking(thinking));
        }
        if let Some(text) = message.content.filter(|text| !text.is_empty()) {
            self.count_bytes(text.len())?;
            chunks.push(ReplyChunk::Text(text));
        }
        for call in message.tool_calls.unwrap_or_default() {
            self.push_call(call)?;
        }
        if line.done == Some(true) {
            let is_counted = line.prompt_eval_count.is_some() || line.eval_count.is_some();
            self.usage = is_counted.then(|| Usage {
                input_tokens: line.prompt_eval_count.unwrap_or(0),
                output_tokens: line.eval_count.unwrap_or(0),
                ..Usage::default()
            });
            self.done_reason = line.done_reason;
            self.is_done = true;
        }
        Ok(chunks)
    }

    fn is_message_complete(&self) -> bool {
        self.is_done
    }

    fn is_stream_complete(&self) -> bool {
        self.is_done
    }

    fn finish(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let Self { model, thinking, calls, usage, done_reason: reason, .. } = *self;
        let stop = match reason.as_deref() {
            Some("stop") | None if !calls.is_empty() => Some(StopReason::ToolCalls),
            Some("stop") => Some(StopReason::End),
            Some("length") => Some(StopReason::MaxTokens),
            Some(_) | None => None,
        };
        // Models are trained to read their reasons for a call together with its results, but not
        // later.
        let is_read_again = !thinking.is_empty() && !calls.is_empty();
        let verbatim = is_read_again.then(|| ProviderMessage {
            provider: PROVIDER.to_owned(),
            model,
            items: vec![json!({"role": "assistant", "thinking": thinking})],
        });
        let done = ReplyChunk::Done(ReplyEnd { usage, stop, verbatim });
        Ok(calls.into_iter().map(ReplyChunk::Call).chain([done]).collect())
    }
}

#[derive(Deserialize)]
struct OllamaLine<'a> {
    error: Option<Value>,
    #[serde(borrow)]
    message: Option<OllamaMessage<'a>>,
    done: Option<bool>,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
}

#[derive(Default, Deserialize)]
struct OllamaMessage<'a> {
    content: Option<String>,
    thinking: Option<String>,
    #[serde(borrow)]
    tool_calls: Option<Vec<OllamaCall<'a>>>,
}

#[derive(Deserialize)]
struct OllamaCall<'a> {
    id: Option<String>,
    #[serde(borrow)]
    function: Option<OllamaFunction<'a>>,
}

/// The arguments are parsed separately, since a value would round large numbers.
#[derive(Default, Deserialize)]
struct OllamaFunction<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}
