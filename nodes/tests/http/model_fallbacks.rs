//! Models that answer in place of one that is overloaded or gone.

use serde_json::{Value, json};

use crate::api::Api;

fn scripted(name: &str, entry: Value) -> Value {
    json!({"provider": "scripted", "name": name, "script": [entry]})
}

fn failing(name: &str, retry: Value) -> Value {
    scripted(name, json!({"error": {"message": format!("{name} fails"), "retry": retry}}))
}

/// Sends a message to an agent with these models, of which the first is its own. Returns the journal's
/// event of this type.
async fn run(api: &Api, mut models: Vec<Value>, event: &str) -> Value {
    let mut model = models.remove(0);
    model["fallback"] = Value::from(models);
    let retry = json!({"max_attempts": 2, "base": "1ms"});
    let defined = api.put("/v1/agents/a", json!({"model": model, "retry": retry})).await;
    assert!([200, 201].contains(&defined.status), "{defined:?}");
    let sent =
        api.post("/v1/conversations/c/messages?wait=10s", json!({"agent": "a", "text": "go"}));
    assert_eq!(sent.await.status, 200);
    let page = api.get("/v1/conversations/c/journal?limit=1000").await.body;
    let events = page["events"].as_array().unwrap();
    let found = events.iter().rev().find(|found| found["type"] == event);
    found.unwrap_or_else(|| panic!("no {event}: {page}"))["data"].clone()
}

#[tokio::test]
async fn the_first_model_that_is_there_answers_and_the_journal_says_which() {
    let api = Api::start().await;
    let usage = json!({"input_tokens": 1_000_000, "output_tokens": 0});
    let mut last = scripted("third", json!({"text": "Here.", "usage": usage}));
    last["prices"] = json!({"input": 2.0});
    let models = vec![failing("first", json!(true)), failing("second", json!("elsewhere")), last];
    let answer = run(&api, models, "assistant_msg").await;
    assert_eq!(answer["message"]["content"][0]["text"], "Here.");
    assert_eq!(answer["fallback"], json!({"provider": "scripted", "name": "third"}));
    assert_eq!(answer["usage"]["cost_usd"], 2.0, "its own prices count: {answer}");
}

#[tokio::test]
async fn a_model_that_answers_is_no_fallback() {
    let api = Api::start().await;
    let models = vec![scripted("first", json!({"text": "Hi."})), failing("second", json!(true))];
    let answer = run(&api, models, "assistant_msg").await;
    assert_eq!(answer["message"]["content"][0]["text"], "Hi.");
    assert!(answer.get("fallback").is_none(), "{answer}");
}

#[tokio::test]
async fn a_request_that_is_refused_or_has_begun_to_be_answered_goes_to_no_other_model() {
    let api = Api::start().await;
    let other = scripted("second", json!({"text": "Hi."}));
    let ended = run(&api, vec![failing("first", json!(false)), other.clone()], "turn_ended").await;
    assert_eq!((&ended["outcome"], &ended["reason"]), (&json!("failed"), &json!("first fails")));
    let error = json!({"message": "cut off", "retry": true});
    let begins = scripted("first", json!({"text": "Well", "error": error}));
    let ended = run(&api, vec![begins, other], "turn_ended").await;
    assert_eq!((&ended["outcome"], &ended["reason"]), (&json!("failed"), &json!("cut off")));
}

#[tokio::test]
async fn the_error_of_the_last_model_ends_the_turn() {
    let api = Api::start().await;
    let models = vec![failing("first", json!(true)), failing("second", json!(true))];
    let ended = run(&api, models, "turn_ended").await;
    assert_eq!((&ended["outcome"], &ended["reason"]), (&json!("failed"), &json!("second fails")));
}
