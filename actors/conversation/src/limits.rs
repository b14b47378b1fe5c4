//! The limits of what is written about a conversation: those of requests, and of journals that are
//! imported.

mod journal;

use serde_json::{Map, Value};

pub use journal::check_event;

/// The longest name of a subject.
pub const MAX_SUBJECT_CHARS: usize = 255;
/// The subjects who may take part. Each is stored with the conversation and with every open suspension.
pub const MAX_MEMBERS: usize = 100;
/// The longest title.
pub const MAX_TITLE_CHARS: usize = 200;
/// The largest `assigns`, `metadata` or `schema`: they are journalled and handed to every call.
pub const MAX_MAP_BYTES: usize = 64 << 10;
/// The most model calls that a definition may allow one turn.
pub const MAX_STEPS: u32 = 1_000;
/// The rule for a subject.
pub const SUBJECT_RULE: &str =
    "must be 1 to 255 characters without control characters, and not \"system\"";

/// A value that no request may give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct LimitError {
    /// Where the value stands.
    pub field: String,
    /// What it must be.
    pub rule: String,
}

impl LimitError {
    fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }

    /// The error with its field as a part of this member.
    fn within(self, member: &str) -> Self {
        Self { field: format!("{member}.{}", self.field), ..self }
    }
}

/// Whether it can be a subject: `system` is the program itself.
pub fn is_subject(subject: &str) -> bool {
    is_name(subject) && subject != "system"
}

/// Whether it can be the name of somebody or something that others vouch for.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_SUBJECT_CHARS).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

/// Refuses what cannot be the owner of a conversation.
pub fn check_owner(owner: &str) -> Result<(), LimitError> {
    if is_subject(owner) { Ok(()) } else { Err(LimitError::new("owner", SUBJECT_RULE)) }
}

/// Refuses members that are too many, or cannot be subjects.
pub fn check_members(members: &[String]) -> Result<(), LimitError> {
    if members.len() > MAX_MEMBERS {
        return Err(LimitError::new("members", format!("must be at most {MAX_MEMBERS}")));
    }
    match members.iter().position(|member| !is_subject(member)) {
        Some(index) => Err(LimitError::new(format!("members[{index}]"), SUBJECT_RULE)),
        None => Ok(()),
    }
}

/// Refuses what cannot be a title.
pub fn check_title(title: Option<&str>) -> Result<(), LimitError> {
    let is_title = |title: &str| {
        (1..=MAX_TITLE_CHARS).contains(&title.chars().count())
            && !title.chars().any(char::is_control)
    };
    if title.is_none_or(is_title) {
        return Ok(());
    }
    Err(LimitError::new("title", "must be 1 to 200 characters without control characters"))
}

/// Refuses `assigns` or `metadata` that are too large.
pub fn check_map(field: &str, map: &Map<String, Value>) -> Result<(), LimitError> {
    if serde_json::to_string(map).is_ok_and(|text| text.len() <= MAX_MAP_BYTES) {
        return Ok(());
    }
    Err(LimitError::new(field, format!("is larger than {MAX_MAP_BYTES} bytes")))
}
