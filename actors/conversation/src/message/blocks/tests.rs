//! Valid, invalid and arbitrary blocks.
#![allow(clippy::unwrap_used)]

mod arbitrary_json;
mod text;

use serde_json::{Value, json};

use super::*;

/// One valid block of every kind, with every field of its kind.
pub(super) fn one_of_each_kind() -> Vec<Value> {
    let image = json!({"type": "image", "altText": "a cat", "source":
        {"type": "base64", "data": "AAEC", "mimeType": "image/png"}});
    vec![
        json!({"type": "text", "text": "hello", "id": "b1", "messageId": "m", "index": 0,
            "createdAt": "2026-11-22T08:00:00Z", "metadata": {"a": 1}, "summary": "a greeting"}),
        image.clone(),
        json!({"type": "document", "title": "Report", "source":
            {"type": "url", "url": "https://example.com/r.pdf", "mimeType": "application/pdf"}}),
        json!({"type": "audio", "transcript": "good day", "mimeType": "audio/mpeg", "source":
            {"type": "base64", "data": "AAE="}}),
        json!({"type": "video", "transcript": null, "source":
            {"type": "s3", "bucket": "films", "key": "a/b.mp4", "region": "eu-west-1"}}),
        json!({"type": "tool_use", "toolUseId": "c1", "name": "search", "input": {"q": 1}}),
        json!({"type": "tool_result", "toolUseId": "c1", "name": "search", "isError": false,
            "content": [{"type": "text", "text": "found"}, image]}),
        json!({"type": "reasoning", "text": "hm", "signature": "s", "isRedacted": false}),
        json!({"type": "json", "data": {"z": 1, "a": null}, "text": "{}"}),
        json!({"type": "xml", "text": "<a/>"}),
        json!({"type": "csv", "text": "1,2\n", "headers": ["a", "b"]}),
        json!({"type": "html", "text": "<p>x</p>"}),
        json!({"type": "code", "text": "fn f() {}", "language": "rust"}),
        json!({"type": "generated_image", "data": "AA==", "mimeType": "image/webp",
            "altText": "a dog"}),
        json!({"type": "generated_file", "uri": "https://example.com/f", "mimeType": "text/csv",
            "displayName": "f.csv"}),
        json!({"type": "executable_code", "code": "print(1)", "language": "python"}),
        json!({"type": "code_execution_result", "output": "1\n", "isError": false}),
        json!({"type": "user_action", "action": "approve", "actor": "anna", "target": "order 7",
            "details": {"amount": 3}}),
        json!({"type": "system_event", "event": "deployed", "source": "ci", "data": {"n": 2}}),
        json!({"type": "state_change", "entity": "order", "field": "status", "from": null,
            "to": "paid", "trigger": "payment"}),
        json!({"type": "custom", "tag": "note", "content": "look", "attrs": {"level": "1"},
            "selfClosing": false}),
    ]
}

/// The block with another value in one place; `None` removes the field.
fn with(mut block: Value, at: &str, value: Option<Value>) -> Value {
    let (parent, name) = at.rsplit_once('/').unwrap();
    let fields = block.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.shift_remove(name),
    };
    block
}

#[test]
fn a_whole_block_of_every_kind_passes() {
    let kinds: Vec<BlockKind> =
        one_of_each_kind().iter().map(|block| BlockKind::of(block).unwrap()).collect();
    assert_eq!(kinds.len(), 21);
    for block in one_of_each_kind() {
        assert_eq!(check(&block), Ok(()), "{block}");
        assert!(is_block(&block));
    }
}

#[test]
fn a_block_that_lacks_what_its_kind_must_have_is_wrong_there() {
    let required: [&[&str]; 21] = [
        &["text"],
        &["source", "source/type", "source/data", "source/mimeType"],
        &["source", "source/type", "source/url"],
        &["source", "source/type", "source/data"],
        &["source", "source/type", "source/bucket", "source/key"],
        &["toolUseId", "name", "input"],
        &["toolUseId", "name", "content"],
        &["text"],
        &[],
        &["text"],
        &["text"],
        &["text"],
        &["text", "language"],
        &["data", "mimeType"],
        &["uri", "mimeType"],
        &["code"],
        &["output"],
        &["action"],
        &["event"],
        &["entity", "from", "to"],
        &["tag", "content", "attrs"],
    ];
    for (block, fields) in one_of_each_kind().into_iter().zip(required) {
        for field in fields {
            let wrong = check(&with(block.clone(), &format!("/{field}"), None)).unwrap_err();
            let at = format!(".{}", field.replace('/', "."));
            assert_eq!((wrong.path, wrong.problem.as_str()), (at, "is missing"), "{block}");
        }
    }
}

#[test]
fn a_field_of_another_form_is_wrong_there() {
    for block in one_of_each_kind() {
        let names: Vec<String> = block.as_object().unwrap().keys().cloned().collect();
        for name in names.iter().filter(|name| !["type", "data", "from", "to"].contains(&&***name))
        {
            let wrong = check(&with(block.clone(), &format!("/{name}"), Some(json!([7]))));
            assert!(wrong.clone().unwrap_err().path.starts_with(&format!(".{name}")), "{wrong:?}");
        }
    }
}

#[test]
fn a_source_is_judged_by_its_type() {
    let image = |source: Value| check(&json!({"type": "image", "source": source}));
    let png = |data: &str| json!({"type": "base64", "data": data, "mimeType": "image/png"});
    for source in [
        png("AAEC"),
        png("AA=="),
        json!({"type": "base64", "data": "AA==", "media_type": "image/png"}),
        json!({"type": "url", "url": "HTTP://127.0.0.1/i.png"}),
        json!({"type": "blob", "blobId": format!("blob_{}", "0a".repeat(32))}),
        json!({"type": "file_id", "fileId": "file-1"}),
        json!({"type": "s3", "bucket": "b", "key": "k"}),
        json!({"type": "gcs", "bucket": "b", "object": "o"}),
    ] {
        assert_eq!(image(source.clone()), Ok(()), "{source}");
    }
    for (source, at) in [
        (json!("AA=="), ".source"),
        (json!({"type": "ftp"}), ".source.type"),
        (json!({"type": "blob"}), ".source.blobId"),
        (json!({"type": "blob", "blobId": format!("blob_{}", "0A".repeat(32))}), ".source.blobId"),
        (json!({"type": "file_id"}), ".source.fileId"),
        (json!({"type": "gcs", "bucket": "b"}), ".source.object"),
        (json!({"type": "url", "url": "data:image/png;base64,AA=="}), ".source.url"),
        (json!({"type": "url", "url": "file:///etc/passwd"}), ".source.url"),
        (json!({"type": "url", "url": "http://a b"}), ".source.url"),
        (json!({"type": "url", "url": "https:///x"}), ".source.url"),
        (json!({"type": "url", "url": format!("http://a/{}", "x".repeat(9_000))}), ".source.url"),
        (json!({"type": "base64", "data": "AA=="}), ".source.mimeType"),
        (json!({"type": "base64", "data": "AA==", "mimeType": "audio/mpeg"}), ".source.mimeType"),
        (json!({"type": "base64", "data": "AA==", "mimeType": "image"}), ".source.mimeType"),
        (json!({"type": "base64", "data": "AA==", "mimeType": "image/p\n"}), ".source.mimeType"),
        (png(""), ".source.data"),
        (png("A"), ".source.data"),
        (png("AAE"), ".source.data"),
        (png("A==="), ".source.data"),
        (png("AA==AA=="), ".source.data"),
        (png("AA\n="), ".source.data"),
        (png("-_-_"), ".source.data"),
        (png("data:image/png;base64,AA=="), ".source.data"),
        (png("ääää"), ".source.data"),
    ] {
        assert_eq!(image(source.clone()).unwrap_err().path, at, "{source}");
    }
}

#[test]
fn bytes_have_a_media_type_of_their_kind() {
    let types = ["image/png", "audio/mpeg", "video/mp4"];
    for (kind, fitting) in [("image", 0..1), ("audio", 1..2), ("video", 2..3), ("document", 0..3)] {
        for (place, media_type) in types.iter().enumerate() {
            let source = json!({"type": "base64", "data": "AA==", "mimeType": media_type});
            let wrong = check(&json!({"type": kind, "source": source})).err();
            let expected = (!fitting.contains(&place)).then_some(".source.mimeType");
            assert_eq!(wrong.as_ref().map(|wrong| wrong.path.as_str()), expected, "{kind}");
        }
    }
    for media_type in ["/pdf", "text/", "te xt/plain", "text"] {
        let source = json!({"type": "base64", "data": "AA==", "mimeType": media_type});
        let wrong = check(&json!({"type": "document", "source": source})).unwrap_err();
        assert_eq!(wrong.path, ".source.mimeType", "{media_type}");
    }
    for (data, media_type, at) in [("AA==", "audio/mpeg", ".mimeType"), ("A", "image/png", ".data")]
    {
        let block = json!({"type": "generated_image", "data": data, "mimeType": media_type});
        assert_eq!(check(&block).unwrap_err().path, at);
    }
    assert_eq!(base64::decode("AA==AAAA"), None, "nothing follows the padding");
}

#[test]
fn an_unknown_type_passes_and_a_missing_one_does_not() {
    for block in
        [json!({"type": "hologram"}), json!({"type": "Text"}), json!({"type": "x", "y": 1})]
    {
        assert_eq!(check_from_user(&block), Ok(()));
        assert!(!is_block(&block));
    }
    for block in [
        json!(7),
        json!("text"),
        json!([]),
        json!({}),
        json!({"type": 7}),
        json!({"type": ""}),
        json!({"type": {"text": null}}),
        json!({"text": "x"}),
    ] {
        assert_eq!(check(&block).unwrap_err().path, "", "{block}");
        assert_eq!(BlockKind::of(&block), None);
    }
}

#[test]
fn what_the_model_did_nobody_else_may_say() {
    for block in one_of_each_kind() {
        let models = ["tool_use", "tool_result", "reasoning"];
        let refused = models.contains(&block["type"].as_str().unwrap());
        match check_from_user(&block) {
            Ok(()) => assert!(!refused, "{block}"),
            Err(wrong) => assert_eq!((refused, wrong.path.as_str()), (true, ".type"), "{block}"),
        }
    }
}

#[test]
fn a_json_block_has_its_data_or_text_that_is_json() {
    for block in [json!({"type": "json", "data": null}), json!({"type": "json", "text": "[1]"})] {
        assert_eq!(check(&block), Ok(()));
    }
    for (block, at) in [
        (json!({"type": "json"}), ".data"),
        (json!({"type": "json", "text": "{"}), ".text"),
        (json!({"type": "json", "data": 1, "text": 1}), ".text"),
    ] {
        assert_eq!(check(&block).unwrap_err().path, at);
    }
}

#[test]
fn a_block_within_a_result_is_named_by_its_place() {
    let result = |content: Value| json!({"type": "tool_result", "toolUseId": "c", "name": "t", "content": content});
    let broken = result(json!([{"type": "text", "text": "a"}, {"type": "image"}]));
    assert_eq!(check(&broken).unwrap_err().path, ".content[1].source");
    let deep = (0..9).fold(result(json!([])), |inner, _| result(json!([inner])));
    assert!(check(&deep).unwrap_err().problem.contains("too deep"));
}

#[test]
fn a_generated_image_has_its_bytes_in_a_blob_or_itself() {
    let id = format!("blob_{}", "0".repeat(64));
    let block = json!({"type": "generated_image", "source": {"type": "blob", "blobId": id}});
    assert_eq!(check(&block), Ok(()));
    assert_eq!(Media::of(&block).unwrap().source, Source::Blob(&id));
    assert_eq!(as_text(&block).unwrap(), format!("[generated_image in blob {id}]"));
}
