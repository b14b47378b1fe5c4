//! Compiled JSON Schemas that never fetch anything and whose errors name each field.

#[cfg(test)]
mod bombs;
mod bounds;
mod equality;
mod meter;
mod metered;
mod patterns;
mod references;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use abide_conversation::AnswerSchema;
use jsonschema::Validator;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use self::bounds::BoundedSchema;
use self::meter::{Budget, ExhaustedError, run_within};
use self::metered::{Metered, MeteredJson};
use self::patterns::MatchCost;
use super::big_stack::{STACK_BYTES, run_borrowing_on_big_stack};
use crate::limits::{MAX_ERROR_BYTES, cut};

/// What all schemas of an agent, of a conversation's own tools, or of an MCP server may take
/// together, as estimated.
pub const MAX_COMPILED_BYTES_IN_ALL: usize = 32 * 1024 * 1024;
/// Errors named in one answer; a model corrects a few at a time.
const MAX_NAMED_ERRORS: usize = 8;
/// The longest text of one error.
const MAX_NAMED_ERROR_BYTES: usize = 300;
/// Defaults are filled in down to this depth; JSON from outside is no deeper.
const MAX_DEFAULTS_DEPTH: usize = 128;

/// A check of this many steps takes some 100 µs, and runs where it is asked for.
const MAX_INLINE_STEPS: u64 = 4_000;
/// A read with more subschemas behind it is not cheap.
const CHEAP_IN_PLACE: u64 = 64;
/// A check that recurses deeper runs on a thread of its own; a worker has 2 MB.
const MAX_INLINE_STACK_BYTES: usize = 256 * 1024;
/// Whether a value satisfies its schema is found within this many steps. 1 MB of small objects
/// takes fewer.
const MAX_STEPS: u64 = 1_000_000;
/// What is wrong with a value is found within this many steps, or else told in general.
const MAX_ERROR_STEPS: u64 = 200_000;
/// The processor time of either, since steps differ in cost.
const MAX_PROCESSOR_TIME: Duration = Duration::from_millis(25);
const MAX_ERROR_PROCESSOR_TIME: Duration = Duration::from_millis(8);
/// Code that is not optimised takes this much longer.
const SLOWNESS: u32 = if cfg!(debug_assertions) { 20 } else { 1 };
/// Costly checks at once, so that they leave cores to the runtime.
const MAX_COSTLY_CHECKS: usize = 2;

static COSTLY_CHECKS: Semaphore = Semaphore::const_new(MAX_COSTLY_CHECKS);

/// A compiled JSON Schema; clones share it.
///
/// Schemas come from outside, and the library that evaluates them has no limits. So a schema is
/// bounded before it is compiled, and the work of each check is metered: a check that takes too
/// many steps fails.
#[derive(Clone, Debug)]
pub struct Schema {
    source: Arc<Value>,
    validator: Arc<Validator<MeteredJson>>,
    in_place: u64,
    match_cost: MatchCost,
    steps_per_error: u64,
    compiled_bytes: usize,
    is_quick: bool,
    has_defaults: bool,
    approval: Arc<OnceLock<AnswerSchema>>,
}

impl Schema {
    /// Compiles a schema, which must be an object; a `$ref` to another document is refused, and so
    /// is a schema that is too large, too deep or too costly.
    ///
    /// May take 100 ms, so it is called where that holds up nobody.
    pub fn compile(source: &Value) -> Result<Self, String> {
        if !source.is_object() {
            return Err("must be a JSON Schema object".to_owned());
        }
        let compiled = run_borrowing_on_big_stack(|| compile(source));
        compiled.unwrap_or_else(|| Err("is not a valid JSON Schema".to_owned()))
    }

    /// The schema as it was written.
    pub fn source(&self) -> &Value {
        &self.source
    }

    pub(crate) fn shared_source(&self) -> Arc<Value> {
        self.source.clone()
    }

    /// The schema of an approval of arguments of this schema, made by `make` for the first of its
    /// calls: each gated call is suspended with it.
    pub(crate) fn approval(&self, make: fn(&Value) -> AnswerSchema) -> AnswerSchema {
        self.approval.get_or_init(|| make(&self.source)).clone()
    }

    /// An estimate of the memory that it takes, from above.
    pub fn compiled_bytes(&self) -> usize {
        self.compiled_bytes
    }

    /// Whether checking some kilobytes takes a few milliseconds at most.
    pub fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// Whether the value satisfies the schema; the error names each field that does not.
    ///
    /// May take 50 ms: in asynchronous code, see [`Self::check_async`].
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.check_inline(value).unwrap_or_else(|_| self.check_on_big_stack(value))
    }

    /// Like [`Self::check`], for asynchronous code: a costly check runs on another thread.
    pub async fn check_async(&self, value: &Value) -> Result<(), String> {
        if let Ok(checked) = self.check_inline(value) {
            return checked;
        }
        // The semaphore is never closed.
        let permit = COSTLY_CHECKS.acquire().await.ok();
        let (schema, value) = (self.clone(), value.clone());
        let check = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            schema.check_on_big_stack(&value)
        });
        check.await.unwrap_or_else(|_| Err(too_costly()))
    }

    fn check_inline(&self, value: &Value) -> Result<Result<(), String>, ExhaustedError> {
        let budget = Budget {
            steps: MAX_INLINE_STEPS / (1 + self.in_place / CHEAP_IN_PLACE),
            processor_time: None,
            stack_bytes: MAX_INLINE_STACK_BYTES,
            ..self.budget()
        };
        if run_within(&budget, || self.validator.is_valid(Metered(value)))? {
            return Ok(Ok(()));
        }
        run_within(&budget, || self.named_errors(value)).map(Err)
    }

    fn check_on_big_stack(&self, value: &Value) -> Result<(), String> {
        let checked = run_borrowing_on_big_stack(|| {
            let budget = self.budget();
            match run_within(&budget, || self.validator.is_valid(Metered(value))) {
                Ok(true) => Ok(()),
                Ok(false) => Err(self.errors(value)),
                Err(ExhaustedError) => Err(too_costly()),
            }
        });
        checked.unwrap_or_else(|| Err(too_costly()))
    }

    /// What is wrong with the value, as far as that can be found within the budget.
    fn errors(&self, value: &Value) -> String {
        let budget = Budget {
            steps: MAX_ERROR_STEPS,
            processor_time: Some(MAX_ERROR_PROCESSOR_TIME * SLOWNESS),
            ..self.budget()
        };
        run_within(&budget, || self.named_errors(value))
            .or_else(|_| run_within(&budget, || self.first_error(value)))
            .unwrap_or_else(|_| "does not satisfy the schema".to_owned())
    }

    fn named_errors(&self, value: &Value) -> String {
        let mut errors = self.validator.iter_errors(Metered(value));
        let named: Vec<_> = errors.by_ref().take(MAX_NAMED_ERRORS).map(|it| named(&it)).collect();
        match errors.next() {
            _ if named.is_empty() => "does not satisfy the schema".to_owned(),
            None => cut(&named.join("; "), MAX_ERROR_BYTES),
            Some(_) => cut(&format!("{}; and more", named.join("; ")), MAX_ERROR_BYTES),
        }
    }

    fn first_error(&self, value: &Value) -> String {
        match self.validator.validate(Metered(value)) {
            Err(error) => format!("{}; and more", named(&error)),
            Ok(()) => "does not satisfy the schema".to_owned(),
        }
    }

    fn budget(&self) -> Budget {
        Budget {
            steps: MAX_STEPS,
            processor_time: Some(MAX_PROCESSOR_TIME * SLOWNESS),
            // The rest is for what runs between two reads.
            stack_bytes: STACK_BYTES / 2,
            in_place: self.in_place,
            match_cost: self.match_cost,
            steps_per_error: self.steps_per_error,
        }
    }

    /// Whether a property has a default that [`fill_defaults`](Self::fill_defaults) may fill in.
    pub fn has_defaults(&self) -> bool {
        self.has_defaults
    }

    /// Fills in the defaults of absent properties, in nested objects too.
    ///
    /// Each property of the schema is filled in at most once, so the value grows by less than the
    /// schema's size.
    pub fn fill_defaults(&self, mut value: Value) -> Value {
        fill_defaults_in(&self.source, &mut value, MAX_DEFAULTS_DEPTH);
        value
    }
}

fn compile(source: &Value) -> Result<Schema, String> {
    let bounded = BoundedSchema::measure(source)?;
    let options = jsonschema::options_for::<MeteredJson>();
    let options = options.with_pattern_options(patterns::options()).offline();
    let validator = options.build(&bounded.source).map_err(|error| {
        let at = field_prefix(&error.instance_path().to_string());
        let message = cut(&error.masked().to_string(), MAX_NAMED_ERROR_BYTES);
        format!("is not a valid JSON Schema: {at}{message}")
    })?;
    Ok(Schema {
        source: Arc::new(source.clone()),
        validator: Arc::new(validator),
        in_place: bounded.in_place,
        match_cost: bounded.match_cost,
        steps_per_error: u64::try_from(16 + bounded.values).unwrap_or(u64::MAX),
        compiled_bytes: bounded.compiled_bytes,
        is_quick: bounded.is_quick,
        has_defaults: has_defaults(source, MAX_DEFAULTS_DEPTH),
        approval: Arc::default(),
    })
}

fn too_costly() -> String {
    "takes too long to check against the schema".to_owned()
}

fn named(error: &jsonschema::ValidationError<'_>) -> String {
    let at = field_prefix(&error.instance_path().to_string());
    cut(&format!("{at}{}", error.masked()), MAX_NAMED_ERROR_BYTES)
}

/// Turns `/to/0` into `to.0: `. The root has no prefix, since its messages name the property.
fn field_prefix(pointer: &str) -> String {
    match pointer.trim_start_matches('/') {
        "" => String::new(),
        path => format!("{}: ", path.replace('/', ".")),
    }
}

fn has_defaults(schema: &Value, depth: usize) -> bool {
    let has_one =
        |property: &Value| property.get("default").is_some() || has_defaults(property, depth - 1);
    depth > 0 && properties(schema).is_some_and(|properties| properties.values().any(has_one))
}

fn fill_defaults_in(schema: &Value, value: &mut Value, depth: usize) {
    let (Some(properties), Value::Object(object)) = (properties(schema), value) else { return };
    if depth == 0 {
        return;
    }
    for (name, property) in properties {
        if let (false, Some(default)) = (object.contains_key(name), property.get("default")) {
            object.insert(name.clone(), default.clone());
        }
        if let Some(inner) = object.get_mut(name) {
            fill_defaults_in(property, inner, depth - 1);
        }
    }
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_wrong_field_is_named() {
        let schema = Schema::compile(&json!({"type": "object", "required": ["to"],
            "properties": {"amount": {"type": "number"},
                           "cc": {"type": "array", "items": {"type": "string"}}}}));
        let error = schema.unwrap().check(&json!({"amount": "much", "cc": [1]})).unwrap_err();
        for part in ["\"to\" is a required property", "amount: ", "cc.0: "] {
            assert!(error.contains(part), "{part} is missing in {error}");
        }
    }

    #[test]
    fn a_thousand_errors_make_a_short_answer() {
        let schema = Schema::compile(&json!({"items": {"type": "string"}})).unwrap();
        let error = schema.check(&Value::from(vec![1; 1000])).unwrap_err();
        assert!(error.len() <= MAX_ERROR_BYTES && error.ends_with("and more"), "{error}");
    }

    #[test]
    fn defaults_fill_absent_properties_at_every_depth() {
        let schema = json!({"properties": {
            "a": {"default": 1}, "b": {"properties": {"c": {"default": [2]}}},
            "d": {"default": {}, "properties": {"e": {"default": 3}}}, "f": {}}});
        let filled = Schema::compile(&schema).unwrap().fill_defaults(json!({"a": null, "b": {}}));
        assert_eq!(filled, json!({"a": null, "b": {"c": [2]}, "d": {"e": 3}}));
    }

    #[test]
    fn it_is_known_whether_there_are_defaults_to_fill_in() {
        let has = |schema: Value| Schema::compile(&schema).unwrap().has_defaults();
        let nested = json!({"properties": {"a": {"properties": {"b": {"default": null}}}}});
        assert!(has(nested));
        for none in [
            json!({}),
            json!({"default": {"a": 1}}),
            json!({"properties": {"default": {}, "a": {"items": {"default": 1}}}}),
        ] {
            assert!(!has(none.clone()), "{none}");
        }
    }

    #[test]
    fn an_invalid_schema_is_refused() {
        for bad in [json!(true), json!([]), json!({"type": "banana"}), json!({"pattern": "("})] {
            assert!(Schema::compile(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reference_to_another_document_is_refused() {
        for reference in ["http://127.0.0.1:1/s.json", "file:///etc/passwd", "other.json"] {
            let schema = json!({"properties": {"a": {"$ref": reference}}});
            assert!(Schema::compile(&schema).is_err(), "{reference}");
        }
    }

    #[test]
    fn a_reference_within_the_document_is_followed_also_in_a_circle() {
        let tree = json!({"$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}},
            "required": ["v"]}}, "$ref": "#/$defs/t"});
        let tree = Schema::compile(&tree).unwrap();
        assert!(tree.check(&json!({"v": 1, "next": {"v": 2}})).is_ok());
        assert!(tree.check(&json!({"v": 1, "next": {}})).is_err());
    }

    #[test]
    fn a_circular_schema_and_a_hostile_pattern_end() {
        if let Ok(schema) = Schema::compile(&json!({"$ref": "#"})) {
            let _ = schema.check(&json!({}));
        }
        let schema = Schema::compile(&json!({"pattern": "^(?=a)(a+)+$"})).unwrap();
        assert!(schema.check(&json!(format!("{}b", "a".repeat(40)))).is_err());
    }

    #[test]
    fn a_schema_as_deep_as_json_gets_does_not_overflow() {
        let wrap = |key: &str, n: usize| {
            (0..n).fold(json!({"type": "string"}), |inner, _| match key {
                "properties" => json!({"properties": {"a": inner}}),
                key => json!({key: [inner]}),
            })
        };
        for (key, depth) in [("properties", 60), ("allOf", 60), ("anyOf", 60)] {
            let schema = Schema::compile(&wrap(key, depth)).unwrap();
            let value = (0..120).fold(json!(1), |inner, _| json!({"a": inner}));
            let _ = schema.check(&schema.fill_defaults(value));
        }
    }
}
