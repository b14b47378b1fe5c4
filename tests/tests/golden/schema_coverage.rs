//! The parts of a JSON Schema that a set of values covers: every field, present and absent, and
//! every choice.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The named schemas, to which `$ref`s refer.
pub(crate) struct Schemas<'s>(pub(crate) &'s Map<String, Value>);

/// A part of a schema, such as `Resolution.reason: absent`.
type Parts = BTreeSet<String>;

impl Schemas<'_> {
    /// All parts of the schema of this name, and of those that it refers to.
    pub(crate) fn parts(&self, name: &str) -> Parts {
        let mut parts = Parts::new();
        let mut visited = BTreeSet::new();
        let mut names = vec![name.to_owned()];
        while let Some(name) = names.pop() {
            if visited.insert(name.clone()) {
                self.collect_parts(&name, &self.0[&name], &mut parts, &mut names);
            }
        }
        parts
    }

    fn collect_parts(&self, at: &str, schema: &Value, parts: &mut Parts, names: &mut Vec<String>) {
        if let Some(name) = reference(schema) {
            names.push(name.to_owned());
        }
        for value in list(schema, "enum") {
            parts.insert(format!("{at}: {value}"));
        }
        for (name, field) in fields(schema) {
            parts.insert(format!("{at}.{name}: present"));
            if !is_required(schema, name) {
                parts.insert(format!("{at}.{name}: absent"));
            }
            self.collect_parts(&format!("{at}.{name}"), field, parts, names);
        }
        for (number, choice) in choices(schema) {
            parts.insert(format!("{at}: choice {number}"));
            self.collect_parts(&format!("{at}#{number}"), choice, parts, names);
        }
        for part in list(schema, "allOf") {
            self.collect_parts(at, part, parts, names);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                self.collect_parts(&format!("{at}[]"), &schema[inner], parts, names);
            }
        }
    }

    /// Adds the parts of the schema of this name that a value covers.
    pub(crate) fn cover(&self, name: &str, value: &Value, covered: &mut Parts) {
        self.cover_schema(name, &self.0[name], value, covered);
    }

    fn cover_schema(&self, at: &str, schema: &Value, value: &Value, covered: &mut Parts) {
        if let Some(name) = reference(schema) {
            self.cover(name, value, covered);
        }
        if list(schema, "enum").contains(value) {
            covered.insert(format!("{at}: {value}"));
        }
        for (name, field) in fields(schema) {
            match value.get(name) {
                Some(value) => {
                    covered.insert(format!("{at}.{name}: present"));
                    self.cover_schema(&format!("{at}.{name}"), field, value, covered);
                }
                None => drop(covered.insert(format!("{at}.{name}: absent"))),
            }
        }
        if let Some((number, choice)) = choices(schema).find(|(_, choice)| self.fits(choice, value))
        {
            covered.insert(format!("{at}: choice {number}"));
            self.cover_schema(&format!("{at}#{number}"), choice, value, covered);
        }
        for part in list(schema, "allOf") {
            self.cover_schema(at, part, value, covered);
        }
        for value in value.as_array().into_iter().flatten() {
            self.cover_schema(&format!("{at}[]"), &schema["items"], value, covered);
        }
        for value in value.as_object().into_iter().flat_map(Map::values) {
            self.cover_schema(&format!("{at}[]"), &schema["additionalProperties"], value, covered);
        }
    }

    /// Whether a value matches this choice: choices differ in their constants, fields or types.
    fn fits(&self, choice: &Value, value: &Value) -> bool {
        if let Some(name) = reference(choice) {
            return self.fits(&self.0[name], value);
        }
        let constants = list(choice, "enum");
        let mut constant = fields(choice).filter(|(_, field)| !list(field, "enum").is_empty());
        let mut required = list(choice, "required").iter().filter_map(Value::as_str);
        match choice["type"].as_str() {
            Some("null") => value.is_null(),
            Some("object") => {
                required.all(|name| value.get(name).is_some())
                    && constant.all(|(name, field)| list(field, "enum").contains(&value[name]))
            }
            _ => !value.is_null() && (constants.is_empty() || constants.contains(value)),
        }
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

fn list<'v>(schema: &'v Value, key: &str) -> &'v [Value] {
    schema[key].as_array().map_or(&[], Vec::as_slice)
}

fn fields(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields.map(|(name, field)| (name.as_str(), field))
}

fn is_required(schema: &Value, name: &str) -> bool {
    list(schema, "required").iter().any(|required| required == name)
}

/// The choices of a schema by their numbers, without `null`.
fn choices(schema: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let choices = list(schema, "oneOf").iter().enumerate();
    choices.filter(|(_, choice)| choice["type"] != "null")
}
