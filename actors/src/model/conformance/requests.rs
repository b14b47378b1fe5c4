//! Cases of how requests are written.

use abide_conversation::message::MessageRole;
use serde_json::{Value, json};

use super::render;
use super::render::{
    PDF, PNG, assistant, body, contains, request_to, result, tools, user, user_text,
};
use super::{Dialect, Rendered};
use crate::model::ModelRequest;

const NOWHERE: &str = "http://127.0.0.1:9/v1";

fn request(
    dialect: &dyn Dialect,
    messages: Vec<abide_conversation::message::Message>,
) -> ModelRequest {
    ModelRequest {
        system: "Be brief.".to_owned(),
        tools: tools(dialect),
        messages,
        ..request_to(dialect, NOWHERE)
    }
}

pub(super) async fn results_meet_their_calls(dialect: &dyn Dialect) -> Rendered<()> {
    let long = "x".repeat(127);
    let other = format!("{long}y");
    let ids = ["call_1", "call_1~2", "call_1!2", &long, &other];
    let mut messages = vec![user_text("1", "go"), assistant("2", "", &ids)];
    messages.extend(ids.map(|id| result(id, "found")));
    let sent = body(&request(dialect, messages));
    let calls = dialect.calls(&sent);
    assert_eq!((calls.len(), &calls), (ids.len(), &dialect.results(&sent)));
    if dialect.has_ids() {
        let mut apart = calls.clone();
        apart.sort();
        apart.dedup();
        assert_eq!(apart.len(), ids.len(), "{calls:?}");
        assert!(calls.iter().all(|id| dialect.is_legal(id)), "{calls:?}");
    }
    Ok(())
}

fn bytes(kind: &str, media_type: &str, data: &str) -> Value {
    let source = json!({"type": "base64", "mimeType": media_type, "data": data});
    json!({"type": kind, "title": "R", "source": source})
}

fn shows(dialect: &dyn Dialect, block: Value, wanted: &Value) {
    let sent = body(&request(dialect, vec![user("1", vec![block])]));
    assert!(contains(&sent, wanted), "{wanted} in {sent}");
}

pub(super) async fn images_are_native(dialect: &dyn Dialect) -> Rendered<()> {
    shows(dialect, bytes("image", "image/png", PNG), &dialect.image()?);
    Ok(())
}

pub(super) async fn documents_are_native(dialect: &dyn Dialect) -> Rendered<()> {
    shows(dialect, bytes("document", "application/pdf", PDF), &dialect.document()?);
    Ok(())
}

pub(super) async fn the_rest_is_text(dialect: &dyn Dialect) -> Rendered<()> {
    for (kind, media_type) in [("image", "image/tiff"), ("document", "application/zip")] {
        let sent = body(&request(dialect, vec![user("1", vec![bytes(kind, media_type, "AAEC")])]));
        let sent = sent.to_string();
        assert!(sent.contains(&format!("[{media_type}, 3 B: R]")), "{sent}");
        assert!(!sent.contains("AAEC"), "{sent}");
    }
    Ok(())
}

pub(super) async fn structured_output_is_asked_for(dialect: &dyn Dialect) -> Rendered<()> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    let request = ModelRequest {
        schema: Some(schema.clone()),
        ..request(dialect, vec![user_text("1", "go")])
    };
    let (wanted, sent) = (dialect.structured_output(&schema)?, body(&request));
    assert!(contains(&sent, &wanted), "{wanted} in {sent}");
    Ok(())
}

pub(super) async fn marks_stand_at_the_ends(dialect: &dyn Dialect) -> Rendered<()> {
    let messages = vec![user_text("1", "one"), assistant("2", "two", &[]), user_text("3", "three")];
    for (stable, marked) in [(0, &["Be brief."][..]), (2, &["Be brief.", "two"])] {
        let request =
            ModelRequest { stable_messages: stable, ..request(dialect, messages.clone()) };
        assert_eq!(dialect.cache_marks(&body(&request))?, marked);
    }
    Ok(())
}

pub(super) async fn the_conversation_names_the_cache(dialect: &dyn Dialect) -> Rendered<()> {
    let place = dialect.cache_key()?;
    let mut request = request(dialect, vec![user_text("1", "go")]);
    assert_eq!(body(&request).pointer(place), None, "another server may not know it");
    request.settings.base_url = None;
    assert_eq!(body(&request).pointer(place), Some(&json!("conv_1")));
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

pub(super) async fn the_same_request_is_the_same_bytes(dialect: &dyn Dialect) -> Rendered<()> {
    let request = request(dialect, conversation());
    let sent = body(&request).to_string();
    assert!(sent.len() > 500, "{sent}");
    assert_eq!(body(&request.clone()).to_string(), sent);
    Ok(())
}

/// The results of one message are added together, since they may be one message on the wire; and no
/// step follows the assistant's own text.
pub(super) async fn the_prefix_stays(dialect: &dyn Dialect) -> Rendered<()> {
    let mut shorter: Option<Value> = None;
    for end in 1..=conversation().len() {
        let unanswered = conversation().get(end).is_some_and(|next| next.role == MessageRole::Tool);
        if unanswered || conversation()[end - 1].role == MessageRole::Assistant {
            continue;
        }
        let messages = conversation()[..end].to_vec();
        let mut sent = dialect.without_cache_marks(&body(&ModelRequest {
            stable_messages: end,
            ..request(dialect, messages)
        }));
        let list = sent.pointer_mut(dialect.messages()).unwrap().take();
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

pub(super) async fn options_come_last(dialect: &dyn Dialect) -> Rendered<()> {
    let mut request = request(dialect, vec![user_text("1", "go")]);
    request.settings.temperature = Some(0.5);
    let before = body(&request);
    request.settings.options.insert("special".to_owned(), json!({"deep": {"er": 1}}));
    let sent = body(&request);
    assert_eq!(sent["special"], json!({"deep": {"er": 1}}));
    assert!(contains(&before, &json!(0.5)), "{before}");
    assert_eq!(render::without(&sent, "special"), before);
    Ok(())
}
