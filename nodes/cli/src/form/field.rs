//! The fields of a form: what a JSON Schema asks for, as far as it can be asked for one by one.

use serde_json::Value;

/// The most fields of a form; an object with more is written as JSON.
const MAX_FIELDS: usize = 40;

/// One member of the answer, or the whole of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub name: String,
    pub title: String,
    pub kind: Kind,
    pub is_required: bool,
}

/// How a field is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Text,
    Number,
    Integer,
    Flag,
    Choice(Vec<Value>),
    Choices(Vec<Value>),
    /// Whatever is too deep for a field.
    Json,
}

impl Field {
    /// The field for a schema that is no object of simple members.
    pub(super) fn whole(schema: &Value) -> Self {
        let kind = kind(schema);
        Self { name: String::new(), title: String::new(), kind, is_required: true }
    }
}

/// The members of an object; `None` if the schema is not one with named members.
pub(super) fn fields(schema: &Value) -> Option<Vec<Field>> {
    let members = schema["properties"].as_object().filter(|_| schema["type"] == "object")?;
    if members.len() > MAX_FIELDS {
        return None;
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let field = |(name, schema): (&String, &Value)| {
        let title = ["title", "description"].iter().find_map(|member| schema[*member].as_str());
        let title = match title {
            Some(title) => format!("{name}: {title}"),
            None => name.clone(),
        };
        let is_required = required.contains(&name.as_str());
        Field { name: name.clone(), title, kind: kind(schema), is_required }
    };
    Some(members.iter().map(field).collect())
}

fn kind(schema: &Value) -> Kind {
    if let Some(values) = choices(schema) {
        return Kind::Choice(values);
    }
    match schema["type"].as_str() {
        Some("string") => Kind::Text,
        Some("number") => Kind::Number,
        Some("integer") => Kind::Integer,
        Some("boolean") => Kind::Flag,
        Some("array") => choices(&schema["items"]).map_or(Kind::Json, Kind::Choices),
        _ => Kind::Json,
    }
}

/// The values of an `enum`, or of a `oneOf` of constants.
fn choices(schema: &Value) -> Option<Vec<Value>> {
    if let Some(values) = schema["enum"].as_array().filter(|values| !values.is_empty()) {
        return Some(values.clone());
    }
    let branches = ["oneOf", "anyOf"].iter().find_map(|name| schema[*name].as_array())?;
    let values: Option<Vec<Value>> =
        branches.iter().map(|branch| branch.get("const").cloned()).collect();
    values.filter(|values| !values.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_simple_members_has_a_field_for_each() {
        let schema = json!({"type": "object", "required": ["seat"], "properties": {
            "seat": {"enum": ["window", "aisle"]},
            "bags": {"type": "integer", "description": "How many?"},
            "vegan": {"type": "boolean"},
            "extras": {"type": "array", "items": {"enum": ["wifi"]}},
            "class": {"oneOf": [{"const": 1, "title": "First"}, {"const": 2}]},
            "deep": {"type": "object"}}});
        let fields = fields(&schema).unwrap_or_default();
        let kinds: Vec<&Kind> = fields.iter().map(|field| &field.kind).collect();
        let expected = [
            &Kind::Choice(vec![json!("window"), json!("aisle")]),
            &Kind::Integer,
            &Kind::Flag,
            &Kind::Choices(vec![json!("wifi")]),
            &Kind::Choice(vec![json!(1), json!(2)]),
            &Kind::Json,
        ];
        assert_eq!(kinds, expected);
        assert!(fields[0].is_required && !fields[1].is_required);
        assert_eq!(fields[1].title, "bags: How many?");
    }

    #[test]
    fn what_is_no_object_is_asked_for_as_a_whole() {
        assert_eq!(fields(&json!({"type": "string"})), None);
        assert_eq!(fields(&json!({"type": "object"})), None);
        assert_eq!(Field::whole(&json!({"type": "string"})).kind, Kind::Text);
        assert_eq!(Field::whole(&Value::Null).kind, Kind::Json);
        let many: serde_json::Map<_, _> =
            (0..41).map(|n| (n.to_string(), json!({"type": "string"}))).collect();
        assert_eq!(fields(&json!({"type": "object", "properties": many})), None);
    }
}
