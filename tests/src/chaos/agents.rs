//! The agents of a chaos run, as definitions.

use serde_json::{Value, json};

use crate::tool_server::ToolServer;

/// An agent and what a worker may do with its conversations in addition to sending messages.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) agent: &'static str,
    pub(super) definition: Value,
    /// A tool that the user may dispatch.
    pub(super) dispatch: Option<&'static str>,
    /// Whether it has sub-agents, whose open calls are only in the inbox of the root.
    pub(super) has_sub_agents: bool,
}

/// The time-out of suspensions that are meant to expire.
pub(super) const SHORT_TIMEOUT: &str = "1500ms";

pub(super) fn shape(agent: &'static str, definition: Value) -> Shape {
    Shape { agent, definition, dispatch: None, has_sub_agents: false }
}

/// All shapes that users talk to, with tools on this server, and hooks and an MCP server on the
/// hostile one, whose requests have no keys.
pub(super) fn shapes(tools: &ToolServer, hostile: &ToolServer) -> Vec<Shape> {
    let run = |name: &str, path: &str, more: Value| http(name, tools, path, more);
    let pausing = run("look", "/pause", json!({}));
    let parent = |agent, definition| Shape { has_sub_agents: true, ..shape(agent, definition) };
    vec![
        mixed(tools),
        payer(tools),
        demo_like(),
        hasty(tools),
        stepwise(tools),
        failing(tools),
        surrounded(tools, hostile),
        talker(),
        failing_model(pausing),
        planner(run("look", "/pause", json!({"read_only": true})), run("send", "/slow", json!({}))),
        parent("boss", calls_agents(&["kid"])),
        parent("chief", calls_agents(&["boss", "kid"])),
        forgetful(run("look", "/slow", json!({}))),
    ]
}

/// The agents that are only sub-agents of others.
pub(super) fn sub_agents(tools: &ToolServer) -> Vec<(&'static str, Value)> {
    let gated = http("send", tools, "/pause", gated());
    let look = http("look", tools, "/pause", json!({}));
    vec![("kid", all_at_once(vec![gated, look]))]
}

/// Tools of every executor in one step.
fn mixed(tools: &ToolServer) -> Shape {
    let definition = all_at_once(vec![
        http("send", tools, "/pause", gated()),
        tool("ask", json!({"executor": "human"})),
        tool("page", json!({"executor": "client", "approval": "requires_approval"})),
        http("look", tools, "/pause", json!({})),
        http("pay", tools, "/pause", json!({"on_interrupt": "fail"})),
    ]);
    Shape { dispatch: Some("look"), ..shape("mixed", definition) }
}

/// Tools that must not run twice.
fn payer(tools: &ToolServer) -> Shape {
    let gated_once = json!({"on_interrupt": "fail", "approval": "requires_approval"});
    let definition = in_steps(vec![
        http("pay", tools, "/pause", json!({"on_interrupt": "fail"})),
        http("gift", tools, "/pause", gated_once),
        http("again", tools, "/slow", json!({})),
    ]);
    Shape { dispatch: Some("pay"), ..shape("payer", definition) }
}

fn demo_like() -> Shape {
    let mail = json!({"name": "mail", "run": {"native": "demo_send_email"},
        "approval": "requires_approval"});
    shape("demo-like", all_at_once(vec![mail, tool("locate", json!({"executor": "client"}))]))
}

/// Suspensions that expire.
fn hasty(tools: &ToolServer) -> Shape {
    let gated_page = json!({"executor": "client", "approval": "requires_approval",
        "timeout": SHORT_TIMEOUT});
    let gated_run = json!({"approval": "requires_approval", "timeout": SHORT_TIMEOUT});
    let definition = all_at_once(vec![
        tool("ask", json!({"executor": "human", "timeout": SHORT_TIMEOUT})),
        tool("page", gated_page),
        http("send", tools, "/slow", gated_run),
        http("look", tools, "/pause", json!({})),
    ]);
    shape("hasty", definition)
}

/// Each executor in a step of its own, and a gate with a condition.
fn stepwise(tools: &ToolServer) -> Shape {
    let condition = json!({"approval": {"when": "args.pause_ms > 400"}});
    let definition = in_steps(vec![
        http("look", tools, "/pause", json!({})),
        tool("ask", json!({"executor": "human"})),
        http("maybe", tools, "/answer", condition),
        tool("page", json!({"executor": "client"})),
    ]);
    shape("stepwise", definition)
}

/// Tools that fail in every way.
fn failing(tools: &ToolServer) -> Shape {
    let definition = all_at_once(vec![
        http("fails", tools, "/fail", json!({})),
        http("drops", tools, "/drop", json!({})),
        http("streams", tools, "/stream", json!({"streaming": true})),
        http("hangs", tools, "/hang", json!({"run_timeout": "700ms"})),
        http("denied", tools, "/answer", gated()),
    ]);
    shape("failing", definition)
}

/// Hostile tools, hooks and an MCP server: their answers never end, or cannot be read. They make calls
/// and turns fail, and nothing else.
fn surrounded(tools: &ToolServer, hostile: &ToolServer) -> Shape {
    let short = json!({"run_timeout": "1s"});
    let mut definition = all_at_once(vec![
        http("endless", tools, "/endless", short.clone()),
        http("trickle", tools, "/trickle", short.clone()),
        http("garbage", tools, "/garbage", json!({})),
        http("deep", tools, "/deep", json!({})),
        http("denied", tools, "/answer", json!({})),
        http("look", tools, "/pause", json!({})),
    ]);
    let hook = |on: &str, path: &str, more: Value| {
        let mut hook = json!({"on": on, "http": {"url": hostile.url(path)}, "timeout": "500ms"});
        merge(&mut hook, more);
        hook
    };
    definition["hooks"] = json!([
        hook("post", "/endless", json!({})),
        hook("PreToolUse", "/trickle", json!({"match": "denied"})),
        hook("PostToolUse", "/garbage", json!({})),
        hook("Stop", "/deep", json!({})),
    ]);
    definition["mcp_servers"] = json!({
        "mute": {"url": hostile.url("/hang"), "timeout": "500ms"},
        "mad": {"url": hostile.url("/garbage"), "timeout": "500ms"},
    });
    shape("surrounded", definition)
}

/// A slow stream without tools.
fn talker() -> Shape {
    let text = "Word after word after word, and each of them takes its time to come.";
    let script = json!([{"text": text, "delay": "40ms"}]);
    shape("talker", agent(json!({"provider": "scripted", "script": script}), vec![]))
}

/// A model that fails or never ends its turn.
fn failing_model(look: Value) -> Shape {
    let step = json!({"calls": [{"name": "look", "args": {"pause_ms": 1}}]});
    let script = json!([
        {"when": "[02468]$", "steps": [{"text": "I fail.", "error": {"message": "no"}}]},
        {"steps": vec![step; 10]},
    ]);
    shape("wrong", agent(json!({"provider": "scripted", "script": script}), vec![look]))
}

/// Plans, writes a file, and reads it again; about half of its calls are refused.
fn planner(look: Value, send: Value) -> Shape {
    let call = |name: &str, args: Value| json!({"name": name, "args": args});
    let todos = json!([{"content": "write", "status": "pending"}]);
    let script = json!([
        {"calls": [call("plan_mode", json!({"action": "enter"}))]},
        {"calls": [call("look", json!({"pause_ms": 200})), call("send", json!({}))]},
        {"calls": [call("plan_mode", json!({"action": "exit"})),
                   call("todo_write", json!({"todos": todos}))]},
        {"calls": [call("write", json!({"path": "a", "content": "{{ user }}"})),
                   call("nobody", json!({})), call("look", json!("{"))]},
        {"calls": [call("read", json!({"path": "a"}))]},
    ]);
    let builtin = json!({"builtin": ["read", "write", "todo_write", "plan_mode"]});
    let model = json!({"provider": "scripted", "script": script});
    let definition = agent(model, vec![builtin, look, send]);
    Shape { dispatch: Some("look"), ..shape("planner", definition) }
}

/// Long texts in a small context, so that old results are omitted and summaries are written.
fn forgetful(look: Value) -> Shape {
    let text = "Much is said about little. ".repeat(40);
    let script = json!([{"text": text, "calls": [{"name": "look", "args": {}}]}, {"text": text}]);
    let mut definition = agent(json!({"provider": "scripted", "script": script}), vec![look]);
    definition["working_budget"] = json!(2_000);
    definition["injection_reserve"] = json!(100);
    definition["summary"] = json!({"over": 800});
    shape("forgetful", definition)
}

/// Calls all of these agents in one step.
fn calls_agents(names: &[&str]) -> Value {
    let tools: Vec<Value> = names
        .iter()
        .map(|name| {
            tool(&format!("ask_{name}"), json!({"run": {"agent": name}, "run_timeout": "5m"}))
        })
        .collect();
    all_at_once(tools)
}

/// Calls all its tools in one step.
pub(super) fn all_at_once(tools: Vec<Value>) -> Value {
    let calls: Vec<Value> = tools.iter().map(call).collect();
    let script =
        json!([{"text": "All at once.", "calls": calls}, {"text": "Done.", "delay": "5ms"}]);
    agent(json!({"provider": "scripted", "script": script}), tools)
}

/// Calls one tool per step.
fn in_steps(tools: Vec<Value>) -> Value {
    let steps: Vec<Value> = tools.iter().map(|tool| json!({"calls": [call(tool)]})).collect();
    agent(json!({"provider": "scripted", "script": steps}), tools)
}

/// A call of the tool, which takes as long as the last user message says, in milliseconds.
fn call(tool: &Value) -> Value {
    let args = if tool["run"]["native"].is_null() {
        json!("{\"pause_ms\": {{ user | int }}, \"prompt\": \"{{ user }}\"}")
    } else {
        json!({"to": "a@b.c", "subject": "{{ user }}"})
    };
    json!({"id": tool["name"], "name": tool["name"], "args": args})
}

pub(super) fn agent(model: Value, tools: Vec<Value>) -> Value {
    // Clients come and go with the nodes: a call waits for one as long as for a person.
    json!({"model": model, "client_grace": null, "max_steps": 8, "tools": tools,
        "suspension_timeout": "10m", "system_prompt": "You are tried."})
}

fn gated() -> Value {
    json!({"approval": "requires_approval"})
}

pub(super) fn http(name: &str, server: &ToolServer, path: &str, more: Value) -> Value {
    let mut tool = tool(name, json!({"run": {"http": {"url": server.url(path)}}}));
    merge(&mut tool, more);
    tool
}

pub(super) fn tool(name: &str, more: Value) -> Value {
    let mut tool = json!({"name": name, "description": name, "parameters": {"type": "object"}});
    merge(&mut tool, more);
    tool
}

fn merge(target: &mut Value, more: Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        target[key] = value.clone();
    }
}
