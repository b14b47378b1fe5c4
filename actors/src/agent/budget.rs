//! The `budget` of a definition.

use abide_conversation::usage::Budget;

use super::document::BudgetDocument;
use crate::definition::Definition;
use crate::model::Prices;

/// What a turn and a conversation may spend; what is absent is not bounded.
pub(super) fn budget(document: BudgetDocument) -> Budget {
    Budget {
        max_turn_tokens: document.max_turn_tokens.map(|tokens| tokens.0.into()),
        max_turn_cost: document.max_turn_cost.map(|cost| cost.0),
        max_conversation_tokens: document.max_conversation_tokens.map(|tokens| tokens.0.into()),
        max_conversation_cost: document.max_conversation_cost.map(|cost| cost.0),
    }
}

/// Warns of a budget that bounds nothing.
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

    use crate::agent::join_errors;
    use crate::definition::Definition;
    use crate::tools::Extensions;

    fn budget(budget: Value) -> Result<Budget, String> {
        let model = json!({"provider": "scripted", "script": []});
        let source = json!({"name": "a", "model": model, "budget": budget});
        let parsed = Definition::parse(source, &Extensions::new());
        parsed.map(|parsed| parsed.definition.budget).map_err(|mistakes| join_errors(&mistakes))
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
