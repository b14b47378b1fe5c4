//! The fields of blocks, and the types that they may have.

use serde_json::Value;

use super::{BlockError, check_nested};

/// A field of a block.
pub(super) struct Field {
    name: &'static str,
    field_type: FieldType,
    required: bool,
}

/// The type of a field's value.
pub(super) enum FieldType {
    Any,
    Text,
    /// A string that is not empty.
    Name,
    Flag,
    Number,
    Object,
    Texts,
    TextMap,
    Blocks,
    /// `TYPE/SUBTYPE`, with this type; with any type if it is empty.
    MediaType(&'static str),
}

/// A field that must be present. `null` is a value only for fields of the type `Any`.
pub(super) const fn required(name: &'static str, form: FieldType) -> Field {
    Field { name, field_type: form, required: true }
}

/// A field that may be absent or `null`.
pub(super) const fn optional(name: &'static str, form: FieldType) -> Field {
    Field { name, field_type: form, required: false }
}

impl Field {
    pub(super) fn check(&self, block: &Value, depth_left: usize) -> Result<(), BlockError> {
        let result = match (block.get(self.name), self.required) {
            (None, true) => Err(BlockError::new("is missing")),
            (None | Some(Value::Null), false) => Ok(()),
            (Some(value), _) => self.field_type.check(value, depth_left),
        };
        result.map_err(|wrong| wrong.inside(self.name))
    }
}

impl FieldType {
    fn check(&self, value: &Value, depth_left: usize) -> Result<(), BlockError> {
        let texts = |values: &[Value]| values.iter().all(Value::is_string);
        let (fits, rule) = match self {
            FieldType::Any => (true, ""),
            FieldType::Text => (value.is_string(), "must be a string"),
            FieldType::Name => {
                let fits = value.as_str().is_some_and(|text| !text.is_empty());
                (fits, "must be a string that is not empty")
            }
            FieldType::Flag => (value.is_boolean(), "must be true or false"),
            FieldType::Number => (value.is_number(), "must be a number"),
            FieldType::Object => (value.is_object(), "must be an object"),
            FieldType::Texts => {
                (value.as_array().is_some_and(|list| texts(list)), "must be a list of strings")
            }
            FieldType::TextMap => {
                let map = value.as_object();
                let fits = map.is_some_and(|map| map.values().all(Value::is_string));
                (fits, "must be an object of strings")
            }
            FieldType::MediaType(expected) => return media_type(value, expected),
            FieldType::Blocks => return blocks(value, depth_left),
        };
        if fits { Ok(()) } else { Err(BlockError::new(rule)) }
    }
}

/// Validates `TYPE/SUBTYPE` with the given type; parameters are ignored.
pub(super) fn media_type(value: &Value, expected: &str) -> Result<(), BlockError> {
    let given = value.as_str().unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default();
    let (kind, subtype) = essence.split_once('/').unwrap_or_default();
    let token = |part: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        (1..=127).contains(&part.len()) && part.chars().all(legal)
    };
    let is_expected = expected.is_empty() || kind.eq_ignore_ascii_case(expected);
    if token(kind) && token(subtype) && given.chars().all(|c| !c.is_control()) && is_expected {
        return Ok(());
    }
    let expected = if expected.is_empty() { "TYPE" } else { expected };
    Err(BlockError::new(format!("must be a media type, {expected}/SUBTYPE")))
}

fn blocks(value: &Value, depth_left: usize) -> Result<(), BlockError> {
    let list = value.as_array().ok_or_else(|| BlockError::new("must be a list of blocks"))?;
    let depth_left = depth_left
        .checked_sub(1)
        .ok_or_else(|| BlockError::new("is nested too deep in other blocks"))?;
    for (index, block) in list.iter().enumerate() {
        check_nested(block, depth_left)
            .map_err(|wrong| BlockError { path: format!("[{index}]{}", wrong.path), ..wrong })?;
    }
    Ok(())
}
