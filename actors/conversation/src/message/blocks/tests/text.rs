//! The text of each kind of block.

use serde_json::{Value, json};

use super::super::{as_text, base64, texts, without_bytes};
use super::one_of_each_kind;

fn text_of(block: Value) -> String {
    as_text(&block).unwrap().into_owned()
}

#[test]
fn every_kind_has_a_text_that_reads_well() {
    let expected = [
        "hello",
        "[image/png, 3 B: a cat]",
        "[document at https://example.com/r.pdf: Report]",
        "[audio/mpeg, 2 B]\n```transcript\ngood day\n```",
        "[video at s3://films/a/b.mp4]",
        "[call: search {\"q\":1}]",
        "[result of: search]\nfound\n[image/png, 3 B: a cat]",
        "{\"z\":1,\"a\":null}",
        "```xml\n<a/>\n```",
        "[columns: a, b]\n```csv\n1,2\n```",
        "```html\n<p>x</p>\n```",
        "```rust\nfn f() {}\n```",
        "[image/webp, 1 B: a dog]",
        "[text/csv: f.csv https://example.com/f]",
        "```python\nprint(1)\n```",
        "[the code's output]\n```\n1\n```",
        "[user action: approve on order 7 by anna: {\"amount\":3}]",
        "[system event: deployed from ci: {\"n\":2}]",
        "[state change: order.status from null to \"paid\" by payment]",
        "<note level=\"1\">look</note>",
    ];
    let blocks = one_of_each_kind();
    assert_eq!(texts(&blocks), expected);
}

#[test]
fn an_event_is_one_line_and_its_own_text_goes_first() {
    let action = json!({"type": "user_action", "action": "a\nb", "text": ""});
    assert_eq!(text_of(action), "[user action: a b]");
    let event = json!({"type": "system_event", "event": "x", "text": "It\nrains."});
    assert_eq!(text_of(event), "It rains.");
}

#[test]
fn a_fence_is_longer_than_those_in_its_text() {
    let code =
        |text: &str, language: &str| json!({"type": "code", "text": text, "language": language});
    assert_eq!(text_of(code("a ````b", "rust")), "`````rust\na ````b\n`````");
    assert_eq!(text_of(code("", "c++\n```\n")), "```c++\n```");
}

#[test]
fn a_document_of_text_is_its_text() {
    let document = |media_type: &str, data: &str| {
        text_of(json!({"type": "document", "title": "Notes", "source":
            {"type": "base64", "mimeType": media_type, "data": data}}))
    };
    assert_eq!(document("text/markdown; charset=utf-8", "SGk="), "[document: Notes]\n```\nHi\n```");
    assert_eq!(document("application/pdf", "SGk="), "[application/pdf, 2 B: Notes]");
    assert_eq!(document("text/plain", "//8="), "[text/plain, 2 B: Notes]");
}

#[test]
fn a_broken_block_of_media_is_named_and_nothing_of_it_shown() {
    for source in [json!(null), json!({"data": "AAAA"}), json!({"type": "url", "url": "data:,A"})] {
        let image = json!({"type": "image", "data": "AAAA", "altText": "AAAA", "source": source});
        assert_eq!(text_of(image), "[image that cannot be shown]");
    }
    let file = json!({"type": "generated_file", "uri": "data:text/csv;base64,AAAA",
        "mimeType": "text/csv"});
    assert_eq!(text_of(file), "[text/csv: [3 B of base64]]");
}

#[test]
fn an_unknown_or_broken_block_is_its_json_cut() {
    assert_eq!(text_of(json!({"type": "hologram", "n": 1})), r#"{"type":"hologram","n":1}"#);
    assert_eq!(text_of(json!({"type": "code"})), r#"{"type":"code"}"#);
    assert_eq!(text_of(json!(7)), "7");
    let long = text_of(json!({"type": "hologram", "text": "ä ".repeat(20_000)}));
    assert!(long.len() < 17_000 && long.ends_with("ä [...truncated...]"), "{}", long.len());
    let around = json!({"type": "hologram", "text": ""}).to_string().len();
    for (len, is_whole) in [(16 << 10, true), ((16 << 10) + 1, false)] {
        let text = text_of(json!({"type": "hologram", "text": " ".repeat(len - around)}));
        assert_eq!(text.ends_with('}'), is_whole, "{len}");
    }
}

#[test]
fn a_result_within_a_result_is_a_label() {
    let result = |content: Value| json!({"type": "tool_result", "toolUseId": "c", "name": "t", "content": content});
    let inner = result(json!([{"type": "text", "text": "found"}]));
    assert_eq!(text_of(result(json!([inner, inner]))), "[result of: t]\n[result]\n[result]");
}

#[test]
fn a_tag_closes_itself_only_if_it_is_empty_and_says_so() {
    for (content, self_closing, text) in
        [("", true, "<note/>"), ("", false, "<note></note>"), ("look", true, "<note>look</note>")]
    {
        let tag = json!({"type": "custom", "tag": "note", "content": content, "attrs": {},
            "selfClosing": self_closing});
        assert_eq!(text_of(tag), text);
    }
}

#[test]
fn a_value_is_cut_where_it_is_nested_too_deep() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| {
            (0..depth).fold(json!(1), |value, _| match open {
                "[" => json!([value]),
                _ => json!({"a": value}),
            })
        };
        let text = |inner: &str| format!("{}{inner}{}", open.repeat(128), close.repeat(128));
        assert_eq!(without_bytes(&nested(128)).to_string(), text("1"));
        assert_eq!(without_bytes(&nested(200)).to_string(), text("\"[...]\""));
    }
}

#[test]
fn only_what_is_surely_base64_is_taken_out_of_a_value() {
    let bytes = "Ab3/".repeat(500);
    let address = "data:image/png;base64,AAAA";
    let value = json!({"a": [bytes, address], "b": {"c": bytes}});
    let expected = json!({"a": ["[1 kB of base64]", "[3 B of base64]"],
        "b": {"c": "[1 kB of base64]"}});
    assert_eq!(without_bytes(&value), expected);
    let words =
        ["ACGT".repeat(500), "0123abcd".repeat(500), "So 1 it is. ".repeat(500), "Ab3/".repeat(99)];
    for text in words {
        assert_eq!(without_bytes(&json!(text)), text);
    }
}

#[test]
fn base64_is_decoded_as_it_was_encoded() {
    for (text, bytes) in [
        ("", &b""[..]),
        ("Zg==", b"f"),
        ("Zm8=", b"fo"),
        ("Zm9v", b"foo"),
        ("Zm9vYmE=", b"fooba"),
        ("//79+w==", b"\xff\xfe\xfd\xfb"),
    ] {
        assert_eq!(base64::decode(text).as_deref(), Some(bytes), "{text}");
        assert!(base64::is_valid(text));
        assert_eq!(base64::decoded_len(text), bytes.len(), "{text}");
    }
}
