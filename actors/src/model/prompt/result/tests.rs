//! Tests of results of every form, as the model reads them.
#![allow(clippy::unwrap_used)]

use abide_conversation::CallId;
use abide_conversation::message::ErrorType;
use proptest::prelude::*;

use super::*;

fn call(id: &str) -> CallRef {
    CallRef { id: CallId::new(id), name: "look".to_owned(), args: json!({}).into() }
}

fn image(data: &str) -> Value {
    json!({"type": "image", "altText": "a cat",
        "source": {"type": "base64", "mimeType": "image/png", "data": data}})
}

/// The text and the media that the model reads of one result.
fn read(result: Value) -> (Value, Vec<Value>) {
    let mut result_media = ResultMedia::default();
    let envelope = result_media.envelope(&call("c1"), &Outcome::Ok(result));
    let media = result_media.into_message(&MessageId::new("m1")).map(|message| message.content);
    let envelope: Value = serde_json::from_str(&envelope).unwrap();
    assert_eq!(envelope["ok"], true);
    (envelope["result"].clone(), media.unwrap_or_default())
}

#[test]
fn a_result_without_media_is_unchanged() {
    for result in [
        json!("text"),
        json!(null),
        json!({"rows": [1, 2.5, "ä"]}),
        json!([{"type": "text", "text": "a"}, {"type": "json", "data": {"z": 1, "a": 2}}]),
        json!([{"type": "document", "title": "a record", "body": "of its own"}, {"type": "video"}]),
        json!([{"type": "image", "source": "camera"}, {"type": "image", "source": {"type": "ftp"}}]),
        json!({"key": "Ab3/".repeat(1_000)}),
    ] {
        assert_eq!(read(result.clone()), (result, Vec::new()));
    }
    let failed = Outcome::Err("no".into(), ErrorType::ToolError);
    let text = ResultMedia::default().envelope(&call("c"), &failed);
    assert_eq!(text, r#"{"ok":false,"error":"no","error_type":"TOOL_ERROR"}"#);
}

#[test]
fn media_are_named_in_the_result_and_shown_after_it() {
    let link = json!({"type": "image", "source": {"type": "url", "url": "https://a.example/i"}});
    let result = json!([{"type": "text", "text": "two"}, image("AAEC"), {"deep": [link]}]);
    let (text, media) = read(result);
    let named = json!([
        {"type": "text", "text": "two"},
        {"type": "text", "text": "[image/png, 3 B: a cat]"},
        {"deep": [{"type": "text", "text": "[image at https://a.example/i]"}]},
    ]);
    assert_eq!(text, named);
    let of = text_block("Media in the result of c1 (look):");
    assert_eq!(media, [of, image("AAEC"), link]);
}

#[test]
fn a_document_of_text_is_read_in_the_result() {
    let notes = json!({"type": "document",
        "source": {"type": "base64", "mimeType": "text/plain", "data": "SGk="}});
    assert_eq!(read(notes), (text_block("```\nHi\n```"), Vec::new()));
}

#[test]
fn malformed_media_are_neither_described_nor_shown() {
    let typeless = json!({"type": "image", "source": {"type": "base64", "data": "AAEC"}});
    for broken in [image("AAE"), image("not base64"), typeless] {
        assert_eq!(read(broken), (text_block(BROKEN), Vec::new()));
    }
}

#[test]
fn surplus_media_are_left_out_and_named() {
    let (text, media) = read((0..MAX_MEDIA + 2).map(|_| image("AAEC")).collect());
    assert_eq!(media.len(), MAX_MEDIA + 1);
    assert_eq!(text[MAX_MEDIA - 1], text_block("[image/png, 3 B: a cat]"));
    let left_out = text_block(format!("[image/png, 3 B: a cat] {LEFT_OUT}"));
    assert_eq!([&text[MAX_MEDIA], &text[MAX_MEDIA + 1]], [&left_out, &left_out]);
    let large = "AAAA".repeat(MAX_MEDIA_BYTES / 8);
    let (text, media) = read([&*large, &large, "AAEC", ""].map(image).into_iter().collect());
    assert_eq!(media.len(), 3);
    assert!(text[2]["text"].as_str().unwrap().ends_with(LEFT_OUT));
    assert_eq!(text[3]["text"], BROKEN);
}

#[test]
fn the_media_of_all_calls_follow_in_call_order() {
    let mut result_media = ResultMedia::default();
    for (id, result) in [("a", image("AAAA")), ("b", json!(1)), ("c", image("BBBB"))] {
        result_media.envelope(&call(id), &Outcome::Ok(result));
    }
    let message = result_media.into_message(&MessageId::new("m1")).unwrap();
    assert_eq!((message.id.as_str(), message.role), ("media_m1", MessageRole::User));
    let of = |id| text_block(format!("Media in the result of {id} (look):"));
    assert_eq!(message.content, [of("a"), image("AAAA"), of("c"), image("BBBB")]);
}

#[test]
fn base64_is_never_cut() {
    let bytes = "Ab3/".repeat(20_000);
    let (text, _) = read(json!({"file": bytes, "n": 1}));
    assert_eq!(text, json!({"file": "[60 kB of base64]", "n": 1}));
    let mut result_media = ResultMedia::default();
    let result = json!({"text": "ä ".repeat(MAX_RESULT_BYTES), "file": bytes});
    let text = result_media.envelope(&call("c"), &Outcome::Ok(result));
    assert!(text.ends_with("[...truncated...]") && !text.contains("Ab3/"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_text_of_a_result_contains_no_media(
        quads in prop::collection::vec("[A-Za-z0-9+/]{40}", 1..20),
        depth in 0_usize..200,
    ) {
        let list: Vec<Value> = quads.iter().map(|data| image(data)).collect();
        let result = (0..depth.min(100)).fold(json!(list), |inner, _| json!({"in": [inner]}));
        let mut result_media = ResultMedia::default();
        let text = result_media.envelope(&call("c"), &Outcome::Ok(result));
        let media = result_media.into_message(&MessageId::new("m")).map_or(0, |it| it.content.len());
        if depth < 60 {
            prop_assert!(quads.iter().all(|data| !text.contains(data)));
            prop_assert_eq!(media, quads.len().min(MAX_MEDIA) + 1);
        }
    }
}
