//! Reads an object field by field and remembers every mistake on the way.

use std::ops::RangeInclusive;
use std::time::Duration;

use abide_conversation::usage::Cost;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::duration;
use super::error::DefinitionError;
use crate::limits::cut;

/// The longest piece of a document that a mistake quotes.
const QUOTED: usize = 64;

/// The fields of an object that are not yet read. Null is the same as absent.
pub(super) struct Fields {
    tool: Option<String>,
    path: String,
    object: Map<String, Value>,
    mistakes: Vec<DefinitionError>,
}

impl Fields {
    /// The fields at `path`, which ends with a dot unless it is empty.
    pub(super) fn new(tool: Option<&str>, path: &str, object: Map<String, Value>) -> Self {
        Self { tool: tool.map(str::to_owned), path: path.to_owned(), object, mistakes: Vec::new() }
    }

    /// Remembers a mistake.
    pub(super) fn wrong(&mut self, field: &str, message: impl Into<String>) {
        let field = format!("{}{}", self.path, cut(field, QUOTED));
        self.mistakes.push(DefinitionError {
            tool: self.tool.clone(),
            field,
            message: message.into(),
        });
    }

    /// Whether the field is there, null included.
    pub(super) fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// Whether the field is there and not null.
    pub(super) fn says(&self, field: &str) -> bool {
        self.object.get(field).is_some_and(|value| !value.is_null())
    }

    /// The value, left where it is.
    pub(super) fn peek(&self, field: &str) -> Option<&Value> {
        self.object.get(field)
    }

    /// Any value.
    pub(super) fn any(&mut self, field: &str) -> Option<Value> {
        self.object.remove(field).filter(|value| !value.is_null())
    }

    /// A text of at most so many bytes.
    pub(super) fn text(&mut self, field: &str, longest: usize) -> Option<String> {
        match self.any(field)? {
            Value::String(text) if text.len() <= longest => return Some(text),
            Value::String(_) => self.wrong(field, format!("must be at most {longest} bytes")),
            _ => self.wrong(field, "must be a text"),
        }
        None
    }

    /// True or false.
    pub(super) fn flag(&mut self, field: &str, default: bool) -> bool {
        match self.any(field) {
            None => default,
            Some(Value::Bool(flag)) => flag,
            Some(_) => {
                self.wrong(field, "must be true or false");
                default
            }
        }
    }

    /// A whole number.
    pub(super) fn number(&mut self, field: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.any(field)?;
        // `5.0` has the canonical form of `5`, so the two must mean the same.
        let number = value.as_f64().filter(|number| number.fract() == 0.0);
        let fits =
            |number: &f64| (f64::from(*range.start())..=f64::from(*range.end())).contains(number);
        let number = number.filter(fits).map(|number| number as u32);
        if number.is_none() {
            let (least, most) = range.into_inner();
            self.wrong(field, format!("must be a whole number from {least} to {most}"));
        }
        number
    }

    /// An amount of dollars, more than nothing.
    pub(super) fn cost(&mut self, field: &str) -> Option<Cost> {
        let value = self.any(field)?;
        let cost = value.as_f64().and_then(Cost::from_usd).filter(|cost| !cost.is_zero());
        if cost.is_none() {
            self.wrong(field, "must be an amount of dollars, more than 0");
        }
        cost
    }

    /// A duration, as `read` reads it.
    fn span(
        &mut self,
        field: &str,
        read: fn(&str) -> Result<Duration, String>,
    ) -> Option<Duration> {
        let text = self.text(field, QUOTED)?;
        read(&text).map_err(|message| self.wrong(field, message)).ok()
    }

    /// A duration of more than nothing.
    pub(super) fn duration(&mut self, field: &str) -> Option<Duration> {
        self.span(field, duration::parse)
    }

    /// A duration that may be nothing.
    pub(super) fn grace(&mut self, field: &str) -> Option<Duration> {
        self.span(field, duration::parse_or_zero)
    }

    /// One word of a few.
    pub(super) fn word<T: DeserializeOwned>(&mut self, field: &str, words: &str) -> Option<T> {
        let value = self.any(field)?;
        let word = serde_json::from_value(value);
        word.map_err(|_| self.wrong(field, format!("must be one of {words}"))).ok()
    }

    /// A map; empty if absent.
    pub(super) fn map(&mut self, field: &str) -> Map<String, Value> {
        match self.any(field) {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(_) => {
                self.wrong(field, "must be an object");
                Map::new()
            }
        }
    }

    /// A list of at most so many items; empty if absent.
    pub(super) fn list(&mut self, field: &str, most: usize) -> Vec<Value> {
        match self.any(field) {
            None => return Vec::new(),
            Some(Value::Array(list)) if list.len() <= most => return list,
            Some(Value::Array(_)) => self.wrong(field, format!("must have at most {most} items")),
            Some(_) => self.wrong(field, "must be a list"),
        }
        Vec::new()
    }

    /// The fields of an object within this one; give it back to `absorb`.
    pub(super) fn nested(&mut self, field: &str) -> Option<Fields> {
        match self.any(field)? {
            Value::Object(object) => {
                Some(Self::new(self.tool.as_deref(), &format!("{}{field}.", self.path), object))
            }
            _ => {
                self.wrong(field, "must be an object");
                None
            }
        }
    }

    /// Takes over the mistakes of an object within this one, which is now read.
    pub(super) fn absorb(&mut self, nested: Fields) {
        self.mistakes.extend(nested.finish());
    }

    /// All mistakes; whatever was not read is one too.
    pub(super) fn finish(mut self) -> Vec<DefinitionError> {
        let unknown: Vec<String> = self.object.keys().cloned().collect();
        for field in unknown {
            self.wrong(&field, "is not a known key");
        }
        self.mistakes
    }
}
