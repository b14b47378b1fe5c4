//! Checks responses, bodies and frames against the OpenAPI document.

use serde_json::{Value, json};

pub(crate) struct Spec(Value);

impl Spec {
    pub(crate) fn new() -> Self {
        Self(serde_json::from_str(abide::http::openapi::text()).unwrap())
    }

    /// The operation behind a request, if the document has one.
    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap();
        let segments: Vec<&str> = path.split('/').collect();
        let matches = |template: &str| {
            let expected: Vec<&str> = template.split('/').collect();
            let same = |(expected, actual): (&&str, &&str)| {
                expected == actual || expected.starts_with('{')
            };
            expected.len() == segments.len() && expected.iter().zip(&segments).all(same)
        };
        let paths = self.0["paths"].as_object().unwrap();
        let (_, item) = paths.iter().find(|(template, _)| matches(template))?;
        item.get(method.to_lowercase())
    }

    /// Panics unless the document describes this response.
    pub(crate) fn check_response(
        &self,
        request: (&str, &str),
        status: u16,
        media: &str,
        body: &Value,
    ) {
        let (method, path) = request;
        let Some(operation) = self.operation(method, path) else { return };
        let mut response = &operation["responses"][status.to_string()];
        if let Some(at) = response["$ref"].as_str() {
            response = self.0.pointer(at.trim_start_matches('#')).unwrap();
        }
        assert!(!response.is_null(), "{method} {path}: the document has no {status}: {body}");
        let Some(content) = response.get("content") else {
            return assert!(body.is_null(), "{method} {path}: {status} has no body: {body}");
        };
        let content = &content[media];
        assert!(!content.is_null(), "{method} {path}: {status}: undocumented media type {media}");
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
        let errors: Vec<String> =
            validator.iter_errors(value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{what}: {errors:?}\n{value:#}");
    }
}
