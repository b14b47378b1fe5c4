//! Writes the definition of a tool, and recognizes runs of the provider's tools.

use abide_conversation::event::Executor;
use serde_json::{Map, Value, json};

use super::PROVIDER;
use crate::model::ToolSpec;
use crate::model::http::options::merge;

/// The definition of a tool; `None` if this provider must not see it.
///
/// A tool that runs here is a function, with the tool's `provider_options.openai_responses` merged
/// into it. By default the API would make its schema a strict one, which must list every property
/// as required; our schemas are sent as they are written, so `strict` is false unless an option
/// sets it. A tool that the provider runs is its options alone; without them it belongs to another
/// provider.
pub(super) fn definition(spec: &ToolSpec) -> Option<Value> {
    let options = options(spec);
    match spec.executor {
        Executor::Provider => options.cloned().map(Value::Object),
        Executor::Server | Executor::Human | Executor::Client => {
            let definition = json!({
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters,
                "strict": false,
            });
            let Value::Object(mut definition) = definition else { return None };
            options.into_iter().for_each(|options| merge(&mut definition, options));
            Some(Value::Object(definition))
        }
    }
}

fn options(spec: &ToolSpec) -> Option<&Map<String, Value>> {
    spec.provider_options.get(PROVIDER).and_then(Value::as_object)
}

/// A tool that the provider runs, with what identifies its runs.
#[derive(Clone, Debug)]
pub(super) struct HostedTool {
    /// The name in the agent's definition.
    name: String,
    /// The API's type of the tool, such as `web_search_preview`.
    kind: String,
    /// The label of the MCP server, if the tool is one.
    label: Option<String>,
}

impl HostedTool {
    /// `None` if this provider does not run the tool.
    pub(super) fn of(spec: &ToolSpec) -> Option<Self> {
        let options = options(spec).filter(|_| spec.executor == Executor::Provider)?;
        let text = |field: &str| options.get(field)?.as_str().map(str::to_owned);
        Some(Self { name: spec.name.clone(), kind: text("type")?, label: text("server_label") })
    }

    /// The declared name of the tool that ran, or else the API's own.
    pub(super) fn name(declared: &[Self], kind: &str, item: &Value) -> String {
        let label = item["server_label"].as_str();
        let ran = |hosted: &&Self| {
            // Versions of a tool differ in a suffix of its type.
            let rest = hosted.kind.strip_prefix(kind);
            let of_kind = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
            of_kind && hosted.label.as_deref() == label
        };
        match declared.iter().find(ran) {
            Some(hosted) => hosted.name.clone(),
            None => item["name"].as_str().unwrap_or(kind).to_owned(),
        }
    }
}
