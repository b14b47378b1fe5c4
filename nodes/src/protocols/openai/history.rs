//! The history that a client sends along: what of it is new, and what is background for the turn.

use serde_json::{Value, json};

/// The types of items that only a response makes.
const OUTPUT_TYPES: [&str; 6] = [
    "function_call",
    "mcp_approval_request",
    "mcp_call",
    "mcp_list_tools",
    "reasoning",
    "item_reference",
];

/// Whether an item, or a message of Chat Completions, was written by a model.
fn is_from_model(item: &Value) -> bool {
    let kind = item["type"].as_str().unwrap_or_default();
    item["role"] == "assistant" || OUTPUT_TYPES.contains(&kind)
}

/// The index of the first item that is new: what a model wrote, and all before it, is history.
pub fn first_new(items: &[Value]) -> usize {
    items.iter().rposition(is_from_model).map_or(0, |index| index + 1)
}

/// A history, as one block of context. It is what the client says, not what a journal has. `None` if it
/// has no text.
pub fn background(items: &[Value]) -> Option<Value> {
    let lines: Vec<String> = items.iter().filter_map(line).collect();
    let text = format!("Earlier messages, as the client has them:\n\n{}", lines.join("\n\n"));
    (!lines.is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn line(item: &Value) -> Option<String> {
    let role = item["role"].as_str().or_else(|| item["type"].as_str())?;
    let text = text(&item["content"])?;
    Some(format!("{role}: {text}"))
}

/// The text of a content, which is text itself or a list of parts.
pub fn text(content: &Value) -> Option<String> {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}

/// The result that a client gives a call, as text or in parts that are text. Text that is a JSON object
/// or list is that, and other JSON is data as it is.
pub fn result(output: &Value) -> Value {
    let text = match output {
        Value::String(text) => text.clone(),
        Value::Array(_) => match text(output) {
            Some(text) => text,
            None => return output.clone(),
        },
        other => return other.clone(),
    };
    let is_json = text.trim_start().starts_with(['{', '[']);
    let value = if is_json { serde_json::from_str(&text).ok() } else { None };
    value.unwrap_or(Value::String(text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_last_word_of_a_model_is_new() {
        let user = || json!({"role": "user", "content": "hi"});
        let model = || json!({"role": "assistant", "content": "hello"});
        for (items, first) in [
            (vec![], 0),
            (vec![user()], 0),
            (vec![user(), model()], 2),
            (vec![user(), model(), user(), user()], 2),
            (
                vec![
                    user(),
                    json!({"type": "function_call"}),
                    json!({"type": "function_call_output"}),
                ],
                2,
            ),
        ] {
            assert_eq!(first_new(&items), first, "{items:?}");
        }
    }

    #[test]
    fn a_history_is_one_block_of_what_each_said() {
        let items = [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}),
            json!({"role": "assistant", "content": null, "tool_calls": []}),
        ];
        let block = background(&items).unwrap();
        let text = block["text"].as_str().unwrap();
        assert!(text.ends_with("system: Be brief.\n\nuser: hi"), "{text}");
        assert_eq!(background(&items[2..]), None);
    }

    #[test]
    fn text_that_is_an_object_or_a_list_is_that() {
        for (output, result_of_it) in [
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!("[1]"), json!([1])),
            (json!("17"), json!("17")),
            (json!("{not JSON"), json!("{not JSON")),
            (json!([{"type": "input_text", "text": "x"}]), json!("x")),
            (json!({"a": 1}), json!({"a": 1})),
        ] {
            assert_eq!(result(&output), result_of_it);
        }
    }
}
