//! `spawn_agent`: the arguments of a call that starts another agent; `activity::child` starts it.

use std::collections::BTreeSet;

use abide_conversation::AgentName;
use abide_conversation::message::text_block;
use serde_json::{Value, json};

use super::argument;
use crate::definition::MAX_TOOL_NAME_BYTES;

pub(super) const DESCRIPTION: &str = "Asks another agent, in a conversation of its own, and waits \
    for its last message. It knows nothing of this conversation but the prompt. Without an agent's \
    name it is this agent once more.";

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "description": "All that it needs to know."},
            "agent": {"type": "string", "description": "The agent's name."},
            "tools": {
                "type": "array",
                "items": {"type": "string", "maxLength": MAX_TOOL_NAME_BYTES},
                "maxItems": 256,
                "description": "The tools that it may use, of those that it has.",
            },
            "model": {
                "type": "string",
                "description": "The name of its model, of those that the agent lets choose from.",
            },
        },
        "required": ["prompt"],
        "additionalProperties": false,
    })
}

/// The task for a child conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SubAgentRequest {
    /// `None`: the parent's own agent.
    pub(crate) agent: Option<AgentName>,
    pub(crate) content: Value,
    /// `None`: all tools of that agent.
    pub(crate) tools: Option<BTreeSet<String>>,
    /// `None`: the agent's own model.
    pub(crate) model: Option<String>,
}

/// Reads the arguments of a `spawn_agent` call; the error is the text that the model reads.
pub(crate) fn sub_agent_request(args: &Value) -> Result<SubAgentRequest, String> {
    let prompt = argument(args, "prompt").and_then(Value::as_str);
    let prompt = prompt.filter(|prompt| !prompt.trim().is_empty()).ok_or("missing_prompt")?;
    let agent = match argument(args, "agent").and_then(Value::as_str) {
        None => None,
        Some(name) => {
            let missing = "sub_agent_failed: no agent has that name";
            Some(AgentName::parse(name).ok_or(missing)?)
        }
    };
    let tools = argument(args, "tools").and_then(Value::as_array);
    let name = |tool: &Value| tool.as_str().map(str::to_owned);
    let tools = tools.map(|tools| tools.iter().filter_map(name).collect());
    let model = argument(args, "model").and_then(Value::as_str).map(str::to_owned);
    Ok(SubAgentRequest { agent, content: text_block(prompt), tools, model })
}

/// The task of a tool with `run: {agent}`: a single `prompt` as text, any other arguments as JSON. Of
/// an agent that lets choose its model, the argument `model` is the choice, and no part of the task.
pub(crate) fn agent_tool_request(
    agent: &AgentName,
    args: &Value,
    lets_choose: bool,
) -> SubAgentRequest {
    let mut args = args.clone();
    let choice = args
        .as_object_mut()
        .filter(|args| lets_choose && args.get("model").is_some_and(Value::is_string));
    let model = choice.and_then(|args| args.remove("model"));
    let model = model.as_ref().and_then(Value::as_str).map(str::to_owned);
    let prompt =
        args.as_object().filter(|args| args.len() == 1).and_then(|args| args.get("prompt"));
    let content = match prompt.and_then(Value::as_str) {
        Some(prompt) => text_block(prompt),
        None => json!({"type": "json", "data": args}),
    };
    SubAgentRequest { agent: Some(agent.clone()), content, tools: None, model }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_from_the_arguments() {
        let read =
            sub_agent_request(&json!({"prompt": "go", "agent": "kid", "tools": ["read"]})).unwrap();
        assert_eq!((read.agent, read.content), (AgentName::parse("kid"), text_block("go")));
        assert_eq!(read.tools, Some(BTreeSet::from(["read".to_owned()])));
        assert_eq!(sub_agent_request(&json!({"prompt": "go"})).unwrap().tools, None);
    }

    #[test]
    fn a_request_without_a_prompt_or_with_an_invalid_agent_is_refused() {
        for prompt in [json!({}), json!({"prompt": null}), json!({"prompt": " "})] {
            assert_eq!(sub_agent_request(&prompt).unwrap_err(), "missing_prompt");
        }
        let nobody = sub_agent_request(&json!({"prompt": "go", "agent": "No Body"})).unwrap_err();
        assert!(nobody.starts_with("sub_agent_failed"), "{nobody}");
    }

    #[test]
    fn a_tools_own_arguments_are_the_message() {
        let kid = AgentName::new("kid");
        assert_eq!(
            agent_tool_request(&kid, &json!({"prompt": "go"}), true).content,
            text_block("go")
        );
        let args = json!({"prompt": "go", "topic": "x"});
        let block = json!({"type": "json", "data": args});
        assert_eq!(agent_tool_request(&kid, &args, true).content, block);
    }

    #[test]
    fn a_model_is_chosen_only_where_the_agent_lets_choose() {
        let kid = AgentName::new("kid");
        let args = json!({"prompt": "go", "model": "large"});
        let chosen = agent_tool_request(&kid, &args, true);
        assert_eq!((chosen.content, chosen.model), (text_block("go"), Some("large".to_owned())));
        let told = agent_tool_request(&kid, &args, false);
        let block = json!({"type": "json", "data": args});
        assert_eq!((told.content, told.model), (block, None));
        let read = sub_agent_request(&args).unwrap();
        assert_eq!(read.model.as_deref(), Some("large"));
    }
}
