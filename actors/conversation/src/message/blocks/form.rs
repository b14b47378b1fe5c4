//! The forms that a field of a block may have.

use serde_json::Value;

use super::{BlockError, check_within};

/// A field, by name.
pub(super) struct Field {
    name: &'static str,
    form: Form,
    required: bool,
}

/// What a field holds.
pub(super) enum Form {
    Any,
    Text,
    /// A text that is not empty.
    Name,
    Flag,
    Number,
    Object,
    Texts,
    TextMap,
    Blocks,
    /// `TYPE/SUBTYPE`, of this type or, if it is empty, any.
    MediaType(&'static str),
}

/// A field that its kind requires; `null` is a value only of a field that holds anything.
pub(super) const fn must(name: &'static str, form: Form) -> Field {
    Field { name, form, required: true }
}

/// A field that may be absent, or `null`.
pub(super) const fn may(name: &'static str, form: Form) -> Field {
    Field { name, form, required: false }
}

impl Field {
    pub(super) fn check(&self, block: &Value, deep: usize) -> Result<(), BlockError> {
        let wrong = match (block.get(self.name), self.required) {
            (None, true) => Err(BlockError::here("is missing")),
            (None | Some(Value::Null), false) => Ok(()),
            (Some(value), _) => self.form.check(value, deep),
        };
        wrong.map_err(|wrong| wrong.within(self.name))
    }
}

impl Form {
    fn check(&self, value: &Value, deep: usize) -> Result<(), BlockError> {
        let texts = |values: &[Value]| values.iter().all(Value::is_string);
        let (fits, legal) = match self {
            Form::Any => (true, ""),
            Form::Text => (value.is_string(), "must be a string"),
            Form::Name => {
                let named = value.as_str().is_some_and(|text| !text.is_empty());
                (named, "must be a string that is not empty")
            }
            Form::Flag => (value.is_boolean(), "must be true or false"),
            Form::Number => (value.is_number(), "must be a number"),
            Form::Object => (value.is_object(), "must be an object"),
            Form::Texts => {
                (value.as_array().is_some_and(|list| texts(list)), "must be a list of strings")
            }
            Form::TextMap => {
                let map = value.as_object();
                let fits = map.is_some_and(|map| map.values().all(Value::is_string));
                (fits, "must be an object of strings")
            }
            Form::MediaType(of) => return media_type(value, of),
            Form::Blocks => return blocks(value, deep),
        };
        if fits { Ok(()) } else { Err(BlockError::here(legal)) }
    }
}

/// Whether it is `TYPE/SUBTYPE` of the given type, parameters aside.
pub(super) fn media_type(value: &Value, of: &str) -> Result<(), BlockError> {
    let given = value.as_str().unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default();
    let (kind, subtype) = essence.split_once('/').unwrap_or_default();
    let token = |part: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        (1..=127).contains(&part.len()) && part.chars().all(legal)
    };
    let of_it = of.is_empty() || kind.eq_ignore_ascii_case(of);
    if token(kind) && token(subtype) && given.chars().all(|c| !c.is_control()) && of_it {
        return Ok(());
    }
    let of = if of.is_empty() { "TYPE" } else { of };
    Err(BlockError::here(format!("must be a media type, {of}/SUBTYPE")))
}

fn blocks(value: &Value, deep: usize) -> Result<(), BlockError> {
    let list = value.as_array().ok_or_else(|| BlockError::here("must be a list of blocks"))?;
    let deep =
        deep.checked_sub(1).ok_or_else(|| BlockError::here("stands too deep in other blocks"))?;
    for (place, block) in list.iter().enumerate() {
        check_within(block, deep)
            .map_err(|wrong| BlockError { at: format!("[{place}]{}", wrong.at), ..wrong })?;
    }
    Ok(())
}
