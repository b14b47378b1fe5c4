//! Definitions that say how much their model reads.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use crate::definition::SummaryPolicy;
use crate::tools::fixtures::{parse, source};

fn with(keys: Value) -> Value {
    let mut source = source(json!([]));
    source.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    source
}

fn on_the_wire(keys: Value) -> Value {
    let mut source = with(json!({"model": {"provider": "openai", "name": "gpt-4o"}}));
    source.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    source
}

fn parsed(source: Value) -> crate::definition::Definition {
    parse(source).unwrap().definition
}

#[test]
fn a_context_is_bounded_by_its_budget_and_by_the_models_window() {
    assert_eq!(parsed(with(json!({}))).context_budget(), 26_000);
    let budget = json!({"working_budget": 200_000, "injection_reserve": 1_000});
    assert_eq!(parsed(on_the_wire(budget)).context_budget(), 96_000);
    let small = json!({"model": {"provider": "openai", "name": "m", "window": 8_000}});
    assert_eq!(parsed(on_the_wire(small)).context_budget(), 6_000);
}

#[test]
fn a_scripted_agent_is_summarized_only_if_it_says_so() {
    let over = |source| parsed(source).basis().summarize_over;
    assert_eq!(over(with(json!({}))), None);
    assert_eq!(over(with(json!({"summary": {}}))), Some(15_600));
    assert_eq!(over(with(json!({"summary": {"over": 7}}))), Some(7));
    assert_eq!(over(on_the_wire(json!({}))), Some(15_600));
    assert_eq!(over(on_the_wire(json!({"summary": false}))), None);
}

#[test]
fn a_summary_has_a_model_and_a_prompt_of_its_own() {
    let model = json!({"provider": "openai", "name": "gpt-4o-mini"});
    let summary = json!({"summary": {"model": model, "prompt": "In short."}});
    let summary = parsed(with(summary)).summary.unwrap();
    assert_eq!((summary.prompt.as_str(), summary.threshold_tokens), ("In short.", 15_600));
    assert_eq!(summary.model.unwrap().name, "gpt-4o-mini");
    let plain = parsed(on_the_wire(json!({}))).summary.unwrap();
    assert_eq!((plain.model, plain.prompt.as_str()), (None, SummaryPolicy::DEFAULT_PROMPT));
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    let model = |window: u64| {
        json!({"system_prompt": "word ".repeat(1_000),
            "model": {"provider": "openai", "name": "m", "window": window}})
    };
    for (keys, field) in [
        (json!({"working_budget": 4_000}), "working_budget"),
        (json!({"injection_reserve": 30_000}), "working_budget"),
        (json!({"working_budget": 0}), "working_budget"),
        (json!({"summary": true}), "summary"),
        (json!({"summary": "short"}), "summary"),
        (json!({"summary": {"over": 0}}), "summary.over"),
        (json!({"summary": {"prompt": 1}}), "summary.prompt"),
        (json!({"summary": {"colour": 1}}), "summary.colour"),
        (json!({"summary": {"model": {"provider": "openai"}}}), "summary.model.name"),
        (model(1_000), "model.window"),
    ] {
        let refused = parse(on_the_wire(keys)).unwrap_err();
        assert_eq!(refused[0].field, field, "{refused:?}");
        assert!(refused.iter().all(|it| it.tool.is_none()), "{refused:?}");
    }
    assert!(parse(on_the_wire(model(2_000))).is_ok());
}
