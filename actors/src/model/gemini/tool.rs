//! Writes the definitions of the tools.

use abide_conversation::event::Executor;
use serde_json::{Map, Value, json};

use super::PROVIDER;
use crate::model::ToolSpec;
use crate::model::http::options::merge;

/// The key of the functions within their tool.
const FUNCTIONS_KEY: &str = "functionDeclarations";

/// The definitions of the tools that this provider may see.
///
/// Tools that run here are the functions of one tool, each with the tool's
/// `provider_options.gemini` merged into it: two objects are merged key by key at every depth, any
/// other option replaces the existing value. A tool that the provider runs is its
/// `provider_options.gemini` alone; without them it belongs to another provider.
pub(super) fn definitions(specs: &[ToolSpec]) -> Vec<Value> {
    let functions: Vec<Value> = specs.iter().filter_map(function).collect();
    let functions = (!functions.is_empty()).then(|| json!({FUNCTIONS_KEY: functions}));
    let hosted = specs.iter().filter_map(|spec| hosted_options(spec).cloned().map(Value::Object));
    functions.into_iter().chain(hosted).collect()
}

/// Whether there are both functions and tools that the provider runs.
pub(super) fn mixes_kinds(definitions: &[Value]) -> bool {
    definitions.len() > 1 && definitions[0].get(FUNCTIONS_KEY).is_some()
}

/// The definition of a tool that the provider runs.
pub(super) fn hosted_options(spec: &ToolSpec) -> Option<&Map<String, Value>> {
    match spec.executor {
        Executor::Provider => spec.provider_options.get(PROVIDER)?.as_object(),
        Executor::Server | Executor::Human | Executor::Client => None,
    }
}

fn function(spec: &ToolSpec) -> Option<Value> {
    let ToolSpec { name, description, parameters, executor, provider_options } = spec;
    match executor {
        Executor::Provider => return None,
        Executor::Server | Executor::Human | Executor::Client => {}
    }
    let mut function = Map::new();
    function.insert("name".to_owned(), name.as_str().into());
    function.insert("description".to_owned(), description.as_str().into());
    function.insert("parametersJsonSchema".to_owned(), Value::clone(parameters));
    if let Some(options) = provider_options.get(PROVIDER).and_then(Value::as_object) {
        merge(&mut function, options);
    }
    Some(Value::Object(function))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, executor: Executor, options: Value) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            description: "Looks.".to_owned(),
            parameters: json!({"type": "object"}).into(),
            executor,
            provider_options: options.as_object().cloned().unwrap_or_default(),
        }
    }

    #[test]
    fn functions_are_one_tool_and_options_are_merged_into_them() {
        let options = json!({"gemini": {"description": "Sees.",
            "parametersJsonSchema": {"additionalProperties": false}}, "openai": {"x": 1}});
        let specs = [
            spec("look", Executor::Server, options),
            spec("ask", Executor::Human, json!({})),
            spec("show", Executor::Client, json!({})),
        ];
        let function = |name: &str| {
            json!({"name": name, "description": "Looks.",
                "parametersJsonSchema": {"type": "object"}})
        };
        let look = json!({"name": "look", "description": "Sees.",
            "parametersJsonSchema": {"type": "object", "additionalProperties": false}});
        let wanted = json!([{FUNCTIONS_KEY: [look, function("ask"), function("show")]}]);
        assert_eq!(Value::from(definitions(&specs)), wanted);
        assert!(!mixes_kinds(&definitions(&specs)));
    }

    #[test]
    fn a_tool_that_the_provider_runs_is_its_options_or_nothing() {
        let search = spec("web", Executor::Provider, json!({"gemini": {"googleSearch": {}}}));
        let other = spec("py", Executor::Provider, json!({"anthropic": {"type": "x"}}));
        let alone = definitions(&[search.clone(), other.clone()]);
        assert_eq!(Value::from(alone.clone()), json!([{"googleSearch": {}}]));
        assert!(!mixes_kinds(&alone));
        assert!(mixes_kinds(&definitions(&[search, spec("look", Executor::Server, json!({}))])));
        assert_eq!(definitions(&[other]), Vec::<Value>::new());
    }
}
