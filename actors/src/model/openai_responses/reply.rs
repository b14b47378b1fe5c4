//! Decodes a reply of the Responses API from the typed events of its stream.

use std::collections::BTreeMap;

use abide_conversation::message::{ProviderMessage, StopReason};
use abide_conversation::usage::Usage;
use serde::Deserialize;
use serde_json::Value;

use super::tool::HostedTool;
use super::{PROVIDER, item};
use crate::model::http;
use crate::model::http::{Frame, MAX_REPLY_BYTES, MAX_REPLY_CALLS, error};
use crate::model::{CallPiece, ModelError, ModelRequest, ModelToolCall, ReplyChunk, ReplyEnd};

/// The largest number of items in one message: reasoning, text and output may accompany each call.
const MAX_ITEMS: usize = 4 * MAX_REPLY_CALLS;

/// The decoder for one reply.
#[derive(Debug)]
pub(super) struct ResponsesDecoder {
    model: String,
    hosted: Vec<HostedTool>,
    /// Complete items, each with its index.
    items: Vec<(u64, Value)>,
    /// Our calls that have begun: by the index of their item, their position among the calls.
    begun_calls: BTreeMap<u64, usize>,
    call_pieces: Vec<CallPiece>,
    end: Option<ResponseEnd>,
    usage: Option<Usage>,
    has_text: bool,
    has_refusal: bool,
    /// The size of the deltas, and of the items, which repeat them.
    streamed_bytes: usize,
    item_bytes: usize,
}

/// How the response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseEnd {
    Complete,
    MaxTokens,
    Refused,
    /// For an unknown reason.
    Other,
}

impl ResponsesDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            model: request.settings.name.clone(),
            hosted: request.tools.iter().filter_map(HostedTool::of).collect(),
            items: Vec::new(),
            begun_calls: BTreeMap::new(),
            call_pieces: Vec::new(),
            end: None,
            usage: None,
            has_text: false,
            has_refusal: false,
            streamed_bytes: 0,
            item_bytes: 0,
        }
    }
}

impl http::ReplyDecoder for ResponsesDecoder {
    fn push(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        if frame.data.trim() == "[DONE]" {
            return Ok(Vec::new());
        }
        let kind: EventType = read(&frame.data)?;
        let kind = kind.kind.unwrap_or(frame.event);
        match kind.as_str() {
            "response.output_text.delta" => self.text_delta(&frame.data),
            "response.refusal.delta" => {
                self.has_refusal = true;
                self.text_delta(&frame.data)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let thought = self.read_delta(&frame.data)?;
                Ok(thought.map(ReplyChunk::Thinking).into_iter().collect())
            }
            "response.reasoning_summary_part.added" => summary_separator(&frame.data),
            // The complete item repeats the arguments; counting them here detects early that they
            // never end.
            "response.function_call_arguments.delta" => self.args_delta(&frame.data),
            "response.output_item.added" => self.begin_item(&frame.data),
            "response.output_item.done" => self.push_item(&frame.data),
            "response.completed" | "response.incomplete" => self.end_response(&frame.data),
            "response.failed" => {
                let event: ResponseEvent = read(&frame.data)?;
                Err(error::from_stream(&event.response.unwrap_or_default()["error"]))
            }
            "error" => {
                let event: Value = read(&frame.data)?;
                let error = event.get("error").filter(|error| error.is_object());
                Err(error::from_stream(error.unwrap_or(&event)))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn take_call_pieces(&mut self) -> Vec<CallPiece> {
        std::mem::take(&mut self.call_pieces)
    }

    fn is_message_complete(&self) -> bool {
        self.end.is_some()
    }

    fn is_stream_complete(&self) -> bool {
        self.end.is_some()
    }

    fn finish(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let Self { model, hosted, mut items, end, usage, has_text, has_refusal, .. } = *self;
        items.sort_by_key(|(index, _)| *index);
        let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
        let cut = end == Some(ResponseEnd::MaxTokens);
        let call = |item| item::call(item, &items, &hosted, cut);
        let calls: Vec<ModelToolCall> = items.iter().filter_map(call).collect();
        if calls.len() > MAX_REPLY_CALLS {
            return Err(error::too_many_calls(MAX_REPLY_CALLS));
        }
        let has_open_calls = calls.iter().any(|call| call.provider_result.is_none());
        let stop = match end {
            _ if has_refusal => Some(StopReason::Refusal),
            Some(ResponseEnd::Complete) if has_open_calls => Some(StopReason::ToolCalls),
            Some(ResponseEnd::Complete) => Some(StopReason::End),
            Some(ResponseEnd::MaxTokens) => Some(StopReason::MaxTokens),
            Some(ResponseEnd::Refused) => Some(StopReason::Refusal),
            Some(ResponseEnd::Other) | None => None,
        };
        if stop == Some(StopReason::Refusal) && !has_text && calls.is_empty() {
            return Err(error::refused(""));
        }
        let items = item::sendable(&items);
        let needs_verbatim = !items.iter().all(item::is_plain);
        let verbatim =
            needs_verbatim.then(|| ProviderMessage { provider: PROVIDER.to_owned(), model, items });
        let done = ReplyChunk::Done(ReplyEnd { usage, stop, verbatim });
        Ok(calls.into_iter().map(ReplyChunk::Call).chain([done]).collect())
    }
}

impl ResponsesDecoder {
    fn text_delta(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let text = self.read_delta(data)?;
        self.has_text |= text.is_some();
        Ok(text.map(ReplyChunk::Text).into_iter().collect())
    }

    /// Notes the beginning of an item, if that is one of our calls.
    fn begin_item(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let ItemEvent { item, output_index } = read(data)?;
        let (Some(item), Some(at)) = (item, output_index) else { return Ok(Vec::new()) };
        let name = item["name"].as_str().filter(|_| item["type"] == "function_call");
        if let Some(name) = name
            && self.begun_calls.len() < MAX_REPLY_CALLS
            && !self.begun_calls.contains_key(&at)
        {
            let index = self.calls_before(at);
            self.begun_calls.insert(at, index);
            let (name, args_text) = (Some(name.to_owned()), String::new());
            self.call_pieces.push(CallPiece { index, name, args_text });
        }
        Ok(Vec::new())
    }

    /// How many calls the items before this one are: our own, and runs of the provider's tools.
    fn calls_before(&self, at: u64) -> usize {
        let own = self.begun_calls.range(..at).count();
        let is_earlier = |index: &u64| *index < at && !self.begun_calls.contains_key(index);
        let others = self.items.iter().filter(|(index, _)| is_earlier(index));
        let others: Vec<Value> = others.map(|(_, item)| item.clone()).collect();
        let is_call = |item: &&Value| item::call(item, &others, &self.hosted, false).is_some();
        own + others.iter().filter(is_call).count()
    }

    fn args_delta(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let at = read::<DeltaEvent>(data)?.output_index;
        let index = at.and_then(|at| self.begun_calls.get(&at).copied());
        if let (Some(args_text), Some(index)) = (self.read_delta(data)?, index) {
            self.call_pieces.push(CallPiece { index, name: None, args_text });
        }
        Ok(Vec::new())
    }

    fn read_delta(&mut self, data: &str) -> Result<Option<String>, ModelError> {
        let delta = read::<DeltaEvent>(data)?.delta.filter(|delta| !delta.is_empty());
        self.streamed_bytes += delta.as_ref().map_or(0, String::len);
        if self.streamed_bytes > MAX_REPLY_BYTES { Err(error::too_large()) } else { Ok(delta) }
    }

    fn push_item(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let ItemEvent { item, output_index } = read(data)?;
        let index = output_index.unwrap_or(self.items.len() as u64);
        self.item_bytes += data.len();
        if self.item_bytes > MAX_REPLY_BYTES || self.items.len() == MAX_ITEMS {
            return Err(error::too_large());
        }
        self.items.extend(item.filter(Value::is_object).map(|item| (index, item)));
        Ok(Vec::new())
    }

    fn end_response(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let mut response = read::<ResponseEvent>(data)?.response.unwrap_or_default();
        self.end = Some(match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => ResponseEnd::MaxTokens,
            Some("content_filter") => ResponseEnd::Refused,
            None if response["status"] != "incomplete" => ResponseEnd::Complete,
            Some(_) | None => ResponseEnd::Other,
        });
        let usage = &response["usage"];
        let tokens = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        self.usage = usage.is_object().then(|| Usage {
            input_tokens: tokens("/input_tokens"),
            output_tokens: tokens("/output_tokens"),
            cached_tokens: tokens("/input_tokens_details/cached_tokens"),
            cache_write_tokens: tokens("/input_tokens_details/cache_write_tokens"),
            ..Usage::default()
        });
        // Some servers send the items only here.
        let output = response.get_mut("output").map(Value::take);
        if let (true, Some(Value::Array(items))) = (self.items.is_empty(), output) {
            if items.len() > MAX_ITEMS {
                return Err(error::too_large());
            }
            self.items.extend((0..).zip(items.into_iter().filter(Value::is_object)));
        }
        Ok(Vec::new())
    }
}

/// Separates summaries by a blank line, because each one is a paragraph.
fn summary_separator(data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
    let first = read::<DeltaEvent>(data)?.summary_index.unwrap_or(0) == 0;
    Ok(if first { Vec::new() } else { vec![ReplyChunk::Thinking("\n\n".to_owned())] })
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data).map_err(|_| error::unreadable())
}

#[derive(Deserialize)]
struct EventType {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct DeltaEvent {
    delta: Option<String>,
    output_index: Option<u64>,
    summary_index: Option<u64>,
}

#[derive(Deserialize)]
struct ItemEvent {
    item: Option<Value>,
    output_index: Option<u64>,
}

#[derive(Deserialize)]
struct ResponseEvent {
    response: Option<Value>,
}
