//! The `hooks` of a definition.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::Definition;
use super::field_reader::Fields;
use super::tool_entry::target;
use crate::hooks::{HookPoint, HookSpec, HookTarget, Matcher};
use crate::tools::Extensions;
use crate::tools::limits::cut;

/// Each may be called in every step.
const MOST_HOOKS: usize = 64;
const LONGEST_NAME: usize = 64;
/// An expression over names of at most 64 bytes.
const LONGEST_MATCH: usize = 4_096;
const TIMEOUT: Duration = Duration::from_secs(5);
/// A turn waits for its hooks.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the hooks; those with mistakes are left out.
pub(super) fn hooks(fields: &mut Fields, natives: &Extensions) -> Vec<HookSpec> {
    let mut hooks = Vec::new();
    let mut names = BTreeSet::new();
    for (at, entry) in fields.list("hooks", MOST_HOOKS).into_iter().enumerate() {
        let place = format!("hooks[{at}]");
        let Value::Object(object) = entry else {
            fields.wrong(&place, "must be an object");
            continue;
        };
        let mut own = Fields::new(None, &format!("{place}."), object);
        if let Some(hook) = hook(&mut own, at, natives) {
            if !names.insert(hook.name.clone()) {
                own.wrong("name", format!("{} is the name of two hooks", hook.name));
            }
            hooks.push(hook);
        }
        fields.absorb(own);
    }
    hooks
}

fn hook(fields: &mut Fields, at: usize, natives: &Extensions) -> Option<HookSpec> {
    if !fields.says("on") {
        fields.wrong("on", "is missing");
    }
    let on: Option<HookPoint> = fields.word("on", HookPoint::WORDS);
    let name = name(fields);
    let target = target(fields, natives);
    let matching = matching(fields, on);
    let timeout = timeout(fields);
    let parallel = fields.text("parallel", LONGEST_NAME);
    let durable = fields.flag("durable", false);
    let fail_closed = fail_closed(fields, on);
    let on = on?;
    if on != HookPoint::Pre {
        for (field, said) in [("parallel", parallel.is_some()), ("durable", durable)] {
            if said {
                fields.wrong(field, "is for a pre hook only");
            }
        }
    }
    let name = name.unwrap_or_else(|| format!("{on}_{at}"));
    let target = target?;
    Some(HookSpec { name, on, matching, target, timeout, parallel, durable, fail_closed })
}

fn name(fields: &mut Fields) -> Option<String> {
    let name = fields.text("name", LONGEST_NAME)?;
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(legal) {
        fields.wrong("name", "must be [A-Za-z0-9_-]{1,64}");
    }
    Some(name)
}

fn target(fields: &mut Fields, natives: &Extensions) -> Option<HookTarget> {
    match (fields.says("http"), fields.says("native")) {
        (true, false) => target::http(fields).map(HookTarget::Http),
        (false, true) => {
            let name = fields.text("native", 256)?;
            if natives.hooks().get(&name).is_none() {
                let name = cut(&name, LONGEST_NAME);
                fields.wrong("native", format!("names no hook of this program: {name}"));
                return None;
            }
            Some(HookTarget::Native(name))
        }
        (true, true) | (false, false) => {
            fields.any("http");
            fields.any("native");
            fields.wrong("http", "must be there, or native, and not both");
            None
        }
    }
}

fn matching(fields: &mut Fields, on: Option<HookPoint>) -> Option<Matcher> {
    let source = fields.text("match", LONGEST_MATCH)?;
    if on.is_some_and(|on| !on.is_about_a_tool()) {
        fields.wrong("match", "is for a hook on tools only");
        return None;
    }
    Matcher::compile(&source).map_err(|message| fields.wrong("match", message)).ok()
}

fn timeout(fields: &mut Fields) -> Duration {
    let timeout = fields.duration("timeout").unwrap_or(TIMEOUT);
    if timeout > LONGEST_TIMEOUT {
        fields.wrong("timeout", "must be at most 60s");
    }
    timeout
}

/// Some fail closed whatever is said, and for the rest nobody waits.
fn fail_closed(fields: &mut Fields, on: Option<HookPoint>) -> bool {
    let said = fields.peek("fail_closed").cloned();
    let closed = fields.flag("fail_closed", false);
    match on {
        Some(HookPoint::Pre | HookPoint::PreToolUse) if said == Some(json!(false)) => {
            fields.wrong("fail_closed", "of a pre or PreToolUse hook is always true");
        }
        Some(on) if on.is_notified() && closed => {
            fields.wrong("fail_closed", "is for a hook that is waited for only");
        }
        Some(_) | None => {}
    }
    closed
}

/// What is legal and may not be meant.
pub(super) fn warnings(definition: &Definition) -> Vec<String> {
    let names: Vec<&str> = definition.tools.iter().map(|tool| tool.name.as_str()).collect();
    // What servers offer is not known here.
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
