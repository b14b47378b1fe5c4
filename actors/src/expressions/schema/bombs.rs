//! Schemas and values that once stopped a node: each is refused, or its check ends within bounds.
//!
//! None of them needs a clock: an unbounded one overflows the stack, or does not end.

#![allow(clippy::unwrap_used)]

use serde_json::{Map, Value, json};

use super::Schema;

const TOO_COSTLY: &str = "takes too long to check against the schema";

/// A schema whose definitions each lead to the next, as `link` says.
fn chain(links: usize, link: impl Fn(Value) -> Value) -> Value {
    let name = |at: usize| format!("d{at}");
    let next = |at: usize| json!({"$ref": format!("#/definitions/{}", name(at + 1))});
    let mut definitions: Map<_, _> = (0..links).map(|at| (name(at), link(next(at)))).collect();
    definitions.insert(name(links), json!({"type": "string"}));
    json!({"$ref": "#/definitions/d0", "definitions": definitions})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({"a": inner}))
}

fn refusal(schema: &Value) -> String {
    Schema::compile(schema).unwrap_err()
}

fn compiled(schema: &Value) -> Schema {
    Schema::compile(schema).unwrap()
}

#[test]
fn chains_of_references_are_refused_before_they_overflow_a_stack() {
    for links in [100, 3_000, 12_000] {
        refusal(&chain(links, |next| next));
        refusal(&chain(links, |next| json!({"allOf": [next]})));
        refusal(&chain(links, |next| json!({"not": {"if": next}})));
    }
    // Each link of this one needs a deeper value.
    let schema = compiled(&chain(1_000, |next| json!({"properties": {"a": next}})));
    assert_eq!(schema.check(&nested(120)), Ok(()));
}

#[test]
fn references_that_multiply_are_refused() {
    let doubled = |next: Value| json!({"allOf": [next, next]});
    refusal(&chain(45, doubled));
    assert!(refusal(&chain(14, |next| json!({"anyOf": [next, next]}))).contains("subschemas"));
    let schema = compiled(&chain(8, doubled));
    assert!(schema.check(&json!("text")).is_ok() && schema.check(&json!(1)).is_err());
}

#[test]
fn references_that_lead_back_to_the_same_value_are_refused() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
        json!({"$anchor": "x", "if": {"$ref": "#x"}}),
        json!({"$id": "https://a.b/c", "then": {"$ref": "c#"}}),
        json!({"$recursiveAnchor": true, "else": {"$recursiveRef": "#"}}),
        json!({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}),
    ] {
        assert!(refusal(&schema).contains("for ever"), "{schema}");
    }
}

#[test]
fn a_recursive_choice_ends_on_deep_values() {
    let case = |name: &str| {
        json!({"type": "object", "required": [name],
            "properties": {"a": {"$ref": "#/$defs/n"}}})
    };
    let schema = json!({"$ref": "#/$defs/n",
        "$defs": {"n": {"anyOf": [case("x"), case("y"), case("z")]}}});
    let schema = compiled(&schema);
    for levels in [20, 44, 120] {
        assert!(schema.check(&nested(levels)).is_err());
    }
}

#[test]
fn a_check_that_evaluates_everything_again_and_again_is_ended() {
    let inner = json!({"properties": {"a": {"$ref": "#"}}});
    let wrap = |inner: Value, _| json!({"allOf": [inner], "unevaluatedProperties": false});
    assert!(refusal(&(0..10).fold(inner.clone(), wrap)).contains("subschemas"));
    // It is valid or too costly, but it ends.
    if let Err(why) = compiled(&(0..6).fold(inner, wrap)).check(&nested(120)) {
        assert_eq!(why, TOO_COSTLY);
    }
    let schema = compiled(&json!({"items": {"allOf": vec![json!({"minimum": 0}); 3_000]}}));
    assert_eq!(schema.check(&Value::from(vec![1; 100_000])), Err(TOO_COSTLY.to_owned()));
}

#[test]
fn a_deep_value_under_deep_subschemas_does_not_overflow() {
    let inner = json!({"properties": {"a": {"$ref": "#"}}});
    let schema = compiled(&(0..55).fold(inner, |inner, _| json!({"allOf": [inner]})));
    let _ = schema.check(&nested(126));
}

#[test]
fn patterns_that_compile_to_much_are_refused() {
    let classes =
        (0..60).map(|at| json!({"pattern": format!("(?i)[\\p{{L}}\\p{{N}}]{{1{at:02}}}")}));
    assert!(refusal(&json!({"allOf": classes.collect::<Vec<_>>()})).contains("too large"));
    let name = "(?i)[\\p{L}\\p{N}]{100}";
    assert!(refusal(&json!({"patternProperties": {name: {}}})).contains("too large"));
    assert!(refusal(&json!({"pattern": "a".repeat(2_000)})).contains("at most"));
    let many = (0..800).map(|at| json!({"pattern": format!("^[a-z]{{1,9}}x{at}$")}));
    refusal(&json!({"allOf": many.collect::<Vec<_>>()}));
}

#[test]
fn a_hostile_pattern_ends_on_a_long_string() {
    for pattern in ["^(?=a)(a+)+$", "(?:(?=.*y)a)*z", "(.*)(.*)(.*)(?=z)w", "(a|b)*a(a|b){40}c"] {
        let schema = compiled(&json!({"pattern": pattern}));
        for bytes in [40, 1_000, 100_000] {
            assert!(schema.check(&json!("a".repeat(bytes) + "!")).is_err(), "{pattern}");
        }
    }
}

#[test]
fn values_that_look_alike_are_told_apart_in_bounded_time() {
    fn trees(leaves: usize) -> Vec<Value> {
        if leaves == 1 {
            return vec![json!(0)];
        }
        let pairs = |left: usize| {
            let rights = trees(leaves - left);
            trees(left)
                .into_iter()
                .flat_map(move |l| rights.clone().into_iter().map(move |r| json!([l, r])))
        };
        (1..leaves).flat_map(pairs).collect()
    }
    let values = Value::from(trees(9));
    assert_eq!(compiled(&json!({"uniqueItems": true})).check(&values), Ok(()));
    let draft_7 = "http://json-schema.org/draft-07/schema#";
    assert!(refusal(&json!({"$schema": draft_7, "enum": values})).contains("enum"));
}

#[test]
fn errors_that_repeat_a_large_schema_stay_small() {
    let schema = json!({"items": {"not": {"enum": (0..20_000).collect::<Vec<_>>()}}});
    let why = compiled(&schema).check(&Value::from(vec![1; 10_000])).unwrap_err();
    assert!(why.len() < 4_000, "{why}");
}

#[test]
fn a_schema_that_takes_much_memory_is_refused() {
    let long = json!({"k".repeat(60_000): {"allOf": vec![json!({}); 3_000]}});
    assert!(refusal(&json!({"properties": long})).contains("path"));
    assert!(refusal(&json!({"properties": {"a": "x".repeat(200_000)}})).contains("kB"));
    assert!(refusal(&json!({"allOf": vec![json!({}); 5_000]})).contains("subschemas"));
    let fat = json!({"enum": vec![0; 40_000]});
    assert!(refusal(&(0..60).fold(fat, |inner, _| json!({"not": inner}))).contains("too large"));
    let deep = (0..130).fold(json!({}), |inner, _| json!({"x": [inner]}));
    assert!(refusal(&deep).contains("nest"));
}

#[test]
fn ordinary_schemas_are_accepted_and_work() {
    let tree = compiled(&json!({"$defs": {"Node": {"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}},
        "$ref": "#/$defs/Node"}));
    assert_eq!(tree.check(&json!({"name": "a", "children": [{"name": "b"}]})), Ok(()));
    let why = tree.check(&json!({"name": "a", "children": [{"name": 1}]})).unwrap_err();
    assert!(why.contains("children.0.name"), "{why}");
    let table = compiled(&json!({"type": "array", "items": {"type": "object",
        "additionalProperties": false, "required": ["id"], "properties": {
            "id": {"type": "integer", "minimum": 0}, "name": {"type": "string", "maxLength": 10},
            "mail": {"type": "string", "pattern": "^[^@]+@[^@]+$"}}}}));
    let row = json!({"id": 1, "name": "Ada", "mail": "ada@example.org"});
    assert_eq!(table.check(&Value::from(vec![row; 2_000])), Ok(()));
}

#[test]
fn names_of_every_kind_are_resolved() {
    for schema in [
        json!({"$id": "https://a.b/c.json", "properties": {"v": {"$ref": "c.json#/$defs/x"}},
            "$defs": {"x": {"type": "string"}}}),
        json!({"properties": {"v": {"$ref": "#x"}},
            "$defs": {"x": {"$anchor": "x", "type": "string"}}}),
        json!({"properties": {"v": {"$ref": "T0"}},
            "$defs": {"x": {"$id": "T0", "type": "string"}}}),
        json!({"properties": {"v": {"$ref": "#/components/schemas/a~1b%20c"}},
            "components": {"schemas": {"a/b c": {"type": "string"}}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"v": {"$ref": "#x"}},
            "definitions": {"x": {"$id": "#x", "type": "string"}}}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://a.b/c#",
            "properties": {"v": {"$ref": "d"}},
            "definitions": {"x": {"id": "d", "type": "string"}}}),
    ] {
        let compiled = compiled(&schema);
        assert_eq!(compiled.check(&json!({"v": "text"})), Ok(()), "{schema}");
        assert!(compiled.check(&json!({"v": 1})).is_err(), "{schema}");
    }
    assert!(refusal(&json!({"$ref": "#/nowhere"})).contains("leads to no schema"));
}

#[test]
fn a_meta_schema_is_accepted_as_a_document_and_by_its_address() {
    let draft_7 = "http://json-schema.org/draft-07/schema#";
    let newest = "https://json-schema.org/draft/2020-12/schema";
    let schema = compiled(&json!({"type": "object", "properties": {"schema": {"$ref": newest}}}));
    assert_eq!(schema.check(&json!({"schema": {"type": "string"}})), Ok(()));
    assert!(schema.check(&json!({"schema": {"type": 1}})).is_err());
    let document = json!({"$schema": draft_7, "$id": draft_7, "type": ["object", "boolean"],
        "definitions": {"schemaArray": {"type": "array", "minItems": 1, "items": {"$ref": "#"}}},
        "properties": {"$id": {"type": "string", "format": "uri-reference"},
            "$ref": {"type": "string"}, "not": {"$ref": "#"}, "if": {"$ref": "#"},
            "allOf": {"$ref": "#/definitions/schemaArray"},
            "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/schemaArray"}]},
            "dependencies": {"additionalProperties": {"anyOf": [{"$ref": "#"}]}},
            "pattern": {"type": "string", "format": "regex"}}, "default": true});
    let meta = compiled(&document);
    assert_eq!(meta.check(&json!({"allOf": [{"not": {"$ref": "#"}}], "items": [{}]})), Ok(()));
    assert!(meta.check(&json!({"allOf": [{"not": 1}]})).is_err());
}

#[tokio::test]
async fn an_asynchronous_check_is_the_same_check() {
    let schema = compiled(&json!({"items": {"type": "integer"}}));
    assert_eq!(schema.check_async(&json!([1])).await, Ok(()));
    assert_eq!(schema.check_async(&Value::from(vec![1; 50_000])).await, Ok(()));
    let mut wrong = vec![json!(1); 50_000];
    wrong.push(json!("x"));
    assert!(schema.check_async(&Value::from(wrong)).await.unwrap_err().contains("50000"));
}
