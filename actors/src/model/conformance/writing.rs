//! What a request says.

use abide_conversation::message::Role;
use serde_json::{Value, json};

use super::render;
use super::render::{PDF, PNG, asking, asks, body, has, result, said, tools, user};
use super::{Dialect, Drawn};
use crate::model::Request;

const NOWHERE: &str = "http://127.0.0.1:9/v1";

fn request(on: &dyn Dialect, messages: Vec<abide_conversation::message::Message>) -> Request {
    Request { system: "Be brief.".to_owned(), tools: tools(on), messages, ..asking(on, NOWHERE) }
}

pub(super) async fn results_meet_their_calls(on: &dyn Dialect) -> Drawn<()> {
    let long = "x".repeat(127);
    let other = format!("{long}y");
    let ids = ["call_1", "call_1~2", "call_1!2", &long, &other];
    let mut messages = vec![asks("1", "go"), said("2", "", &ids)];
    messages.extend(ids.map(|id| result(id, "found")));
    let sent = body(&request(on, messages));
    let calls = on.calls(&sent);
    assert_eq!((calls.len(), &calls), (ids.len(), &on.results(&sent)));
    if on.has_ids() {
        let mut apart = calls.clone();
        apart.sort();
        apart.dedup();
        assert_eq!(apart.len(), ids.len(), "{calls:?}");
        assert!(calls.iter().all(|id| on.is_legal(id)), "{calls:?}");
    }
    Ok(())
}

fn bytes(kind: &str, media_type: &str, data: &str) -> Value {
    let source = json!({"type": "base64", "mimeType": media_type, "data": data});
    json!({"type": kind, "title": "R", "source": source})
}

fn shows(on: &dyn Dialect, block: Value, wanted: &Value) {
    let sent = body(&request(on, vec![user("1", vec![block])]));
    assert!(has(&sent, wanted), "{wanted} in {sent}");
}

pub(super) async fn images_are_native(on: &dyn Dialect) -> Drawn<()> {
    shows(on, bytes("image", "image/png", PNG), &on.image()?);
    Ok(())
}

pub(super) async fn documents_are_native(on: &dyn Dialect) -> Drawn<()> {
    shows(on, bytes("document", "application/pdf", PDF), &on.document()?);
    Ok(())
}

pub(super) async fn the_rest_is_text(on: &dyn Dialect) -> Drawn<()> {
    for (kind, media_type) in [("image", "image/tiff"), ("document", "application/zip")] {
        let sent = body(&request(on, vec![user("1", vec![bytes(kind, media_type, "AAEC")])]));
        let sent = sent.to_string();
        assert!(sent.contains(&format!("[{media_type}, 3 B: R]")), "{sent}");
        assert!(!sent.contains("AAEC"), "{sent}");
    }
    Ok(())
}

pub(super) async fn structured_output_is_asked_for(on: &dyn Dialect) -> Drawn<()> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    let asked = Request { schema: Some(schema.clone()), ..request(on, vec![asks("1", "go")]) };
    let (wanted, sent) = (on.structured(&schema)?, body(&asked));
    assert!(has(&sent, &wanted), "{wanted} in {sent}");
    Ok(())
}

pub(super) async fn marks_stand_at_the_ends(on: &dyn Dialect) -> Drawn<()> {
    let messages = vec![asks("1", "one"), said("2", "two", &[]), asks("3", "three")];
    for (stable, marked) in [(0, &["Be brief."][..]), (2, &["Be brief.", "two"])] {
        let asked = Request { stable, ..request(on, messages.clone()) };
        assert_eq!(on.marked(&body(&asked))?, marked);
    }
    Ok(())
}

pub(super) async fn the_conversation_names_the_cache(on: &dyn Dialect) -> Drawn<()> {
    let place = on.cache_key()?;
    let mut asked = request(on, vec![asks("1", "go")]);
    assert_eq!(body(&asked).pointer(place), None, "another server may not know it");
    asked.settings.base_url = None;
    assert_eq!(body(&asked).pointer(place), Some(&json!("conv_1")));
    Ok(())
}

fn conversation() -> Vec<abide_conversation::message::Message> {
    vec![
        user("1", vec![json!({"type": "json", "data": {"z": 1, "a": 2}})]),
        said("2", "I look.", &["a", "b"]),
        result("a", "found"),
        result("b", "nothing"),
        user("media_1", vec![bytes("image", "image/png", PNG)]),
        said("3", "Found.", &[]),
        asks("4", "more"),
        said("5", "", &["c"]),
        result("c", "found"),
    ]
}

pub(super) async fn the_same_request_is_the_same_bytes(on: &dyn Dialect) -> Drawn<()> {
    let asked = request(on, conversation());
    let sent = body(&asked).to_string();
    assert!(sent.len() > 500, "{sent}");
    assert_eq!(body(&asked.clone()).to_string(), sent);
    Ok(())
}

/// Results of one message come together, so they may be one message on the wire; and no step is
/// asked for after the assistant's own words.
pub(super) async fn the_prefix_stays(on: &dyn Dialect) -> Drawn<()> {
    let mut shorter: Option<Value> = None;
    for end in 1..=conversation().len() {
        let unanswered = conversation().get(end).is_some_and(|next| next.role == Role::Tool);
        if unanswered || conversation()[end - 1].role == Role::Assistant {
            continue;
        }
        let messages = conversation()[..end].to_vec();
        let mut sent = on.unmarked(&body(&Request { stable: end, ..request(on, messages) }));
        let list = sent.pointer_mut(on.messages()).unwrap().take();
        let Value::Array(list) = list else { panic!("{list} is no list") };
        if let Some(shorter) = shorter.take() {
            assert_eq!(shorter["rest"].to_string(), sent.to_string());
            let before = shorter["list"].as_array().unwrap();
            let first = Value::from(&list[..before.len()]);
            assert_eq!(shorter["list"].to_string(), first.to_string(), "{end} messages");
        }
        shorter = Some(json!({"rest": sent, "list": list}));
    }
    Ok(())
}

pub(super) async fn options_come_last(on: &dyn Dialect) -> Drawn<()> {
    let mut asked = request(on, vec![asks("1", "go")]);
    asked.settings.temperature = Some(0.5);
    let before = body(&asked);
    asked.settings.options.insert("special".to_owned(), json!({"deep": {"er": 1}}));
    let sent = body(&asked);
    assert_eq!(sent["special"], json!({"deep": {"er": 1}}));
    assert!(has(&before, &json!(0.5)), "{before}");
    assert_eq!(render::without(&sent, "special"), before);
    Ok(())
}
