//! Hooks in definitions: what is legal, and what is refused by its place.

#![allow(clippy::unwrap_used)]

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use crate::agent::{DefinitionError, Parsed};
use crate::hooks::{Hook, HookEvent, HookReply, Hooks};
use crate::tools::fixtures::{extensions, source};

struct Guard;

#[async_trait]
impl Hook for Guard {
    async fn call(&self, _event: &HookEvent) -> HookReply {
        HookReply::GoOn
    }
}

fn parse(hooks: Value) -> Result<Parsed, Vec<DefinitionError>> {
    let mut source = source(json!([{"builtin": ["read", "write"]}]));
    source["hooks"] = hooks;
    let natives = extensions().with_hooks(Hooks::new().with("guard", Guard));
    Definition::parse(source, &natives)
}

fn parsed(hook: Value) -> HookSpec {
    parse(json!([hook])).unwrap().definition.hooks.remove(0)
}

#[test]
fn a_hook_is_read_as_it_is_written() {
    let hook = parsed(json!({"on": "PreToolUse", "native": "guard"}));
    assert_eq!((hook.name.as_str(), hook.timeout), ("PreToolUse_0", Duration::from_secs(5)));
    assert!(matches!(&hook.target, HookTarget::Native(name) if name == "guard"));
    let hook = parsed(json!({"name": "docs", "on": "pre", "timeout": "60s", "parallel": "g",
        "durable": true, "fail_closed": true,
        "http": {"url": "http://127.0.0.1:9/", "headers": {"x-team": "a"},
                 "signing_secret_env": "SECRET"}}));
    assert!(matches!(&hook.target, HookTarget::Http(to) if to.signing_secret_env.is_some()));
    assert_eq!((hook.parallel.as_deref(), hook.durable), (Some("g"), true));
    for on in HookPoint::WORDS.split(", ") {
        assert_eq!(parsed(json!({"on": on, "native": "guard"})).on.to_string(), on);
    }
}

#[test]
fn what_is_wrong_with_a_hook_is_named_by_its_place() {
    let good = || json!({"on": "PreToolUse", "native": "guard"});
    let with = |key: &str, value: Value| {
        let mut hook = good();
        hook[key] = value;
        hook
    };
    let on = |on: &str, key: &str, value: Value| {
        let mut hook = with(key, value);
        hook["on"] = json!(on);
        hook
    };
    let url = json!({"url": "http://127.0.0.1:9/"});
    for (hook, field) in [
        (json!("guard"), "hooks[1]: must be an object"),
        (json!({"native": "guard"}), "hooks[1].on: is missing"),
        (with("on", json!("PreTool")), "hooks[1].on: must be one of"),
        (json!({"on": "pre"}), "hooks[1].http: "),
        (with("http", url), "hooks[1].http: "),
        (with("native", json!("nobody")), "hooks[1].native: names no hook"),
        (json!({"on": "pre", "http": {"url": "ftp://x"}}), "hooks[1].http.url: "),
        (json!({"on": "pre", "http": {}}), "hooks[1].http.url: is missing"),
        (with("name", json!("a b")), "hooks[1].name: must be"),
        (with("name", json!("PreToolUse_0")), "hooks[1].name: PreToolUse_0 is the name of two"),
        (with("match", json!("(")), "hooks[1].match: "),
        (with("match", json!("a)|(b")), "hooks[1].match: "),
        (with("match", json!("(a{1000}){1000}")), "hooks[1].match: "),
        (on("Stop", "match", json!("read")), "hooks[1].match: is for a hook on tools"),
        (with("timeout", json!("61s")), "hooks[1].timeout: must be at most 60s"),
        (with("timeout", json!(5)), "hooks[1].timeout: "),
        (with("parallel", json!("g")), "hooks[1].parallel: is for a pre hook only"),
        (with("durable", json!(true)), "hooks[1].durable: is for a pre hook only"),
        (with("fail_closed", json!(false)), "hooks[1].fail_closed: "),
        (on("Stop", "fail_closed", json!(true)), "hooks[1].fail_closed: "),
        (with("colour", json!(1)), "hooks[1].colour: is not a known key"),
    ] {
        let refused = parse(json!([good(), hook])).unwrap_err();
        let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
        assert!(refused.len() == 1 && refused[0].starts_with(field), "{field}: {refused:?}");
    }
    let many = vec![good(); 65];
    assert!(parse(json!(many)).is_err());
    let mut source = source(json!([]));
    for reserve in [json!(0), json!(1_000_001), json!("much")] {
        source["injection_reserve"] = reserve;
        let refused = Definition::parse(source.clone(), &extensions()).unwrap_err();
        assert_eq!(refused[0].field, "injection_reserve");
    }
}

#[test]
fn a_match_is_of_the_whole_name_whatever_its_case() {
    let hook = parsed(json!({"on": "PreToolUse", "native": "guard", "match": "wri|READ"}));
    let concerned = |tool| hook.concerns(HookPoint::PreToolUse, Some(tool));
    assert!(concerned("read") && concerned("Wri") && !concerned("write") && !concerned("reads"));
    assert!(!hook.concerns(HookPoint::PostToolUse, Some("read")));
}

#[test]
fn a_hook_that_will_never_be_called_is_worth_a_warning() {
    let hook = |on: &str| json!({"on": on, "native": "guard", "name": on});
    let lost = |tools: &str| {
        let mut hook = hook("PreToolUse");
        hook["match"] = json!(tools);
        parse(json!([hook])).unwrap().warnings
    };
    assert_eq!(lost("edit"), ["hook PreToolUse: match: fits no tool of this agent"]);
    assert!(lost("write|edit").is_empty());
    for on in ["PreCompact", "PostCompact"] {
        let warnings = parse(json!([hook(on)])).unwrap().warnings;
        assert_eq!(warnings, [format!("hook {on}: is never called: nothing is summarized")]);
    }
}
