//! Usage, cost and budget of model calls.

use std::ops::AddAssign;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of US dollars, exact to a billionth. Serialized as a number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

const NANOS_PER_DOLLAR: f64 = 1e9;

impl Cost {
    /// An amount in billionths of a dollar.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The amount in billionths of a dollar.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// An amount in dollars, rounded to a billionth; `None` if it is negative or not finite.
    pub fn from_usd(usd: f64) -> Option<Self> {
        // `as` saturates, so an amount that is too large becomes the largest one.
        (usd.is_finite() && usd >= 0.0).then(|| Self((usd * NANOS_PER_DOLLAR).round() as u64))
    }

    /// Whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// What is left of this amount; zero if more was spent.
    pub fn saturating_sub(self, spent: Self) -> Self {
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
        serializer.serialize_f64(self.0 as f64 / NANOS_PER_DOLLAR)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let usd = f64::deserialize(deserializer)?;
        Self::from_usd(usd).ok_or_else(|| D::Error::custom("must be an amount of dollars"))
    }
}

/// Tokens and cost of one or more model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// All input, including what was read from or written into a cache.
    #[serde(default)]
    pub input_tokens: u64,
    /// All output, including thinking.
    #[serde(default)]
    pub output_tokens: u64,
    /// Input that was read from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Input that was written into the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// In US dollars, by the prices in the agent's definition.
    #[serde(default, rename = "cost_usd", skip_serializing_if = "Cost::is_zero")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub cost: Cost,
}

fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

impl Usage {
    /// Input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(more.cache_write_tokens);
        self.cost += more.cost;
    }
}

/// Limits on usage; an absent limit does not apply. A turn that reaches a limit is halted before
/// its next step, with the name of the limit as the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Input and output tokens of one turn, including those of its children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turn_tokens: Option<u64>,
    /// Dollars of one turn, including those of its children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub max_turn_cost: Option<Cost>,
    /// Input and output tokens of the whole conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_conversation_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub max_conversation_cost: Option<Cost>,
}

impl Budget {
    /// Whether there is no limit.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// The name of a limit that is reached.
    pub fn reached_limit(&self, turn: &Usage, conversation: &Usage) -> Option<&'static str> {
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

    /// The budget of a child, given the usage so far. To the child, all of it is one turn.
    pub fn remaining(&self, turn: &Usage, conversation: &Usage) -> Self {
        let tokens =
            |most: Option<u64>, usage: &Usage| most.map(|m| m.saturating_sub(usage.tokens()));
        let cost = |most: Option<Cost>, usage: &Usage| most.map(|m| m.saturating_sub(usage.cost));
        let of_all = tokens(self.max_conversation_tokens, conversation);
        let cost_of_all = cost(self.max_conversation_cost, conversation);
        Self {
            max_turn_tokens: smaller(tokens(self.max_turn_tokens, turn), of_all),
            max_turn_cost: smaller(cost(self.max_turn_cost, turn), cost_of_all),
            max_conversation_tokens: None,
            max_conversation_cost: None,
        }
    }

    /// The tighter one of each pair of limits.
    pub fn tightest(self, other: &Self) -> Self {
        Self {
            max_turn_tokens: smaller(self.max_turn_tokens, other.max_turn_tokens),
            max_turn_cost: smaller(self.max_turn_cost, other.max_turn_cost),
            max_conversation_tokens: smaller(
                self.max_conversation_tokens,
                other.max_conversation_tokens,
            ),
            max_conversation_cost: smaller(self.max_conversation_cost, other.max_conversation_cost),
        }
    }
}

fn smaller<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
