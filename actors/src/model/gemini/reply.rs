//! Decodes a reply of Gemini from the chunks of its stream.

use abide_conversation::message::blocks::as_text;
use abide_conversation::message::{ProviderMessage, StopReason};
use abide_conversation::usage::Usage;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::PROVIDER;
use super::chunk::{Candidate, FunctionCall, GeminiChunk, GeminiPart, InlineData};
use super::provider_tools::ProviderRuns;
use crate::model::big_numbers::parse_exact;
use crate::model::http;
use crate::model::http::{Frame, MAX_REPLY_BYTES, MAX_REPLY_CALLS, error};
use crate::model::{ModelError, ModelRequest, ModelToolCall, ReplyChunk, ReplyEnd};

/// The largest number of parts in one message, where streamed text counts as one. Each part takes
/// memory in addition to its bytes.
const MAX_ITEMS: usize = 16_384;

/// The finish reasons that mean a refusal.
const REFUSAL_REASONS: [&str; 12] = [
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "ESCALATION",
    "MODEL_ARMOR",
    "PUP_LIMITED_DISABLED",
];

/// The decoder for one reply.
#[derive(Debug, Default)]
pub(super) struct GeminiDecoder {
    model: String,
    items: Vec<Value>,
    /// Whether the items hold more than text and calls.
    needs_verbatim: bool,
    /// Whether the reply has text for the user.
    has_text: bool,
    calls: Vec<ModelToolCall>,
    runs: ProviderRuns,
    grounding: Map<String, Value>,
    fetched_pages: Map<String, Value>,
    usage: Option<Usage>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    block_reason: Option<String>,
    bytes: usize,
}

impl GeminiDecoder {
    /// A decoder for the reply to a request.
    pub(super) fn new(request: &ModelRequest) -> Self {
        let (model, runs) = (request.settings.name.clone(), ProviderRuns::of(&request.tools));
        Self { model, runs, ..Self::default() }
    }

    fn read_candidate(&mut self, candidate: Candidate) -> Result<Vec<ReplyChunk>, ModelError> {
        let mut chunks = Vec::new();
        for raw in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
            chunks.extend(self.read_part(&raw)?);
        }
        let full = |metadata: &Map<String, Value>| !metadata.is_empty();
        if let Some(metadata) = candidate.grounding_metadata.filter(full) {
            self.grounding = metadata;
        }
        if let Some(metadata) = candidate.url_context_metadata.filter(full) {
            self.fetched_pages = metadata;
        }
        self.finish_reason = candidate.finish_reason.or(self.finish_reason.take());
        self.finish_message = candidate.finish_message.or(self.finish_message.take());
        Ok(chunks)
    }

    fn read_part(&mut self, raw: &RawValue) -> Result<Option<ReplyChunk>, ModelError> {
        self.bytes += raw.get().len();
        if self.bytes > MAX_REPLY_BYTES {
            return Err(error::too_large());
        }
        let piece: GeminiPart = serde_json::from_str(raw.get()).map_err(|_| error::unreadable())?;
        let mut item = serde_json::from_str(raw.get()).map_err(|_| error::unreadable())?;
        let is_thought = piece.thought == Some(true);
        let mut text = piece.text.filter(|text| !text.is_empty());
        if let Some(call) = piece.function_call {
            self.calls.push(model_call(call));
        }
        for start in [piece.executable_code, piece.tool_call].into_iter().flatten() {
            self.runs.begin(start);
        }
        for result in [piece.code_execution_result, piece.tool_response].into_iter().flatten() {
            let call = self.runs.finish(result);
            self.calls.push(call);
        }
        if self.calls.len() + self.runs.open_count() > MAX_REPLY_CALLS {
            return Err(error::too_many_calls(MAX_REPLY_CALLS));
        }
        if let Some(data) = piece.inline_data {
            text = media_as_text(data);
            item = json!({"text": text});
        }
        self.push_item(item)?;
        Ok(text.map(|text| {
            self.has_text |= !is_thought;
            if is_thought { ReplyChunk::Thinking(text) } else { ReplyChunk::Text(text) }
        }))
    }

    /// Adds a part to the message as the provider wrote it. Streamed text is joined, but never with
    /// signed text.
    fn push_item(&mut self, mut item: Value) -> Result<(), ModelError> {
        if let Some(text) = plain_text(&mut item) {
            if text.is_empty() {
                return Ok(());
            }
            let text = std::mem::take(text);
            let last = self.items.last_mut().filter(|last| last["thought"] == item["thought"]);
            if let Some(last) = last.and_then(plain_text) {
                last.push_str(&text);
                return Ok(());
            }
            item["text"] = text.into();
        } else {
            let fields = item.as_object().map(Map::len);
            self.needs_verbatim |= fields != Some(1) || item.get("functionCall").is_none();
        }
        if self.items.len() == MAX_ITEMS {
            return Err(error::too_large());
        }
        self.items.push(item);
        Ok(())
    }

    /// Why the message ended; an error if that makes it unusable.
    fn stop_reason(&self) -> Result<Option<StopReason>, ModelError> {
        let has_content = self.has_text || !self.calls.is_empty();
        let calls = self.calls.iter().any(|call| call.provider_result.is_none());
        let reason =
            self.block_reason.as_deref().or(self.finish_reason.as_deref()).unwrap_or_default();
        let why = self.finish_message.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let explanation = error::quote(&format!("{reason}{why}"));
        let is_refusal = self.block_reason.is_some() || REFUSAL_REASONS.contains(&reason);
        match reason {
            _ if is_refusal && has_content => Ok(Some(StopReason::Refusal)),
            _ if is_refusal => Err(error::refused(&explanation)),
            "STOP" if calls => Ok(Some(StopReason::ToolCalls)),
            "STOP" => Ok(Some(StopReason::End)),
            "MAX_TOKENS" | "CONTINUATION" => Ok(Some(StopReason::MaxTokens)),
            // The intended call is lost, and with it the text that announced it.
            "MALFORMED_FUNCTION_CALL"
            | "MALFORMED_RESPONSE"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS" => Err(ModelError::transient(format!(
                "the model's reply is not usable: {explanation}"
            ))),
            "MISSING_THOUGHT_SIGNATURE" => {
                Err(ModelError::permanent(format!("the model's provider failed: {explanation}")))
            }
            _ if has_content => Ok(None),
            _ => Err(ModelError::transient(format!("the model's reply is empty: {explanation}"))),
        }
    }
}

impl http::ReplyDecoder for GeminiDecoder {
    fn push(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        let chunk: GeminiChunk =
            serde_json::from_str(&frame.data).map_err(|_| error::unreadable())?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(error::from_stream(&error));
        }
        if let Some(tokens) = chunk.usage_metadata {
            self.usage = Some(tokens.usage());
        }
        let blocked = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason);
        self.block_reason = blocked.or(self.block_reason.take());
        let mut candidates = chunk.candidates.unwrap_or_default().into_iter();
        match candidates.find(|candidate| candidate.index.unwrap_or(0) == 0) {
            Some(candidate) => self.read_candidate(candidate),
            None => Ok(Vec::new()),
        }
    }

    fn is_message_complete(&self) -> bool {
        self.finish_reason.is_some() || self.block_reason.is_some()
    }

    /// Only the end of the stream shows that it is complete.
    fn is_stream_complete(&self) -> bool {
        false
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let stop = self.stop_reason()?;
        if !self.grounding.is_empty() {
            self.calls.push(self.runs.search_call(std::mem::take(&mut self.grounding)));
        }
        if !self.fetched_pages.is_empty() {
            self.calls.push(self.runs.page_fetch_call(std::mem::take(&mut self.fetched_pages)));
        }
        let Self { model, items, usage, calls, .. } = *self;
        let more = self.needs_verbatim || calls.iter().any(|call| call.provider_result.is_some());
        let verbatim =
            more.then(|| ProviderMessage { provider: PROVIDER.to_owned(), model, items });
        let done = ReplyChunk::Done(ReplyEnd { usage, stop, verbatim });
        Ok(calls.into_iter().map(ReplyChunk::Call).chain([done]).collect())
    }
}

/// The text of a part that has nothing but text.
fn plain_text(item: &mut Value) -> Option<&mut String> {
    let fields = item.as_object_mut()?;
    let bare = fields.keys().all(|key| matches!(key.as_str(), "text" | "thought"));
    match fields.get_mut("text").filter(|_| bare) {
        Some(Value::String(text)) => Some(text),
        Some(_) | None => None,
    }
}

fn model_call(call: FunctionCall) -> ModelToolCall {
    let args = call.args.map(|args| args.get().to_owned());
    let args = args.filter(|args| args != "null").unwrap_or_else(|| "{}".to_owned());
    ModelToolCall {
        id: call.id.unwrap_or_default(),
        name: call.name.unwrap_or_default(),
        args: parse_exact(args),
        provider_result: None,
    }
}

/// Media that the model generated are described in text and not stored: a journal's events hold no
/// bytes.
fn media_as_text(data: InlineData) -> Option<String> {
    let block = json!({"type": "generated_image", "mimeType": data.mime_type, "data": data.data});
    as_text(&block).map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            Just(json!({})),
            Just(json!([])),
            Just(json!(true)),
            any::<u64>().prop_map(Value::from),
            Just(json!({"id": "a", "name": "f", "args": {"n": 1}, "toolType": "URL_CONTEXT"})),
            Just(json!({"mimeType": "image/png", "data": "AA=="})),
            "[a-z{}\"]{0,4}".prop_map(Value::from),
        ]
    }

    fn chunk() -> impl Strategy<Value = Value> {
        const KEYS: [&str; 9] = [
            "text",
            "thought",
            "thoughtSignature",
            "functionCall",
            "executableCode",
            "codeExecutionResult",
            "toolCall",
            "toolResponse",
            "inlineData",
        ];
        let part = (0..KEYS.len(), field(), 0..KEYS.len(), field())
            .prop_map(|(key, value, other, more)| json!({KEYS[key]: value, KEYS[other]: more}));
        (part, field(), field(), 0..4_usize).prop_map(|(part, a, b, shape)| match shape {
            0 => json!({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}),
            1 => json!({"candidates": [{"content": {"parts": [part, a]}, "index": b}]}),
            2 => json!({"candidates": [{"groundingMetadata": a, "urlContextMetadata": b}]}),
            _ => json!({"promptFeedback": a, "usageMetadata": b, "candidates": null}),
        })
    }

    proptest! {
        #[test]
        fn no_chunk_makes_it_panic_and_every_end_has_a_reason(
            chunks in prop::collection::vec(chunk(), 0..20),
        ) {
            let mut reply = GeminiDecoder::default();
            for chunk in chunks {
                let data = chunk.to_string();
                let _ = http::ReplyDecoder::push(&mut reply, Frame { event: String::new(), data });
            }
            let calls = reply.calls.len();
            match http::ReplyDecoder::finish(Box::new(reply)) {
                Ok(parts) => {
                    prop_assert!(matches!(parts.last(), Some(ReplyChunk::Done(_))));
                    prop_assert!(parts.len() > calls);
                }
                Err(failure) => prop_assert!(!failure.message.is_empty()),
            }
        }
    }
}
