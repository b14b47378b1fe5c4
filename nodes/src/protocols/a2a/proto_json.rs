//! The JSON of protocol buffers, as far as requests need it: names in two spellings, null for what is
//! absent, numbers that are texts or have a fraction of zero.

use serde_json::{Map, Number, Value};

/// The largest whole number up to which a double has every whole number.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A field that is wrong, with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// The error in words.
    pub fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// An object of a request, and its path.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The fields of a value at this path, which is empty for the outermost.
    pub fn of(value: &'a Value, path: impl Into<String>) -> Result<Self, FieldError> {
        let path = path.into();
        match value {
            Value::Object(object) => Ok(Self { object, path }),
            _ if path.is_empty() => Err(FieldError::new("params", "must be an object")),
            _ => Err(FieldError::new(path, "must be an object")),
        }
    }

    /// The path of a field.
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// An error about a field.
    pub fn error(&self, name: &str, message: impl Into<String>) -> FieldError {
        FieldError::new(self.path_of(name), message)
    }

    /// The value of a field with this name in lowerCamelCase, also if the request has null.
    pub fn present(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).or_else(|| self.object.get(&snake(name)))
    }

    /// The value of a field, unless it is absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.present(name).filter(|value| !value.is_null())
    }

    /// A text; one that is empty counts as absent.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, FieldError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.error(name, "must be text")),
        }
    }

    /// A text that must be given.
    pub fn required_text(&self, name: &str) -> Result<&'a str, FieldError> {
        self.text(name)?.ok_or_else(|| self.error(name, "is missing"))
    }

    /// A truth value; one that is absent is false.
    pub fn is_true(&self, name: &str) -> Result<bool, FieldError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.error(name, "must be true or false")),
        }
    }

    /// A number of things.
    pub fn count(&self, name: &str) -> Result<Option<u32>, FieldError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let count = match value {
            Value::String(text) => text.parse().ok(),
            value => whole(value).as_u64().and_then(|count| u32::try_from(count).ok()),
        };
        let wrong = || self.error(name, "must be a whole number from 0");
        count.map(Some).ok_or_else(wrong)
    }

    /// An object in a field; `None` if it is absent.
    pub fn object(&self, name: &str) -> Result<Option<Fields<'a>>, FieldError> {
        self.get(name).map(|value| Fields::of(value, self.path_of(name))).transpose()
    }
}

/// A name in lowerCamelCase as a .proto file spells it.
fn snake(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            spelled.push('_');
        }
        spelled.push(letter.to_ascii_lowercase());
    }
    spelled
}

/// The value with whole numbers in it as such: a protocol buffer has only doubles, and some clients write
/// 1 as 1.0.
pub fn whole(value: &Value) -> Value {
    match value {
        Value::Number(number) => whole_number(number).map_or_else(|| value.clone(), Value::Number),
        Value::Array(items) => items.iter().map(whole).collect(),
        Value::Object(object) => {
            object.iter().map(|(name, value)| (name.clone(), whole(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn whole_number(number: &Number) -> Option<Number> {
    let double = number.as_f64().filter(|_| number.is_f64())?;
    let is_whole = double.fract() == 0.0 && double.abs() <= MAX_EXACT;
    // The text of such a double is the text of a whole number.
    is_whole.then(|| format!("{double:.0}").parse::<i64>().ok().map(Number::from)).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_has_two_spellings_and_null_is_absent() {
        let request = json!({"message_id": "m", "contextId": null, "taskId": ""});
        let fields = Fields::of(&request, "message").unwrap();
        assert_eq!(fields.required_text("messageId").unwrap(), "m");
        assert_eq!(fields.text("contextId").unwrap(), None);
        let missing = fields.required_text("taskId").unwrap_err();
        assert_eq!(
            (missing.field.as_str(), missing.message.as_str()),
            ("message.taskId", "is missing")
        );
    }

    #[test]
    fn a_count_may_be_text_or_have_a_fraction_of_zero() {
        for (value, count) in [
            (json!(3), Some(3)),
            (json!("3"), Some(3)),
            (json!(3.0), Some(3)),
            (json!(0), Some(0)),
            (json!(-1), None),
            (json!(1.5), None),
            (json!("x"), None),
            (json!([]), None),
        ] {
            let request = json!({"historyLength": value});
            let fields = Fields::of(&request, "").unwrap();
            assert_eq!(fields.count("historyLength").ok().flatten(), count, "{value}");
        }
    }

    #[test]
    fn whole_numbers_lose_their_fraction_and_others_keep_theirs() {
        let value = json!({"a": [1.0, 1.5, 2], "b": {"c": -3.0}, "d": 1e300});
        assert_eq!(whole(&value), json!({"a": [1, 1.5, 2], "b": {"c": -3}, "d": 1e300}));
        assert!(whole(&json!(1.0)).is_i64());
    }
}
