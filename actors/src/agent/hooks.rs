//! The `hooks` of a definition.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::document::{HookDocument, Text};
use super::endpoint;
use super::reader::Mistakes;
use crate::definition::{Definition, HookPoint, HookSpec, HookTarget, Matcher};
use crate::limits::cut;
use crate::tools::Extensions;

/// How long one call of a hook may take, unless the hook says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounded because a turn waits for its hooks.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the hooks; those with mistakes are left out.
pub(super) fn hooks(
    mistakes: &mut Mistakes,
    items: Vec<Value>,
    extensions: &Extensions,
) -> Vec<HookSpec> {
    let mut hooks = Vec::new();
    let mut names = BTreeSet::new();
    for (at, item) in items.into_iter().enumerate() {
        let field = format!("hooks[{at}]");
        let Some(document) = mistakes.read::<HookDocument>(&field, item) else { continue };
        if let Some(hook) = hook(mistakes, document, at, extensions) {
            if !names.insert(hook.name.clone()) {
                let message = format!("{} is the name of two hooks", hook.name);
                mistakes.add(&format!("{field}.name"), message);
            }
            hooks.push(hook);
        }
    }
    hooks
}

fn hook(
    mistakes: &mut Mistakes,
    document: HookDocument,
    at: usize,
    extensions: &Extensions,
) -> Option<HookSpec> {
    let prefix = format!("hooks[{at}].");
    let field = |name: &str| format!("{prefix}{name}");
    if document.on.is_none() {
        mistakes.add_missing(&field("on"));
    }
    let on = document.on;
    let name = name(mistakes, &field("name"), document.name);
    let target = match (document.http, document.native) {
        (Some(http), None) => endpoint::http(mistakes, &field("http."), http)
            .map(|endpoint| HookTarget::Http(Box::new(endpoint))),
        (None, Some(Text(native))) => native_hook(mistakes, &field("native"), native, extensions),
        (Some(_), Some(_)) | (None, None) => {
            if !mistakes.has(&field("http")) && !mistakes.has(&field("native")) {
                mistakes.add(&field("http"), "must be there, or native, and not both");
            }
            None
        }
    };
    let matching = matcher(mistakes, &field("match"), document.r#match, on);
    let timeout = document.timeout.map_or(DEFAULT_TIMEOUT, |span| span.0);
    if timeout > MAX_TIMEOUT {
        mistakes.add(&field("timeout"), "must be at most 60s");
    }
    let parallel = document.parallel.map(|text| text.0);
    let durable = document.durable.unwrap_or(false);
    check_fail_closed(mistakes, &field("fail_closed"), document.fail_closed, on);
    let fail_closed = document.fail_closed.unwrap_or(false);
    let on = on?;
    if on != HookPoint::Pre {
        for (key, is_given) in [("parallel", parallel.is_some()), ("durable", durable)] {
            if is_given {
                mistakes.add(&field(key), "is for a pre hook only");
            }
        }
    }
    let name = name.unwrap_or_else(|| format!("{on}_{at}"));
    let target = target?;
    Some(HookSpec { name, on, matching, target, timeout, parallel, durable, fail_closed })
}

fn name(mistakes: &mut Mistakes, field: &str, name: Option<Text<64>>) -> Option<String> {
    let Text(name) = name?;
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(is_legal) {
        mistakes.add(field, "must be [A-Za-z0-9_-]{1,64}");
    }
    Some(name)
}

fn native_hook(
    mistakes: &mut Mistakes,
    field: &str,
    name: String,
    extensions: &Extensions,
) -> Option<HookTarget> {
    if extensions.hooks().get(&name).is_none() {
        let name = cut(&name, 64);
        mistakes.add(field, format!("names no hook of this program: {name}"));
        return None;
    }
    Some(HookTarget::Native(name))
}

fn matcher(
    mistakes: &mut Mistakes,
    field: &str,
    source: Option<Text<4_096>>,
    on: Option<HookPoint>,
) -> Option<Matcher> {
    let Text(source) = source?;
    if on.is_some_and(|on| !on.is_about_a_tool()) {
        mistakes.add(field, "is for a hook on tools only");
        return None;
    }
    Matcher::compile(&source).map_err(|message| mistakes.add(field, message)).ok()
}

/// Refuses a `fail_closed` that cannot take effect: `pre` and `PreToolUse` hooks always fail
/// closed, and nobody waits for a hook that is only notified.
fn check_fail_closed(
    mistakes: &mut Mistakes,
    field: &str,
    fail_closed: Option<bool>,
    on: Option<HookPoint>,
) {
    match (on, fail_closed) {
        (Some(HookPoint::Pre | HookPoint::PreToolUse), Some(false)) => {
            mistakes.add(field, "of a pre or PreToolUse hook is always true");
        }
        (Some(on), Some(true)) if on.is_notified() => {
            mistakes.add(field, "is for a hook that is waited for only");
        }
        (Some(_) | None, _) => {}
    }
}

/// Warns of hooks that are never called.
pub(super) fn warnings(definition: &Definition) -> Vec<String> {
    let names: Vec<&str> = definition.tools.iter().map(|tool| tool.name.as_str()).collect();
    // The tools of MCP servers are not known before the servers list them.
    let all_known = definition.sets.is_empty();
    let of_hook = |hook: &HookSpec| {
        let compacts = matches!(hook.on, HookPoint::PreCompact | HookPoint::PostCompact);
        let idle = (compacts && definition.summary.is_none())
            .then(|| format!("hook {}: is never called: nothing is summarized", hook.name));
        let matches = |matching: &Matcher| names.iter().any(|name| matching.matches(name));
        let lost = hook.matching.as_ref().is_some_and(|matching| all_known && !matches(matching));
        let lost = lost.then(|| format!("hook {}: match: fits no tool of this agent", hook.name));
        [idle, lost].into_iter().flatten()
    };
    definition.hooks.iter().flat_map(of_hook).collect()
}

#[cfg(test)]
mod tests;
