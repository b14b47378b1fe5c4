//! Money: what model calls cost, and what they may.

use std::ops::AddAssign;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::Usage;

/// An amount of US dollars, exact to a billionth of one. Written as a number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

/// Billionths in a dollar.
const NANOS: f64 = 1e9;

impl Cost {
    /// From billionths of a dollar.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// In billionths of a dollar.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// From dollars, to the nearest billionth; `None` if that is no amount.
    pub fn from_usd(usd: f64) -> Option<Self> {
        // A float beyond the integers becomes the nearest of them.
        (usd.is_finite() && usd >= 0.0).then(|| Self((usd * NANOS).round() as u64))
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// What is left of it; nothing if more was spent.
    pub fn less(self, spent: Self) -> Self {
        Self(self.0.saturating_sub(spent.0))
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Self) {
        self.0 = self.0.saturating_add(more.0);
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / NANOS)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let usd = f64::deserialize(deserializer)?;
        Self::from_usd(usd).ok_or_else(|| D::Error::custom("must be an amount of dollars"))
    }
}

/// What may be spent; what is absent is not bounded. A turn that reaches one of them is halted with
/// its name as the reason, before its next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Input and output tokens of one turn, those of its children included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turn_tokens: Option<u64>,
    /// Dollars of one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub max_turn_cost: Option<Cost>,
    /// The same of the whole conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_conversation_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub max_conversation_cost: Option<Cost>,
}

impl Budget {
    /// Whether nothing is bounded.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// The bound that is reached, by its name.
    pub fn reached(&self, turn: &Usage, conversation: &Usage) -> Option<&'static str> {
        let tokens = |most: Option<u64>, usage: &Usage| most.is_some_and(|m| usage.tokens() >= m);
        let cost = |most: Option<Cost>, usage: &Usage| most.is_some_and(|m| usage.cost >= m);
        [
            ("max_turn_tokens", tokens(self.max_turn_tokens, turn)),
            ("max_turn_cost", cost(self.max_turn_cost, turn)),
            ("max_conversation_tokens", tokens(self.max_conversation_tokens, conversation)),
            ("max_conversation_cost", cost(self.max_conversation_cost, conversation)),
        ]
        .into_iter()
        .find_map(|(name, reached)| reached.then_some(name))
    }

    /// What a child may spend while this much has been: all of it is one turn to the child.
    pub fn left(&self, turn: &Usage, conversation: &Usage) -> Self {
        let tokens =
            |most: Option<u64>, usage: &Usage| most.map(|m| m.saturating_sub(usage.tokens()));
        let cost = |most: Option<Cost>, usage: &Usage| most.map(|m| m.less(usage.cost));
        let of_all = tokens(self.max_conversation_tokens, conversation);
        let cost_of_all = cost(self.max_conversation_cost, conversation);
        Self {
            max_turn_tokens: least(tokens(self.max_turn_tokens, turn), of_all),
            max_turn_cost: least(cost(self.max_turn_cost, turn), cost_of_all),
            max_conversation_tokens: None,
            max_conversation_cost: None,
        }
    }

    /// The tighter of each two bounds.
    pub fn within(self, other: &Self) -> Self {
        Self {
            max_turn_tokens: least(self.max_turn_tokens, other.max_turn_tokens),
            max_turn_cost: least(self.max_turn_cost, other.max_turn_cost),
            max_conversation_tokens: least(
                self.max_conversation_tokens,
                other.max_conversation_tokens,
            ),
            max_conversation_cost: least(self.max_conversation_cost, other.max_conversation_cost),
        }
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
