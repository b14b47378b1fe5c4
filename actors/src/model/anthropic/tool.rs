//! Writes the definition of a tool, and maps the provider's tool names back.

use abide_conversation::event::Executor;
use serde_json::{Map, Value};

use crate::model::http::options::merge;
use crate::model::{Provider, ToolSpec};

/// The definition of a tool; `None` if this provider must not see it.
///
/// A tool that runs here is its name, description and parameters, with the tool's
/// `provider_options.anthropic` merged into them. A tool that the provider runs is its
/// `provider_options.anthropic` alone; without them it belongs to another provider.
pub(super) fn definition(spec: &ToolSpec) -> Option<Value> {
    let options = options(spec);
    match spec.executor {
        Executor::Provider => options.cloned().map(Value::Object),
        Executor::Server | Executor::Human | Executor::Client => {
            let mut definition = Map::new();
            definition.insert("name".to_owned(), spec.name.as_str().into());
            if !spec.description.is_empty() {
                definition.insert("description".to_owned(), spec.description.as_str().into());
            }
            let mut parameters = spec.parameters.as_object().cloned().unwrap_or_default();
            parameters.entry("type").or_insert_with(|| "object".into());
            definition.insert("input_schema".to_owned(), parameters.into());
            options.into_iter().for_each(|options| merge(&mut definition, options));
            Some(Value::Object(definition))
        }
    }
}

/// The name in the agent's definition of the tool that the provider ran; the provider's name if
/// there is none.
///
/// The provider's `code_execution` runs under several names, which all end with its own.
pub(super) fn declared_name(tools: &[ToolSpec], name: &str) -> String {
    let is_hosted = |spec: &&ToolSpec| spec.executor == Executor::Provider;
    let own_name = |spec: &ToolSpec| options(spec)?.get("name")?.as_str().map(str::to_owned);
    let has_name = |spec: &&ToolSpec| own_name(spec).is_some_and(|own| own == name);
    let has_suffix =
        |spec: &&ToolSpec| own_name(spec).is_some_and(|own| name.ends_with(&format!("_{own}")));
    let hosted = || tools.iter().filter(is_hosted);
    let tool = hosted().find(has_name).or_else(|| hosted().find(has_suffix));
    tool.map_or(name, |tool| tool.name.as_str()).to_owned()
}

fn options(spec: &ToolSpec) -> Option<&Map<String, Value>> {
    spec.provider_options.get(Provider::Anthropic.name()).and_then(Value::as_object)
}
