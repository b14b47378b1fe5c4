//! Blocks about events, as one line each.

use serde_json::Value;

use super::pieces::on_one_line;

/// What a user did; `None` if the block names no action.
pub(super) fn user_action(block: &Value) -> Option<String> {
    let (on, by) = (after("on", block, "target"), after("by", block, "actor"));
    let default = || {
        Some(format!("user action: {}{on}{by}{}", field(block, "action")?, more(block, "details")))
    };
    one_line_or(block, default)
}

/// What happened in an application; `None` if the block names no event.
pub(super) fn system_event(block: &Value) -> Option<String> {
    let from = after("from", block, "source");
    let default =
        || Some(format!("system event: {}{from}{}", field(block, "event")?, more(block, "data")));
    one_line_or(block, default)
}

/// How an entity changed; `None` if the block names none.
pub(super) fn state_change(block: &Value) -> Option<String> {
    let of = field(block, "field").map(|name| format!(".{name}")).unwrap_or_default();
    let from = &block["from"];
    let to = &block["to"];
    let by = after("by", block, "trigger");
    let default =
        || Some(format!("state change: {}{of} from {from} to {to}{by}", field(block, "entity")?));
    one_line_or(block, default)
}

/// The block's own text if it has one, else the given one, on one line.
fn one_line_or(block: &Value, default: impl FnOnce() -> Option<String>) -> Option<String> {
    let own = field(block, "text").map(str::to_owned);
    own.or_else(|| Some(format!("[{}]", default()?))).map(|text| on_one_line(&text))
}

fn field<'a>(block: &'a Value, name: &str) -> Option<&'a str> {
    block[name].as_str().filter(|text| !text.is_empty())
}

fn after(word: &str, block: &Value, name: &str) -> String {
    field(block, name).map(|text| format!(" {word} {text}")).unwrap_or_default()
}

fn more(block: &Value, name: &str) -> String {
    match &block[name] {
        Value::Null => String::new(),
        value => format!(": {value}"),
    }
}
