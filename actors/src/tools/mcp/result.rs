//! Converts a server's result into ours.

use abide_conversation::message::text_block;
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::{Value, json};

use crate::expressions::schema::Schema;
use crate::limits::cut;
use crate::model::big_numbers::{OVER_64_BITS, find_large, find_rounded};
use crate::tools::ToolReturn;

/// The longest path of a field that an error names.
const MAX_FIELD_BYTES: usize = 200;

/// Converts a result: structured content first, else a single text as text, else content blocks. An
/// error becomes its text. Structured content that violates the tool's output schema is an error,
/// too.
pub(super) async fn to_tool_return(
    result: CallToolResult,
    promised: Option<&Schema>,
) -> ToolReturn {
    let structured = result.structured_content.as_ref().filter(|_| result.is_error != Some(true));
    if let (Some(value), Some(schema)) = (structured, promised)
        && let Err(why) = schema.check_async(value).await
    {
        return ToolReturn::error(format!("the tool's result violates its output schema: {why}"));
    }
    convert(result)
}

fn convert(result: CallToolResult) -> ToolReturn {
    if result.is_error == Some(true) {
        let texts = result.content.iter().filter_map(ContentBlock::as_text);
        let text = texts.map(|text| text.text.as_str()).collect::<Vec<_>>().join("\n");
        return ToolReturn::error(if text.is_empty() {
            "the tool failed".to_owned()
        } else {
            text
        });
    }
    if let Some(value) = result.structured_content {
        if let Some(field) = find_rounded_result(&value, &result.content) {
            let field = cut(&field, MAX_FIELD_BYTES);
            return ToolReturn::error(format!("in the tool's result {field}: {OVER_64_BITS}"));
        }
        return ToolReturn::ok(value);
    }
    let mut blocks = result.content;
    match (blocks.len(), blocks.pop()) {
        (_, None) => ToolReturn::ok(Value::Null),
        (1, Some(ContentBlock::Text(text))) => ToolReturn::ok(text.text),
        (_, Some(last)) => {
            ToolReturn::ok(blocks.into_iter().chain([last]).map(convert_block).collect::<Vec<_>>())
        }
    }
}

/// The path of a whole number in structured content that was rounded when it was received. Servers
/// send the same as a text, too, which shows whether a large number was meant to be approximate.
fn find_rounded_result(value: &Value, content: &[ContentBlock]) -> Option<String> {
    let large = find_large(value)?;
    let mut texts = content.iter().filter_map(ContentBlock::as_text).peekable();
    let is_approximate =
        texts.peek().is_some() && texts.all(|text| find_rounded(&text.text).is_none());
    (!is_approximate).then_some(large)
}

/// Converts an MCP content block into one of ours.
fn convert_block(block: ContentBlock) -> Value {
    match block {
        ContentBlock::Text(text) => text_block(text.text),
        ContentBlock::Image(image) => media_block("image", image.mime_type, image.data),
        ContentBlock::Audio(audio) => media_block("audio", audio.mime_type, audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text_block(text),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                let mut document = media_block("document", kind, blob);
                document["title"] = uri.into();
                document
            }
            _ => unknown_block(),
        },
        ContentBlock::ResourceLink(link) => convert_link(link),
        _ => unknown_block(),
    }
}

fn media_block(kind: &str, mime_type: String, data: String) -> Value {
    json!({"type": kind, "source": {"type": "base64", "mimeType": mime_type, "data": data}})
}

/// A model can follow a web address; any other URI has a meaning only for the server.
fn convert_link(link: Resource) -> Value {
    let title = link.title.unwrap_or(link.name);
    if link.uri.starts_with("http://") || link.uri.starts_with("https://") {
        let mut source = json!({"type": "url", "url": link.uri});
        if let Some(kind) = link.mime_type {
            source["mimeType"] = kind.into();
        }
        return json!({"type": "document", "source": source, "title": title});
    }
    let about = link.description.map(|about| format!(": {about}")).unwrap_or_default();
    text_block(format!("{title} ({}){about}", link.uri))
}

fn unknown_block() -> Value {
    text_block("[content of an unknown kind]")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::message::{ErrorType, Outcome};

    use super::*;

    fn of(result: Value) -> Outcome {
        convert(serde_json::from_value(result).unwrap()).outcome
    }

    #[test]
    fn a_single_text_is_a_text_and_what_is_structured_wins() {
        let text = json!({"type": "text", "text": "hello"});
        assert_eq!(of(json!({"content": [text]})), Outcome::Ok(json!("hello")));
        assert_eq!(of(json!({"content": [text, text]})), Outcome::Ok(json!([text, text])));
        assert_eq!(of(json!({"content": []})), Outcome::Ok(Value::Null));
        let both = json!({"content": [text], "structuredContent": {"n": 1}});
        assert_eq!(of(both), Outcome::Ok(json!({"n": 1})));
    }

    #[test]
    fn every_kind_of_content_becomes_a_block() {
        let content = json!([
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "resource_link", "uri": "https://a.b/c.pdf", "name": "c",
             "mimeType": "application/pdf"},
            {"type": "resource_link", "uri": "file:///d", "name": "d", "description": "a file"},
        ]);
        let source = |kind: &str| json!({"type": "base64", "mimeType": kind, "data": "aGk="});
        let expected = json!([
            {"type": "image", "source": source("image/png")},
            {"type": "audio", "source": source("audio/wav")},
            {"type": "text", "text": "inside"},
            {"type": "document", "source": source("application/octet-stream"), "title": "file:///b"},
            {"type": "document", "title": "c", "source": {"type": "url",
             "url": "https://a.b/c.pdf", "mimeType": "application/pdf"}},
            {"type": "text", "text": "d (file:///d): a file"},
        ]);
        assert_eq!(of(json!({"content": content})), Outcome::Ok(expected));
    }

    #[test]
    fn an_error_is_its_text() {
        let text = json!([{"type": "text", "text": "no luck"}, {"type": "text", "text": "at all"}]);
        let failed = |text: &str| Outcome::Err(text.to_owned(), ErrorType::ToolError);
        assert_eq!(of(json!({"content": text, "isError": true})), failed("no luck\nat all"));
        assert_eq!(of(json!({"content": [], "isError": true})), failed("the tool failed"));
    }

    #[tokio::test]
    async fn a_whole_number_that_was_rounded_is_an_error_that_names_its_field() {
        let rounded: Value = serde_json::from_str(r#"{"id": 12345678901234567890123}"#).unwrap();
        let text = json!({"type": "text", "text": r#"{"id": 12345678901234567890123}"#});
        let why = "in the tool's result id: must fit into 64 bits";
        let failed = Outcome::Err(why.to_owned(), ErrorType::ToolError);
        let of_both = |value: &Value, content: Value| {
            of(json!({"content": content, "structuredContent": value}))
        };
        assert_eq!(of_both(&rounded, json!([text])), failed);
        assert_eq!(of_both(&rounded, json!([])), failed, "nothing shows that it is approximate");
        let approximate = json!({"id": 1e300});
        let text = json!({"type": "text", "text": "{\"id\": 1e300}"});
        assert_eq!(of_both(&approximate, json!([text])), Outcome::Ok(approximate));
    }

    #[tokio::test]
    async fn a_structured_result_that_breaks_its_own_schema_is_an_error() {
        let promised = Schema::compile(&json!({"properties": {"n": {"type": "number"}}})).unwrap();
        let result = async |n: Value| {
            let result = json!({"content": [], "structuredContent": {"n": n}});
            let result = serde_json::from_value(result).unwrap();
            to_tool_return(result, Some(&promised)).await.outcome
        };
        assert_eq!(result(json!(1)).await, Outcome::Ok(json!({"n": 1})));
        let Outcome::Err(error, ErrorType::ToolError) = result(json!("x")).await else {
            unreachable!()
        };
        assert!(error.contains("n: "), "{error}");
    }
}
