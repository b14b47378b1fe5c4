//! Elicitation: what a running tool needs from a person before it can go on, and the answer.

use crate::numbers::Attempt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The largest schema of an answer that is journalled with a suspension. It is listed with it, too.
pub const MAX_ANSWER_SCHEMA_BYTES: usize = 64 << 10;

/// A tool's request for input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Asks))]
pub struct InputRequest {
    /// Shown to the person.
    pub message: String,
    /// What the tool asks for, in the tool's own words, for example forms by name.
    pub requests: Value,
    /// The tool's own state, which it gets back unchanged together with the answer. Only the tool
    /// knows its meaning. The next attempt needs nothing else, on whichever node it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
}

impl InputRequest {
    /// The JSON Schema of an answer, if the tool asks with forms as MCP has them: the schema of the
    /// only form, or of an object with an answer for each form under its name. `None` if a form has
    /// no schema, and if the whole is larger than 64 KiB.
    pub fn answer_schema(&self) -> Option<Value> {
        let schema = self.schema_of_forms()?;
        (schema.to_string().len() <= MAX_ANSWER_SCHEMA_BYTES).then_some(schema)
    }

    fn schema_of_forms(&self) -> Option<Value> {
        let forms = self.requests.as_object()?;
        let schema = |form: &Value| form.pointer("/params/requestedSchema").cloned();
        if forms.len() == 1 {
            return forms.values().find_map(schema);
        }
        let schemas: Option<Map<String, Value>> =
            forms.iter().map(|(name, form)| Some((name.clone(), schema(form)?))).collect();
        let schemas = schemas.filter(|schemas| !schemas.is_empty())?;
        let required: Vec<&String> = schemas.keys().collect();
        Some(json!({"type": "object", "required": required, "properties": schemas,
            "additionalProperties": false}))
    }

    /// Whether the texts are longer than a journal should hold: 1 MiB.
    pub fn is_long(&self) -> bool {
        self.message.len() + self.request_state.as_ref().map_or(0, String::len) > 1 << 20
    }
}

/// A call's request for input, and the answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingInput {
    /// The attempt that asked. The next attempt gets the answer.
    pub attempt: Attempt,
    #[serde(rename = "asks")]
    pub request: InputRequest,
    /// `None` while nobody has answered.
    pub answer: Option<InputAnswer>,
}

/// A person's answer to a tool's request for input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = InputAnswer))]
#[serde(rename_all = "snake_case")]
pub enum InputAnswer {
    Result(Value),
    /// The person declined, for this reason.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(requests: Value) -> InputRequest {
        InputRequest { message: String::new(), requests, request_state: None }
    }

    fn form(schema: &Value) -> Value {
        json!({"method": "elicitation/create", "params": {"requestedSchema": schema}})
    }

    #[test]
    fn the_schema_of_an_answer_is_that_of_the_form_or_of_all_forms_by_name() {
        let name = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let day = json!({"type": "object", "properties": {"day": {"type": "string"}}});
        let one = asking(json!({"who": form(&name)}));
        assert_eq!(one.answer_schema().as_ref(), Some(&name));
        let two = asking(json!({"when": form(&day), "who": form(&name)}));
        let both = json!({"type": "object", "required": ["when", "who"],
            "properties": {"when": day, "who": name}, "additionalProperties": false});
        assert_eq!(two.answer_schema(), Some(both));
    }

    #[test]
    fn other_requests_and_huge_forms_have_no_schema() {
        let huge = json!({"description": "x".repeat(MAX_ANSWER_SCHEMA_BYTES)});
        let form_without = json!({"params": {}});
        for requests in [
            json!({"who": form(&huge)}),
            json!({"who": form_without}),
            json!({"a": form(&json!({})), "b": {}}),
            json!({}),
            json!("anything"),
        ] {
            assert_eq!(asking(requests.clone()).answer_schema(), None, "{requests}");
        }
    }

    #[test]
    fn a_request_is_long_if_its_texts_are_together_more_than_a_mebibyte() {
        for (message, state, is_long) in [
            (1 << 20, None, false),
            (1 << 19, Some(1 << 19), false),
            ((1 << 19) + 1, Some(1 << 19), true),
            ((1 << 20) + 1, None, true),
            (0, Some(0), false),
        ] {
            let text = |len: usize| "x".repeat(len);
            let request_state = state.map(text);
            let requests = Value::Null;
            let request = InputRequest { message: text(message), requests, request_state };
            assert_eq!(request.is_long(), is_long, "{message}, {state:?}");
        }
    }
}
