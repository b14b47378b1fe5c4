//! The variants of an enum or the fields of a struct, as its `Deserialize` lists them.

use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The variants of an enum or the fields of a struct; empty for other types.
pub(crate) fn serde_names<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    T::deserialize(NameRecorder).err().map_or(&[], |RecordedNames(names)| names)
}

/// The variants of an enum with this tag field.
pub(crate) fn tagged_names<T: for<'de> Deserialize<'de>>(
    tag: &'static str,
) -> &'static [&'static str] {
    // No variant has this name, so that the error lists all.
    let map = [(tag, "\u{0}")].into_iter();
    T::deserialize(MapDeserializer::new(map)).err().map_or(&[], |RecordedNames(names)| names)
}

/// A deserializer without input, which records the names that a type asks for.
struct NameRecorder;

/// The error that carries the recorded names.
#[derive(Debug)]
struct RecordedNames(&'static [&'static str]);

impl<'de> Deserializer<'de> for NameRecorder {
    type Error = RecordedNames;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, RecordedNames> {
        Err(RecordedNames(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, RecordedNames> {
        Err(RecordedNames(fields))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, RecordedNames> {
        Err(RecordedNames(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl de::Error for RecordedNames {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

impl fmt::Display for RecordedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for RecordedNames {}
