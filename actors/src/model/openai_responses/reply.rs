//! A reply, collected from the typed events of its stream.

use abide_conversation::message::{ProviderMessage, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::tool::Hosted;
use super::{PROVIDER, item};
use crate::model::wire::{self, CALLS, Frame, REPLY, failure};
use crate::model::{ModelError, ModelToolCall, ReplyChunk, ReplyEnd, Request};

/// How many items one message may have: thinking, text and output may stand beside each call.
const ITEMS: usize = 4 * CALLS;

/// What has come so far of one reply.
#[derive(Debug)]
pub(super) struct Reply {
    model: String,
    hosted: Vec<Hosted>,
    /// Whole ones, each with its place.
    items: Vec<(u64, Value)>,
    end: Option<End>,
    usage: Option<Usage>,
    spoke: bool,
    refused: bool,
    /// Of what was streamed, and of the items, which say it again.
    streamed: usize,
    kept: usize,
}

/// How the message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    MaxTokens,
    Refused,
    /// For a reason that is not known here.
    Other,
}

impl Reply {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            model: request.settings.name.clone(),
            hosted: request.tools.iter().filter_map(Hosted::of).collect(),
            items: Vec::new(),
            end: None,
            usage: None,
            spoke: false,
            refused: false,
            streamed: 0,
            kept: 0,
        }
    }
}

impl wire::Reply for Reply {
    fn take(&mut self, frame: Frame) -> Result<Vec<ReplyChunk>, ModelError> {
        if frame.data.trim() == "[DONE]" {
            return Ok(Vec::new());
        }
        let kind: Kind = read(&frame.data)?;
        let kind = kind.kind.unwrap_or(frame.event);
        match kind.as_str() {
            "response.output_text.delta" => self.said(&frame.data),
            "response.refusal.delta" => {
                self.refused = true;
                self.said(&frame.data)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let thought = self.delta(&frame.data)?;
                Ok(thought.map(ReplyChunk::Thinking).into_iter().collect())
            }
            "response.reasoning_summary_part.added" => next_summary(&frame.data),
            // The whole item says them again; this only finds out early that they never end.
            "response.function_call_arguments.delta" => self.delta(&frame.data).map(|_| Vec::new()),
            "response.output_item.done" => self.item(&frame.data),
            "response.completed" | "response.incomplete" => self.ended(&frame.data),
            "response.failed" => {
                let whole: Whole = read(&frame.data)?;
                Err(failure::in_stream(&whole.response.unwrap_or_default()["error"]))
            }
            "error" => {
                let event: Value = read(&frame.data)?;
                let error = event.get("error").filter(|error| error.is_object());
                Err(failure::in_stream(error.unwrap_or(&event)))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn finished(&self) -> bool {
        self.end.is_some()
    }

    fn done(&self) -> bool {
        self.end.is_some()
    }

    fn end(self: Box<Self>) -> Result<Vec<ReplyChunk>, ModelError> {
        let Self { model, hosted, mut items, end, usage, spoke, refused, .. } = *self;
        items.sort_by_key(|(place, _)| *place);
        let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
        let cut = end == Some(End::MaxTokens);
        let call = |item| item::call(item, &items, &hosted, cut);
        let calls: Vec<ModelToolCall> = items.iter().filter_map(call).collect();
        if calls.len() > CALLS {
            return Err(failure::too_many_calls(CALLS));
        }
        let waits = calls.iter().any(|call| call.provided.is_none());
        let stop = match end {
            _ if refused => Some(StopReason::Refusal),
            Some(End::Whole) if waits => Some(StopReason::ToolCalls),
            Some(End::Whole) => Some(StopReason::End),
            Some(End::MaxTokens) => Some(StopReason::MaxTokens),
            Some(End::Refused) => Some(StopReason::Refusal),
            Some(End::Other) | None => None,
        };
        if stop == Some(StopReason::Refusal) && !spoke && calls.is_empty() {
            return Err(failure::refused(""));
        }
        let items = item::kept(&items);
        let says_more = !items.iter().all(item::is_plain);
        let verbatim =
            says_more.then(|| ProviderMessage { provider: PROVIDER.to_owned(), model, items });
        let done = ReplyChunk::Done(ReplyEnd { usage, stop, verbatim });
        Ok(calls.into_iter().map(ReplyChunk::Call).chain([done]).collect())
    }
}

impl Reply {
    fn said(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let said = self.delta(data)?;
        self.spoke |= said.is_some();
        Ok(said.map(ReplyChunk::Text).into_iter().collect())
    }

    fn delta(&mut self, data: &str) -> Result<Option<String>, ModelError> {
        let delta = read::<Delta>(data)?.delta.filter(|delta| !delta.is_empty());
        self.streamed += delta.as_ref().map_or(0, String::len);
        if self.streamed > REPLY { Err(failure::too_large()) } else { Ok(delta) }
    }

    fn item(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let Item { item, output_index } = read(data)?;
        let place = output_index.unwrap_or(self.items.len() as u64);
        self.kept += data.len();
        if self.kept > REPLY || self.items.len() == ITEMS {
            return Err(failure::too_large());
        }
        self.items.extend(item.filter(Value::is_object).map(|item| (place, item)));
        Ok(Vec::new())
    }

    fn ended(&mut self, data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
        let mut response = read::<Whole>(data)?.response.unwrap_or_default();
        self.end = Some(match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => End::MaxTokens,
            Some("content_filter") => End::Refused,
            None if response["status"] != "incomplete" => End::Whole,
            Some(_) | None => End::Other,
        });
        let usage = &response["usage"];
        let tokens = |place: &str| usage.pointer(place).and_then(Value::as_u64).unwrap_or(0);
        self.usage = usage.is_object().then(|| Usage {
            input_tokens: tokens("/input_tokens"),
            output_tokens: tokens("/output_tokens"),
            cached_tokens: tokens("/input_tokens_details/cached_tokens"),
            cache_write_tokens: tokens("/input_tokens_details/cache_write_tokens"),
            ..Usage::default()
        });
        // Some servers tell the items only here.
        let told = response.get_mut("output").map(Value::take);
        if let (true, Some(Value::Array(items))) = (self.items.is_empty(), told) {
            if items.len() > ITEMS {
                return Err(failure::too_large());
            }
            self.items.extend((0..).zip(items.into_iter().filter(Value::is_object)));
        }
        Ok(Vec::new())
    }
}

/// Summaries are paragraphs.
fn next_summary(data: &str) -> Result<Vec<ReplyChunk>, ModelError> {
    let first = read::<Delta>(data)?.summary_index.unwrap_or(0) == 0;
    Ok(if first { Vec::new() } else { vec![ReplyChunk::Thinking("\n\n".to_owned())] })
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data).map_err(|_| failure::garbled())
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    delta: Option<String>,
    summary_index: Option<u64>,
}

#[derive(Deserialize)]
struct Item {
    item: Option<Value>,
    output_index: Option<u64>,
}

#[derive(Deserialize)]
struct Whole {
    response: Option<Value>,
}
