//! The values that sections are made of, each with its bounds.

use std::time::Duration;

use abide_conversation::usage::Cost;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::agent::duration;

/// A text of at most `MAX` bytes.
pub(in crate::agent) struct Text<const MAX: usize>(pub(in crate::agent) String);

impl<'de, const MAX: usize> Deserialize<'de> for Text<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX {
            return Err(D::Error::custom(format_args!("must be at most {MAX} bytes")));
        }
        Ok(Self(text))
    }
}

/// A whole number from `MIN` to `MAX`. `5.0` is accepted: its canonical form is `5`, so both must
/// mean the same.
#[derive(Clone, Copy)]
pub(in crate::agent) struct Whole<const MIN: u32, const MAX: u32>(pub(in crate::agent) u32);

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Value::deserialize(deserializer)?.as_f64();
        let range = f64::from(MIN)..=f64::from(MAX);
        let whole = number.filter(|number| number.fract() == 0.0 && range.contains(number));
        let wrong = || D::Error::custom(format_args!("must be a whole number from {MIN} to {MAX}"));
        whole.map(|number| Self(number as u32)).ok_or_else(wrong)
    }
}

/// A positive amount of dollars.
#[derive(Clone, Copy)]
pub(in crate::agent) struct Dollars(pub(in crate::agent) Cost);

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let amount = Value::deserialize(deserializer)?.as_f64().and_then(Cost::from_usd);
        let wrong = || D::Error::custom("must be an amount of dollars, more than 0");
        amount.filter(|cost| !cost.is_zero()).map(Self).ok_or_else(wrong)
    }
}

/// A positive duration, such as `5m`.
#[derive(Clone, Copy)]
pub(in crate::agent) struct PositiveDuration(pub(in crate::agent) Duration);

impl<'de> Deserialize<'de> for PositiveDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::<64>::deserialize(deserializer)?;
        duration::parse(&text.0).map(Self).map_err(D::Error::custom)
    }
}

/// A duration that may be zero.
#[derive(Clone, Copy)]
pub(in crate::agent) struct NonNegativeDuration(pub(in crate::agent) Duration);

impl<'de> Deserialize<'de> for NonNegativeDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::<64>::deserialize(deserializer)?;
        duration::parse_or_zero(&text.0).map(Self).map_err(D::Error::custom)
    }
}

/// A list of at most `MAX` items, whatever they are.
#[derive(Default)]
pub(in crate::agent) struct Items<const MAX: usize>(pub(in crate::agent) Vec<Value>);

impl<'de, const MAX: usize> Deserialize<'de> for Items<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Array(items) if items.len() <= MAX => Ok(Self(items)),
            Value::Array(_) => Err(D::Error::custom(format_args!("must have at most {MAX} items"))),
            _ => Err(D::Error::custom("must be a list")),
        }
    }
}

/// Tells a key that is null from one that is absent.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}
