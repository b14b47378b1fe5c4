//! JSON as the evaluating library sees it: `serde_json` values, of which every read is charged.

use std::borrow::Cow;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object};
use serde_json::map::Iter;
use serde_json::{Map, Number, Value};

use super::equality::{are_unique, is_equal};
use super::meter::{charge, charge_error, charge_match, charge_name};

/// The bytes of a string whose characters are counted in one step.
const COUNTED_BYTES_PER_STEP: usize = 256;

/// The representation of metered values.
pub(super) struct MeteredJson;

/// A value of which every read is charged to the meter of its thread.
#[derive(Clone, Copy)]
pub(super) struct Metered<'a>(pub(super) &'a Value);

impl Json for MeteredJson {
    type Node<'a> = Metered<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        read: impl FnOnce(Metered<'_>) -> T,
    ) -> T {
        charge(steps_to_count(string));
        *buffer = Value::String(string.to_owned());
        read(Metered(buffer))
    }
}

impl<'a> Node<'a, MeteredJson> for Metered<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        charge(1);
        self.0.as_object().map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        charge(1);
        self.0.as_array().map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        charge(1);
        let text = self.0.as_str()?;
        charge_match(text);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        charge(1);
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        charge(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        charge(1);
        self.0.is_null()
    }

    fn is_number(&self) -> bool {
        charge(1);
        self.0.is_number()
    }

    fn is_string(&self) -> bool {
        charge(1);
        self.0.is_string()
    }

    fn json_type(&self) -> JsonType {
        charge(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str()?;
        charge(steps_to_count(text));
        u64::try_from(text.chars().count()).ok()
    }

    fn equals_value(&self, expected: &Value) -> bool {
        is_equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        charge_error();
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

/// An object of which every read is charged.
pub(super) struct MeteredObject<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, MeteredJson> for MeteredObject<'a> {
    type Node = Metered<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredMembers<'a>;

    fn len(&self) -> usize {
        charge(1);
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Metered<'a>> {
        charge(1);
        self.0.get(key).map(Metered)
    }

    fn members(&self) -> MeteredMembers<'a> {
        charge(1);
        MeteredMembers(self.0.iter())
    }
}

/// The members of an object, of which every name is charged as if it were matched.
pub(super) struct MeteredMembers<'a>(Iter<'a>);

impl<'a> Iterator for MeteredMembers<'a> {
    type Item = (&'a str, Metered<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        charge(steps_to_count(name));
        charge_name(name);
        Some((name, Metered(value)))
    }
}

/// An array of which every read is charged.
pub(super) struct MeteredArray<'a>(&'a [Value]);

impl<'a> Array<'a, MeteredJson> for MeteredArray<'a> {
    type Node = Metered<'a>;
    type ElementsIter = MeteredElements<'a>;

    fn len(&self) -> usize {
        charge(1);
        self.0.len()
    }

    fn elements(&self) -> MeteredElements<'a> {
        charge(1);
        MeteredElements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        are_unique(self.0)
    }
}

/// The elements of an array, of which each is charged.
pub(super) struct MeteredElements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for MeteredElements<'a> {
    type Item = Metered<'a>;

    fn next(&mut self) -> Option<Metered<'a>> {
        charge(1);
        self.0.next().map(Metered)
    }
}

fn steps_to_count(text: &str) -> u64 {
    u64::try_from(1 + text.len() / COUNTED_BYTES_PER_STEP).unwrap_or(u64::MAX)
}
