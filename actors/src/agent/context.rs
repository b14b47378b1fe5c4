//! The keys of a definition that say how much the model reads: `working_budget`,
//! `injection_reserve` and `summary`.

use serde_json::Value;

use super::document::{SummaryDocument, Whole};
use super::reader::Mistakes;
use crate::context::limits::{percent_of, sendable, window};
use crate::definition::{Definition, SummaryPolicy, Tool};
use crate::model::tokens::TokenCounter;
use crate::model::{ModelSettings, Provider, ToolSpec};

const DEFAULT_BUDGET_TOKENS: u32 = 30_000;
const DEFAULT_RESERVE_TOKENS: u32 = 4_000;
/// A context is summarized when it takes this share of its budget: before anything has to be
/// dropped.
const SUMMARIZE_OVER_PERCENT: u64 = 60;

/// How much the model reads, and when the conversation is summarized.
pub(super) struct ContextSettings {
    pub(super) injection_reserve: u32,
    pub(super) working_budget: u32,
    pub(super) summary: Option<SummaryPolicy>,
}

pub(super) fn settings(
    mistakes: &mut Mistakes,
    injection_reserve: Option<Whole<1, 1_000_000>>,
    working_budget: Option<Whole<1, 10_000_000>>,
    summary: Option<Value>,
    model: Option<&ModelSettings>,
) -> ContextSettings {
    let injection_reserve = injection_reserve.map_or(DEFAULT_RESERVE_TOKENS, |tokens| tokens.0);
    let working_budget = working_budget.map_or(DEFAULT_BUDGET_TOKENS, |tokens| tokens.0);
    if working_budget <= injection_reserve && !mistakes.has("working_budget") {
        let message = format!("must be more than the injection_reserve of {injection_reserve}");
        mistakes.add("working_budget", message);
    }
    let budget = u64::from(working_budget.saturating_sub(injection_reserve));
    let summary = self::summary(mistakes, summary, model, budget);
    ContextSettings { injection_reserve, working_budget, summary }
}

/// Reads `summary`: `false` or an object. The conversations of a scripted agent are summarized only
/// if its definition has an object.
fn summary(
    mistakes: &mut Mistakes,
    value: Option<Value>,
    model: Option<&ModelSettings>,
    budget: u64,
) -> Option<SummaryPolicy> {
    let readable = model.map_or(budget, |model| budget.min(sendable(window(model))));
    let default_threshold = percent_of(readable, SUMMARIZE_OVER_PERCENT);
    match value {
        None => {
            let is_scripted = model.is_none_or(|model| model.provider == Provider::Scripted);
            let prompt = SummaryPolicy::DEFAULT_PROMPT.to_owned();
            (!is_scripted).then_some(SummaryPolicy {
                model: None,
                prompt,
                threshold_tokens: default_threshold,
            })
        }
        Some(Value::Bool(false)) => None,
        Some(value @ Value::Object(_)) => {
            let document: SummaryDocument = mistakes.read("summary", value)?;
            let model = document.model.map(|model| super::model(mistakes, "summary.", Some(model)));
            Some(SummaryPolicy {
                model: model.flatten(),
                prompt: document
                    .prompt
                    .map_or_else(|| SummaryPolicy::DEFAULT_PROMPT.to_owned(), |text| text.0),
                threshold_tokens: document.over.map_or(default_threshold, |tokens| tokens.0.into()),
            })
        }
        Some(_) => {
            mistakes.add("summary", "must be false or an object");
            None
        }
    }
}

/// Refuses a window in which the system prompt and the tools alone leave no room for messages.
/// Checks only a window that the definition states: the size of any other is uncertain.
pub(super) fn check(mistakes: &mut Mistakes, definition: &Definition) {
    let Some(window) = definition.model.window else { return };
    let spec = |tool: &Tool| ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.shared_source(),
        executor: tool.executor(),
        provider_options: Default::default(),
    };
    let tools: Vec<ToolSpec> =
        definition.tools.iter().filter(|tool| tool.is_for_model()).map(spec).collect();
    let head =
        TokenCounter::estimating(definition.model.provider).head(&definition.system_prompt, &tools);
    if head > sendable(u64::from(window)) {
        let message = format!(
            "is too small: the system prompt and the tools alone have about {head} tokens, and \
             three quarters of the window are for what is sent"
        );
        mistakes.add("model.window", message);
    }
}

#[cfg(test)]
mod tests;
