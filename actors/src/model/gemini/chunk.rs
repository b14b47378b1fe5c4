//! The fields that are read of a chunk of a reply.

use abide_conversation::usage::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiChunk {
    pub(super) error: Option<Value>,
    pub(super) candidates: Option<Vec<Candidate>>,
    pub(super) prompt_feedback: Option<PromptFeedback>,
    pub(super) usage_metadata: Option<GeminiUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) index: Option<u64>,
    pub(super) content: Option<GeminiContent>,
    pub(super) finish_reason: Option<String>,
    pub(super) finish_message: Option<String>,
    pub(super) grounding_metadata: Option<Map<String, Value>>,
    pub(super) url_context_metadata: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
pub(super) struct GeminiContent {
    pub(super) parts: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptFeedback {
    pub(super) block_reason: Option<String>,
}

/// One part: its kind, and the fields that are needed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiPart {
    pub(super) text: Option<String>,
    pub(super) thought: Option<bool>,
    pub(super) function_call: Option<FunctionCall>,
    pub(super) executable_code: Option<Map<String, Value>>,
    pub(super) code_execution_result: Option<Map<String, Value>>,
    pub(super) tool_call: Option<Map<String, Value>>,
    pub(super) tool_response: Option<Map<String, Value>>,
    pub(super) inline_data: Option<InlineData>,
}

#[derive(Deserialize)]
pub(super) struct FunctionCall {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    /// Kept as text, since a value would round large numbers.
    pub(super) args: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData {
    pub(super) mime_type: Option<String>,
    pub(super) data: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiUsage {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl GeminiUsage {
    /// The API counts the results of its own tools and the thoughts separately; cached tokens are
    /// included in the prompt's.
    pub(super) fn usage(&self) -> Usage {
        let sum = |some: Option<u64>, more: Option<u64>| {
            some.unwrap_or(0).saturating_add(more.unwrap_or(0))
        };
        Usage {
            input_tokens: sum(self.prompt_token_count, self.tool_use_prompt_token_count),
            output_tokens: sum(self.candidates_token_count, self.thoughts_token_count),
            cached_tokens: self.cached_content_token_count.unwrap_or(0),
            ..Usage::default()
        }
    }
}
