//! Writes the definition of a tool.

use abide_conversation::event::Executor;
use serde_json::{Map, Value, json};

use crate::model::ToolSpec;
use crate::model::http::options::merge;

/// The definition of a tool; `None` if `provider` must not see it.
///
/// A tool that runs here is `{"type": "function", "function": {…}}`, with the tool's
/// `provider_options` of this provider merged into all of it: two objects are merged key by key at
/// every depth, so that `{"function": {"strict": true}}` adds to the function; any other option
/// replaces the existing value. A tool that the provider runs is its options alone; without them it
/// belongs to another provider.
pub(in crate::model) fn definition(spec: &ToolSpec, provider: &str) -> Option<Value> {
    let ToolSpec { name, description, parameters, executor, provider_options } = spec;
    let options = provider_options.get(provider).and_then(Value::as_object);
    match executor {
        Executor::Provider => options.cloned().map(Value::Object),
        Executor::Server | Executor::Human | Executor::Client => {
            let function =
                json!({"name": name, "description": description, "parameters": parameters});
            let mut definition = Map::new();
            definition.insert("type".to_owned(), "function".into());
            definition.insert("function".to_owned(), function);
            options.into_iter().for_each(|options| merge(&mut definition, options));
            Some(Value::Object(definition))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined(executor: Executor, options: Value) -> Option<Value> {
        let provider_options = options.as_object().cloned().unwrap_or_default();
        let spec = ToolSpec {
            name: "look".to_owned(),
            description: "Looks.".to_owned(),
            parameters: json!({"type": "object", "properties": {"at": {"type": "string"}}}).into(),
            executor,
            provider_options,
        };
        definition(&spec, "openai")
    }

    #[test]
    fn options_are_merged_into_the_definition_at_every_depth() {
        let options = json!({"openai": {
            "defer": true,
            "function": {"strict": true, "parameters": {"additionalProperties": false}},
        }, "anthropic": {"type": "other"}});
        let parameters = json!({"type": "object", "properties": {"at": {"type": "string"}},
            "additionalProperties": false});
        let function = json!({"name": "look", "description": "Looks.", "parameters": parameters,
            "strict": true});
        let wanted = json!({"type": "function", "function": function, "defer": true});
        for executor in [Executor::Server, Executor::Human, Executor::Client] {
            assert_eq!(defined(executor, options.clone()), Some(wanted.clone()));
        }
    }

    #[test]
    fn an_option_stands_in_the_place_of_what_was_no_object() {
        let options = json!({"openai": {"type": "custom", "function": {"description": "Sees."}}});
        let defined = defined(Executor::Server, options).unwrap_or_default();
        assert_eq!(defined["type"], "custom");
        assert_eq!(defined["function"]["description"], "Sees.");
        assert_eq!(defined["function"]["name"], "look");
    }

    #[test]
    fn a_tool_that_the_provider_runs_is_its_options_or_nothing() {
        let search = json!({"type": "web_search", "context": "low"});
        let options = json!({"openai": search});
        assert_eq!(defined(Executor::Provider, options), Some(search));
        for options in [json!({}), json!({"gemini": {"google_search": {}}})] {
            assert_eq!(defined(Executor::Provider, options), None);
        }
    }
}
