//! Agent definitions of the tests.

use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

/// A tool definition with these additional fields.
pub(crate) fn tool(name: &str, more: Value) -> Value {
    let mut tool = json!({"name": name, "description": name});
    tool["parameters"] = json!({"type": "object"});
    merge(&mut tool, more);
    tool
}

/// An HTTP tool on the tool server.
pub(crate) fn http(name: &str, server: &ToolServer, path: &str, more: Value) -> Value {
    let mut tool = tool(name, json!({"run": {"http": {"url": server.url(path)}}}));
    merge(&mut tool, more);
    tool
}

/// A tool that a person answers.
pub(crate) fn human(name: &str) -> Value {
    tool(name, json!({"executor": "human"}))
}

/// A client tool. It waits even when no client is connected: its agent has no `client_grace`.
pub(crate) fn client(name: &str) -> Value {
    tool(name, json!({"executor": "client"}))
}

/// A client tool that needs an approval.
pub(crate) fn gated_client(name: &str) -> Value {
    tool(name, json!({"executor": "client", "approval": "requires_approval"}))
}

/// An agent whose model calls each of its tools once in one step, then replies `Done.` The call of
/// the tool `NAME` has the id `NAME`; later turns add `~2`, `~3` to it.
pub(crate) fn calls_once(tools: Vec<Value>) -> Value {
    let calls: Vec<Value> = tools
        .iter()
        .map(|tool| json!({"id": tool["name"], "name": tool["name"], "args": {"n": 1}}))
        .collect();
    agent(json!({"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]}), tools)
}

/// An agent with this model.
pub(crate) fn agent(model: Value, tools: Vec<Value>) -> Value {
    json!({"model": model, "client_grace": null, "tools": tools})
}

/// A model that makes these calls, those of each list in one step, then replies `Done.`
pub(crate) fn steps(lists: &[Vec<Value>]) -> Value {
    let steps: Vec<Value> = lists.iter().map(|calls| json!({"calls": calls})).collect();
    json!({"provider": "scripted", "script": steps})
}

/// A call for `steps`.
pub(crate) fn call(id: &str, name: &str, args: Value) -> Value {
    json!({"id": id, "name": name, "args": args})
}

/// An agent with all built-in tools, without approvals, which may fetch from this machine.
pub(crate) fn able(model: Value) -> Value {
    let mut agent = agent(model, vec![json!({"builtin": "all"})]);
    agent["permissions"] = json!({"allowed_hosts": ["127.0.0.1"]});
    agent
}

fn merge(target: &mut Value, more: Value) {
    for (key, value) in more.as_object().unwrap() {
        target[key] = value.clone();
    }
}
