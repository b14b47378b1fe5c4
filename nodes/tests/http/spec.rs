//! Judges answers by the OpenAPI document.

use serde_json::{Value, json};

pub(crate) struct Spec(Value);

impl Spec {
    pub(crate) fn new() -> Self {
        Self(serde_json::from_str(abide::http::openapi::text()).unwrap())
    }

    /// The operation behind a request, if the document has one.
    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap();
        let given: Vec<&str> = path.split('/').collect();
        let fits = |template: &str| {
            let parts: Vec<&str> = template.split('/').collect();
            let same = |(part, given): (&&str, &&str)| part == given || part.starts_with('{');
            parts.len() == given.len() && parts.iter().zip(&given).all(same)
        };
        let paths = self.0["paths"].as_object().unwrap();
        let (_, item) = paths.iter().find(|(template, _)| fits(template))?;
        item.get(method.to_lowercase())
    }

    /// Panics unless the document knows this answer.
    pub(crate) fn judge(&self, request: (&str, &str), status: u16, media: &str, body: &Value) {
        let (method, path) = request;
        let Some(operation) = self.operation(method, path) else { return };
        let mut response = &operation["responses"][status.to_string()];
        if let Some(at) = response["$ref"].as_str() {
            response = self.0.pointer(at.trim_start_matches('#')).unwrap();
        }
        assert!(!response.is_null(), "{method} {path}: the document knows no {status}: {body}");
        let Some(content) = response.get("content") else {
            return assert!(body.is_null(), "{method} {path}: {status} has no body: {body}");
        };
        let content = &content[media];
        assert!(!content.is_null(), "{method} {path}: {status}: unknown media type {media}");
        self.check(&content["schema"], body, &format!("{method} {path} {status}"));
    }

    /// Panics unless the document would accept a body that the node accepted.
    pub(crate) fn accepts(&self, request: (&str, &str), body: &Value) {
        let (method, path) = request;
        let Some(operation) = self.operation(method, path) else { return };
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        self.check(schema, body, &format!("the body of {method} {path}"));
    }

    /// Panics unless a value fits a component.
    pub(crate) fn fits(&self, component: &str, value: &Value) {
        let schema = json!({"$ref": format!("#/components/schemas/{component}")});
        self.check(&schema, value, component);
    }

    fn check(&self, schema: &Value, value: &Value, what: &str) {
        let root = json!({"components": self.0["components"], "allOf": [schema]});
        let validator = jsonschema::validator_for(&root).unwrap();
        let wrong: Vec<String> =
            validator.iter_errors(value).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{what}: {wrong:?}\n{value:#}");
    }
}
