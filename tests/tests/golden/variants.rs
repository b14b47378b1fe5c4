//! The variants of an enum, or the fields of a struct, as its own way of being read lists them.

use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The variants of an enum or the fields of a struct; nothing of what is no such thing.
pub(crate) fn listed<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    T::deserialize(Asking).err().map_or(&[], |Listing(names)| names)
}

/// The variants of an enum that names them in a field of this name.
pub(crate) fn tagged<T: for<'de> Deserialize<'de>>(tag: &'static str) -> &'static [&'static str] {
    // Nothing is called that.
    let map = [(tag, "\u{0}")].into_iter();
    T::deserialize(MapDeserializer::new(map)).err().map_or(&[], |Listing(names)| names)
}

/// Learns what a type wants to be read from, and has nothing to read.
struct Asking;

/// The error that carries what was learnt.
#[derive(Debug)]
struct Listing(&'static [&'static str]);

impl<'de> Deserializer<'de> for Asking {
    type Error = Listing;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Listing> {
        Err(Listing(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Listing> {
        Err(Listing(fields))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Listing> {
        Err(Listing(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl de::Error for Listing {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Listing {}
