//! Cases of how requests are written.

use abide_conversation::message::Role;
use serde_json::{Value, json};

use super::render;
use super::render::{
    PDF, PNG, assistant, body, contains, request_to, result, tools, user, user_text,
};
use super::{Dialect, Rendered};
use crate::model::ModelRequest;

const NOWHERE: &str = "http://127.0.0.1:9/v1";

fn request(on: &dyn Dialect, messages: Vec<abide_conversation::message::Message>) -> ModelRequest {
    ModelRequest {
        system: "Be brief.".to_owned(),
        tools: tools(on),
        messages,
        ..request_to(on, NOWHERE)
    }
}

pub(super) async fn results_meet_their_calls(on: &dyn Dialect) -> Rendered<()> {
    let long = "x".repeat(127);
    let other = format!("{long}y");
    let ids = ["call_1", "call_1~2", "call_1!2", &long, &other];
    let mut messages = vec![user_text("1", "go"), assistant("2", "", &ids)];
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
    assert!(contains(&sent, wanted), "{wanted} in {sent}");
}

pub(super) async fn images_are_native(on: &dyn Dialect) -> Rendered<()> {
    shows(on, bytes("image", "image/png", PNG), &on.image()?);
    Ok(())
}

pub(super) async fn documents_are_native(on: &dyn Dialect) -> Rendered<()> {
    shows(on, bytes("document", "application/pdf", PDF), &on.document()?);
    Ok(())
}

pub(super) async fn the_rest_is_text(on: &dyn Dialect) -> Rendered<()> {
    for (kind, media_type) in [("image", "image/tiff"), ("document", "application/zip")] {
        let sent = body(&request(on, vec![user("1", vec![bytes(kind, media_type, "AAEC")])]));
        let sent = sent.to_string();
        assert!(sent.contains(&format!("[{media_type}, 3 B: R]")), "{sent}");
        assert!(!sent.contains("AAEC"), "{sent}");
    }
    Ok(())
}

pub(super) async fn structured_output_is_asked_for(on: &dyn Dialect) -> Rendered<()> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    let asked =
        ModelRequest { schema: Some(schema.clone()), ..request(on, vec![user_text("1", "go")]) };
    let (wanted, sent) = (on.structured_output(&schema)?, body(&asked));
    assert!(contains(&sent, &wanted), "{wanted} in {sent}");
    Ok(())
}

pub(super) async fn marks_stand_at_the_ends(on: &dyn Dialect) -> Rendered<()> {
    let messages = vec![user_text("1", "one"), assistant("2", "two", &[]), user_text("3", "three")];
    for (stable, marked) in [(0, &["Be brief."][..]), (2, &["Be brief.", "two"])] {
        let asked = ModelRequest { stable_messages: stable, ..request(on, messages.clone()) };
        assert_eq!(on.cache_marks(&body(&asked))?, marked);
    }
    Ok(())
}

pub(super) async fn the_conversation_names_the_cache(on: &dyn Dialect) -> Rendered<()> {
    let place = on.cache_key()?;
    let mut asked = request(on, vec![user_text("1", "go")]);
    assert_eq!(body(&asked).pointer(place), None, "another server may not know it");
    asked.settings.base_url = None;
    assert_eq!(body(&asked).pointer(place), Some(&json!("conv_1")));
    Ok(())
}

fn conversation() -> Vec<abide_conversation::message::Message> {
    vec![
        user("1", vec![json!({"type": "json", "data": {"z": 1, "a": 2}})]),
        assistant("2", "I look.", &["a", "b"]),
        result("a", "found"),
        result("b", "nothing"),
        user("media_1", vec![bytes("image", "image/png", PNG)]),
        assistant("3", "Found.", &[]),
        user_text("4", "more"),
        assistant("5", "", &["c"]),
        result("c", "found"),
    ]
}

pub(super) async fn the_same_request_is_the_same_bytes(on: &dyn Dialect) -> Rendered<()> {
    let asked = request(on, conversation());
    let sent = body(&asked).to_string();
    assert!(sent.len() > 500, "{sent}");
    assert_eq!(body(&asked.clone()).to_string(), sent);
    Ok(())
}

/// The results of one message are added together, since they may be one message on the wire; and no
/// step follows the assistant's own text.
pub(super) async fn the_prefix_stays(on: &dyn Dialect) -> Rendered<()> {
    let mut shorter: Option<Value> = None;
    for end in 1..=conversation().len() {
        let unanswered = conversation().get(end).is_some_and(|next| next.role == Role::Tool);
        if unanswered || conversation()[end - 1].role == Role::Assistant {
            continue;
        }
        let messages = conversation()[..end].to_vec();
        let mut sent = on.without_cache_marks(&body(&ModelRequest {
            stable_messages: end,
            ..request(on, messages)
        }));
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

pub(super) async fn options_come_last(on: &dyn Dialect) -> Rendered<()> {
    let mut asked = request(on, vec![user_text("1", "go")]);
    asked.settings.temperature = Some(0.5);
    let before = body(&asked);
    asked.settings.options.insert("special".to_owned(), json!({"deep": {"er": 1}}));
    let sent = body(&asked);
    assert_eq!(sent["special"], json!({"deep": {"er": 1}}));
    assert!(contains(&before, &json!(0.5)), "{before}");
    assert_eq!(render::without(&sent, "special"), before);
    Ok(())
}
