//! The `budget` of a definition.

use abide_conversation::usage::Budget;

use super::field_reader::Fields;
use crate::definition::Definition;
use crate::model::Prices;

/// Reads it; without one, nothing is bounded.
pub(super) fn read(fields: &mut Fields) -> Budget {
    let Some(mut nested) = fields.nested("budget") else { return Budget::default() };
    let tokens = 1..=u32::MAX;
    let budget = Budget {
        max_turn_tokens: nested.number("max_turn_tokens", tokens.clone()).map(u64::from),
        max_turn_cost: nested.cost("max_turn_cost"),
        max_conversation_tokens: nested.number("max_conversation_tokens", tokens).map(u64::from),
        max_conversation_cost: nested.cost("max_conversation_cost"),
    };
    fields.absorb(nested);
    budget
}

/// What is legal and bounds nothing.
pub(super) fn warnings(definition: &Definition) -> Option<String> {
    let Budget { max_turn_cost, max_conversation_cost, .. } = definition.budget;
    let bounds = max_turn_cost.is_some() || max_conversation_cost.is_some();
    let is_free = definition.model.prices == Prices::default();
    (bounds && is_free)
        .then(|| "budget: a cost is bounded, and model.prices are not given".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::usage::{Budget, Cost};
    use serde_json::{Value, json};

    use crate::agent::joined;
    use crate::definition::Definition;
    use crate::tools::Extensions;

    fn budget(budget: Value) -> Result<Budget, String> {
        let model = json!({"provider": "scripted", "script": []});
        let source = json!({"name": "a", "model": model, "budget": budget});
        let parsed = Definition::parse(source, &Extensions::new());
        parsed.map(|parsed| parsed.definition.budget).map_err(|mistakes| joined(&mistakes))
    }

    #[test]
    fn what_is_absent_is_not_bounded() {
        assert_eq!(budget(json!(null)), Ok(Budget::default()));
        let some = budget(json!({"max_turn_tokens": 5_000, "max_conversation_cost": 0.25}));
        let expected = Budget {
            max_turn_tokens: Some(5_000),
            max_conversation_cost: Some(Cost::from_nanos(250_000_000)),
            ..Budget::default()
        };
        assert_eq!(some, Ok(expected));
    }

    #[test]
    fn a_bound_of_costs_without_prices_is_warned_of() {
        let warned = |prices: Value| {
            let model = json!({"provider": "scripted", "script": [], "prices": prices});
            let budget = json!({"max_turn_cost": 1});
            let source = json!({"name": "a", "model": model, "budget": budget});
            !Definition::parse(source, &Extensions::new()).unwrap().warnings.is_empty()
        };
        assert!(warned(json!({})) && !warned(json!({"input": 1})));
    }

    #[test]
    fn a_wrong_bound_is_named() {
        for (field, value) in [
            ("max_turn_tokens", json!(0)),
            ("max_turn_tokens", json!(1_u64 << 40)),
            ("max_turn_tokens", json!("many")),
            ("max_conversation_tokens", json!(1.5)),
            ("max_turn_cost", json!(0)),
            ("max_turn_cost", json!(-1)),
            ("max_conversation_cost", json!("$5")),
            ("max_steps", json!(5)),
        ] {
            let refused = budget(json!({field: value})).unwrap_err();
            assert!(refused.contains(&format!("budget.{field}")), "{field} {value}: {refused}");
        }
    }
}
