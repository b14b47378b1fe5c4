//! One tool as the wire defines it.

use abide_conversation::event::Executor;
use serde_json::{Map, Value, json};

use super::PROVIDER;
use crate::model::ToolSpec;
use crate::model::http::options::merge;

/// The definition of a tool; `None` if this provider is not to know of it.
///
/// A tool that is run here is a function, with the tool's `provider_options.openai_responses`
/// merged into it. The wire would make its schema a strict one, which must name every property as
/// required; ours are sent as they are written, so `strict` is false unless an option says so. A
/// tool that the provider runs is its options and nothing else; without them it belongs to another
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

/// A tool that the provider runs, as runs of it are known.
#[derive(Clone, Debug)]
pub(super) struct HostedTool {
    /// As the definition of the agent names it.
    name: String,
    /// The wire's word for it, such as `web_search_preview`.
    kind: String,
    /// Which server of the Model Context Protocol it is.
    label: Option<String>,
}

impl HostedTool {
    /// `None` if it is no tool that this provider runs.
    pub(super) fn of(spec: &ToolSpec) -> Option<Self> {
        let options = options(spec).filter(|_| spec.executor == Executor::Provider)?;
        let text = |field: &str| options.get(field)?.as_str().map(str::to_owned);
        Some(Self { name: spec.name.clone(), kind: text("type")?, label: text("server_label") })
    }

    /// The name of the tool that ran: the declared one's, else the wire's own word for it.
    pub(super) fn name(declared: &[Self], kind: &str, item: &Value) -> String {
        let label = item["server_label"].as_str();
        let ran = |hosted: &&Self| {
            // Versions of a tool are told apart by what follows its name.
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
