//! The document itself: checked in, and served.

use serde_json::Value;

use crate::api::Api;

#[test]
fn the_document_is_checked_in() {
    let checked_in = include_str!("../../openapi.json");
    let same = checked_in == format!("{}\n", abide::http::openapi::text());
    assert!(same, "the API has changed: cargo run -p abide -- openapi > nodes/openapi.json");
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(value: &Value, root: &Value) {
        match value {
            Value::Object(object) => {
                if let Some(at) = object.get("$ref").and_then(Value::as_str) {
                    let found = root.pointer(at.trim_start_matches('#'));
                    assert!(found.is_some(), "{at}");
                }
                object.values().for_each(|value| walk(value, root));
            }
            Value::Array(list) => list.iter().for_each(|value| walk(value, root)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(abide::http::openapi::text()).unwrap();
    walk(&document, &document);
}

#[tokio::test]
async fn the_document_is_served() {
    let api = Api::start().await;
    let answer = api.get("/openapi.json").await;
    assert_eq!((answer.status, answer.media()), (200, "application/json"));
    assert_eq!(answer.body["openapi"], "3.1.0");
}
