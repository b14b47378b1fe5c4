//! Tests of the validation of a definition's `model`.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_conversation::message::StopReason;
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::ProviderSet;
use crate::model::http::{HttpModel, HttpTimeouts};
use crate::model::test_server::{
    FixedClock, TestResponse, TestServer, all_ok, collect_reply, finish, request,
};
use crate::model::{ModelSettings, Prices, ReplyChunk, ReplyEnd};

fn check(settings: Value) -> Result<(), String> {
    let settings: ModelSettings = serde_json::from_value(settings).unwrap();
    let checked = settings.check().and_then(|()| settings.check_fallbacks());
    checked.map_err(|mistake| mistake.to_string())
}

fn models() -> ProviderSet {
    ProviderSet::new(HttpModel::new(Arc::new(FixedClock), HttpTimeouts::default(), |_| None))
}

#[test]
fn legal_settings_are_accepted() {
    for settings in [
        json!({"provider": "scripted", "script": []}),
        json!({"provider": "scripted", "name": "demo", "script": [{"text": "Hi"}]}),
        json!({"provider": "openai", "name": "gpt-5"}),
        json!({"provider": "anthropic", "name": "claude", "temperature": 1.0}),
        json!({"provider": "openai", "name": "m", "base_url": "http://127.0.0.1:9000/v1",
               "api_key_env": "_KEY_2", "temperature": 2.0, "max_tokens": 1}),
        json!({"provider": "openai_responses", "name": "m", "options": {"include": []}}),
        json!({"provider": "openai", "name": "m", "fallback": [
            {"provider": "anthropic", "name": "claude"}, {"provider": "scripted", "script": []}]}),
        json!({"provider": "ollama", "name": "m", "options": {"options": {"num_ctx": 8192}}}),
    ] {
        assert_eq!(check(settings.clone()), Ok(()), "{settings}");
    }
}

#[test]
fn every_mistake_names_its_field() {
    let openai = |field: &str, value: Value| {
        let mut settings = json!({"provider": "openai", "name": "m"});
        settings[field] = value;
        settings
    };
    for (settings, field) in [
        (json!({"provider": "scripted"}), "model.script: "),
        (json!({"provider": "scripted", "script": [{"a": 1}]}), "model.script[0].a: "),
        (json!({"provider": "scripted", "script": [], "temperature": 1.0}), "model.temperature: "),
        (json!({"provider": "scripted", "script": [], "base_url": "x"}), "model.base_url: "),
        (openai("name", json!(" ")), "model.name: "),
        (openai("fallback", json!([{"provider": "openai"}])), "model.fallback[0].name: "),
        (
            openai(
                "fallback",
                json!([{"provider": "scripted", "script": [], "fallback": [
            {"provider": "scripted", "script": []}]}]),
            ),
            "model.fallback[0].fallback: ",
        ),
        (
            openai("fallback", json!(vec![json!({"provider": "scripted", "script": []}); 5])),
            "model.fallback: ",
        ),
        (openai("script", json!([])), "model.script: "),
        (openai("base_url", json!("nowhere")), "model.base_url: "),
        (openai("base_url", json!("ftp://127.0.0.1/")), "model.base_url: "),
        (openai("base_url", json!("http://me:pw@127.0.0.1/")), "model.base_url: "),
        (openai("base_url", json!("http://me@127.0.0.1/")), "model.base_url: "),
        (openai("api_key_env", json!("sk-proj-abc")), "model.api_key_env: "),
        (openai("api_key_env", json!("")), "model.api_key_env: "),
        (openai("temperature", json!(2.1)), "model.temperature: "),
        (openai("temperature", json!(-0.1)), "model.temperature: "),
        (openai("max_tokens", json!(0)), "model.max_tokens: "),
        (openai("window", json!(0)), "model.window: "),
        (openai("api_key_env", json!("ABIDE_CLUSTER_SECRET")), "model.api_key_env: "),
        (openai("options", json!({"messages": []})), "model.options.messages: "),
        (openai("prices", json!({"input": -1.0})), "model.prices.input: "),
        (openai("prices", json!({"cached_input": 1e7})), "model.prices.cached_input: "),
        (openai("options", json!({"conversation": "c"})), "model.options.conversation: "),
        (json!({"provider": "openai_responses"}), "model.name: "),
        (json!({"provider": "ollama", "name": "m", "temperature": 3.0}), "model.temperature: "),
        (
            json!({"provider": "anthropic", "name": "m", "temperature": 1.1}),
            "model.temperature: must be between 0 and 1",
        ),
    ] {
        let mistake = check(settings.clone()).unwrap_err();
        assert!(mistake.starts_with(field), "{settings}: {mistake}");
        assert!(!mistake.contains("pw@") && !mistake.contains("sk-proj"), "{mistake}");
    }
}

#[tokio::test]
async fn the_settings_choose_the_provider() {
    let script = json!({"provider": "scripted", "script": [{"text": "Hi"}]});
    let chunks =
        all_ok(collect_reply(&models(), request(serde_json::from_value(script).unwrap())).await);
    assert_eq!(chunks[0], ReplyChunk::Text("Hi".into()));
    let server = TestServer::start([TestResponse::stream([finish("stop")])]).await;
    let openai = json!({"provider": "openai", "name": "m", "base_url": server.url});
    let chunks =
        all_ok(collect_reply(&models(), request(serde_json::from_value(openai).unwrap())).await);
    assert_eq!(
        chunks,
        [ReplyChunk::Done(ReplyEnd { stop: Some(StopReason::End), ..ReplyEnd::default() })]
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_call_costs_by_the_prices_of_its_tokens() {
    let prices = |prices: Value| serde_json::from_value::<Prices>(prices).unwrap();
    let usage = Usage {
        input_tokens: 1_000_000,
        output_tokens: 100_000,
        cached_tokens: 600_000,
        cache_write_tokens: 200_000,
        ..Usage::default()
    };
    let cost = |fields: Value| prices(fields).cost(&usage).nanos();
    assert_eq!(cost(json!({})), 0);
    assert_eq!(cost(json!({"input": 2.0, "output": 10.0})), 3_000_000_000);
    let all = json!({"input": 2.0, "output": 10.0, "cached_input": 0.2, "cache_write": 2.5});
    assert_eq!(cost(all), 400_000_000 + 120_000_000 + 500_000_000 + 1_000_000_000);
    let nonsense = Usage { cached_tokens: u64::MAX, cache_write_tokens: u64::MAX, ..usage };
    assert_eq!(prices(json!({"input": 1.0})).cost(&nonsense).nanos(), 1_000_000_000);
}
