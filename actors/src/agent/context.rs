//! The keys of a definition that say how much the model reads: `working_budget`,
//! `injection_reserve` and `summary`.

use serde_json::Value;

use super::Definition;
use super::field_reader::Fields;
use crate::context::SummaryPolicy;
use crate::context::limits::{percent_of, sendable, window};
use crate::model::tokens::TokenCounter;
use crate::model::{ModelSettings, Provider, ToolSpec};

/// In tokens.
const BUDGET: u32 = 30_000;
const RESERVE: u32 = 4_000;
/// No model reads more.
const LARGEST: u32 = 10_000_000;
/// A summary's own instructions go along with every summary.
const LONGEST_PROMPT: usize = 16_384;
/// How much of its budget a context takes when it is summarized, in percent: before anything has to
/// be dropped.
const OVER: u64 = 60;

/// What the keys say.
pub(super) struct ContextSettings {
    pub(super) injection_reserve: u32,
    pub(super) working_budget: u32,
    pub(super) summary: Option<SummaryPolicy>,
}

pub(super) fn read(fields: &mut Fields, model: Option<&ModelSettings>) -> ContextSettings {
    let injection_reserve = fields.number("injection_reserve", 1..=1_000_000).unwrap_or(RESERVE);
    let working_budget = fields.number("working_budget", 1..=LARGEST).unwrap_or(BUDGET);
    if working_budget <= injection_reserve {
        let message = format!("must be more than the injection_reserve of {injection_reserve}");
        fields.wrong("working_budget", message);
    }
    let summary =
        summary(fields, model, u64::from(working_budget - injection_reserve.min(working_budget)));
    ContextSettings { injection_reserve, working_budget, summary }
}

/// `false`, or an object; a scripted agent's conversations are summarized only if it says so.
fn summary(
    fields: &mut Fields,
    model: Option<&ModelSettings>,
    budget: u64,
) -> Option<SummaryPolicy> {
    let of = model.map_or(budget, |model| budget.min(sendable(window(model))));
    let policy =
        |model: Option<ModelSettings>, prompt: Option<String>, over: Option<u32>| SummaryPolicy {
            model,
            prompt: prompt.unwrap_or_else(|| SummaryPolicy::DEFAULT_PROMPT.to_owned()),
            threshold_tokens: over.map_or_else(|| percent_of(of, OVER), u64::from),
        };
    match fields.peek("summary") {
        None | Some(Value::Null) => {
            fields.any("summary");
            let is_scripted = model.is_none_or(|model| model.provider == Provider::Scripted);
            (!is_scripted).then(|| policy(None, None, None))
        }
        Some(Value::Bool(false)) => {
            fields.any("summary");
            None
        }
        Some(Value::Object(_)) => {
            let mut own = fields.nested("summary")?;
            let model = own.says("model").then(|| super::model(&mut own)).flatten();
            let prompt = own.text("prompt", LONGEST_PROMPT);
            let over = own.number("over", 1..=LARGEST);
            fields.absorb(own);
            Some(policy(model, prompt, over))
        }
        Some(_) => {
            fields.any("summary");
            fields.wrong("summary", "must be false or an object");
            None
        }
    }
}

/// A model must be able to read what its definition says, and something besides. Only a window that
/// the definition names is held against it: of others nobody is sure.
pub(super) fn check(fields: &mut Fields, definition: &Definition) {
    let Some(window) = definition.model.window else { return };
    let spec = |tool: &crate::tools::Tool| ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.source().clone(),
        executor: tool.executor,
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
        fields.wrong("model.window", message);
    }
}

#[cfg(test)]
mod tests;
