//! Events as one line each.

use serde_json::Value;

use super::pieces::on_one_line;

/// What somebody did; `None` if it does not say what.
pub(super) fn user_action(block: &Value) -> Option<String> {
    let (on, by) = (after("on", block, "target"), after("by", block, "actor"));
    let told = || {
        Some(format!("user action: {}{on}{by}{}", field(block, "action")?, more(block, "details")))
    };
    told_as(block, told)
}

/// What happened to an application.
pub(super) fn system_event(block: &Value) -> Option<String> {
    let from = after("from", block, "source");
    let told =
        || Some(format!("system event: {}{from}{}", field(block, "event")?, more(block, "data")));
    told_as(block, told)
}

/// What became of something.
pub(super) fn state_change(block: &Value) -> Option<String> {
    let of = field(block, "field").map(|name| format!(".{name}")).unwrap_or_default();
    let (from, to, by) = (&block["from"], &block["to"], after("by", block, "trigger"));
    let told =
        || Some(format!("state change: {}{of} from {from} to {to}{by}", field(block, "entity")?));
    told_as(block, told)
}

/// The event's own words, else these.
fn told_as(block: &Value, told: impl FnOnce() -> Option<String>) -> Option<String> {
    let own = field(block, "text").map(str::to_owned);
    own.or_else(|| Some(format!("[{}]", told()?))).map(|told| on_one_line(&told))
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
