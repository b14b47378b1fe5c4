//! Tests of tools that the provider runs.

use super::*;

fn hosted_tool(name: &str, options: Value) -> ToolSpec {
    let provider_options = json!({"openai_responses": options}).as_object().cloned().unwrap();
    ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({}).into(),
        executor: Executor::Provider,
        provider_options,
    }
}

fn runs(items: impl IntoIterator<Item = Value>) -> (Vec<ModelToolCall>, ReplyEnd) {
    let tools = vec![
        hosted_tool("web", json!({"type": "web_search_2025_08_26"})),
        hosted_tool("docs", json!({"type": "mcp", "server_label": "docs"})),
        hosted_tool("crm", json!({"type": "mcp", "server_label": "crm"})),
        hosted_tool("python", json!({"type": "code_interpreter"})),
        hosted_tool("terminal", json!({"type": "shell"})),
    ];
    let request = ModelRequest { tools, ..sample_request() };
    let events = items.into_iter().map(item).chain([completed()]);
    let (chunks, done) = done(decode_for(&request, events).unwrap());
    let calls = chunks.into_iter().map(|chunk| match chunk {
        ReplyChunk::Call(call) => call,
        other => panic!("{other:?}"),
    });
    (calls.collect(), done)
}

#[test]
fn a_run_is_named_by_the_declared_tool_and_has_its_arguments() {
    let action = json!({"type": "search", "query": "weather"});
    let crm = |label: &str| {
        json!({"type": "mcp_call", "id": "m", "server_label": label,
        "name": "find", "arguments": "{\"q\": 1}", "output": "found", "status": "completed"})
    };
    let code = json!({"type": "code_interpreter_call", "id": "ci", "code": "1+1",
        "container_id": "c", "outputs": [{"type": "logs", "logs": "2"}], "status": "completed"});
    let files = json!({"type": "file_search_call", "id": "fs", "queries": ["q"], "results": []});
    let mcp_args =
        |label: &str| json!({"server_label": label, "name": "find", "arguments": {"q": 1}});
    for (item, name, args) in [
        (json!({"type": "web_search_call", "id": "ws", "action": action}), "web", action),
        (crm("crm"), "crm", mcp_args("crm")),
        (crm("elsewhere"), "find", mcp_args("elsewhere")),
        (code, "python", json!({"code": "1+1", "container_id": "c"})),
        (files, "file_search", json!({"queries": ["q"]})),
    ] {
        let (mut calls, done) = runs([item.clone()]);
        let call = calls.remove(0);
        assert_eq!((&*call.name, call.args), (name, Ok(args)));
        assert_eq!(call.provider_result, Some(item.clone()));
        assert_eq!((done.stop, done.verbatim.unwrap().items), (Some(StopReason::End), vec![item]));
    }
}

#[test]
fn a_run_and_its_output_may_be_two_items() {
    let action = json!({"commands": ["ls"]});
    let call = json!({"type": "shell_call", "id": "sh_1", "call_id": "c", "action": action});
    let output = json!({"type": "shell_call_output", "id": "o", "call_id": "c", "output": []});
    let (calls, done) = runs([call.clone(), output.clone()]);
    assert_eq!(calls.len(), 1);
    assert_eq!((&*calls[0].name, &calls[0].args), ("terminal", &Ok(action)));
    assert_eq!(calls[0].provider_result, Some(output.clone()));
    assert_eq!(done.verbatim.unwrap().items, [call.clone(), output]);
    let (calls, done) = runs([call]);
    assert_eq!((calls.len(), done.verbatim), (0, None), "nobody has run it");
}

#[test]
fn an_approval_request_is_journalled_and_not_sent_back() {
    let asks = json!({"type": "mcp_approval_request", "id": "a", "name": "find",
        "server_label": "crm", "arguments": "{}"});
    let (calls, done) = runs([asks.clone()]);
    assert_eq!((&*calls[0].name, calls[0].provider_result.clone()), ("crm", Some(asks)));
    assert_eq!(done.verbatim, None);
}
