//! The evidence of a killed node is complete: its clients' requests, readers' frames and tools'
//! runs.

use abide_tests::checks::Evidence;
use abide_tests::history::History;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::ABIDE;

fn agent(tools: &ToolServer) -> serde_json::Value {
    let tool = |name: &str, interrupt: &str| {
        json!({"name": name, "description": name, "parameters": {"type": "object"},
            "on_interrupt": interrupt, "run": {"http": {"url": tools.url("/hold")}}})
    };
    let asks = json!({"name": "ask", "description": "ask", "parameters": {"type": "object"},
        "executor": "human", "timeout": "500ms"});
    let mut gated = tool("again", "redispatch");
    gated["approval"] = json!("requires_approval");
    let calls = ["again", "once", "ask"].map(|name| json!({"id": name, "name": name, "args": {}}));
    json!({"tools": [gated, tool("once", "fail"), asks], "model": {"provider": "scripted",
        "script": [{"calls": calls}, {"text": "Done."}]}})
}

#[tokio::test]
async fn the_evidence_of_a_killed_node_is_whole_and_keeps_every_promise() {
    let site = Site::new(ABIDE);
    let tools = ToolServer::start().await;
    let history = History::default();
    let node = site.start().await;
    let client = site.client.clone().with_history(&history, "test");
    client.define("a", &agent(&tools)).await;
    let reader = history.listen([&client], "c");
    client.send_message("c", "a", "go").await;
    client.wait_for_pending("c", "again", "approval").await;
    client.resolve("c", "again", json!({"approved": true})).await.expect(200);
    tools.requests.nth(2).await;
    node.kill().await;
    let path = "/v1/conversations/c/cancel";
    assert_eq!(client.ask(reqwest::Method::POST, path, None, None).await, None);

    let _node = site.start().await;
    tools.requests.nth(3).await;
    tools.release();
    reader.wait_for("the end", |frames| frames.iter().any(|frame| frame.is_terminal())).await;
    let evidence = Evidence::gather(&client, &history, &[&tools]).await;
    evidence.assert_no_violations();

    let writes = evidence.exchanges.iter().filter(|one| one.method != reqwest::Method::GET);
    let statuses: Vec<_> = writes
        .map(|one| (one.verb().to_owned(), one.answer.as_ref().ok().map(|one| one.status)))
        .collect();
    let expected = [("", Some(201)), ("messages", Some(202)), ("resolution", Some(200))];
    let expected = expected.map(|(verb, status)| (verb.to_owned(), status));
    assert_eq!(statuses[..3], expected);
    assert_eq!(statuses[3..], [("cancel".to_owned(), None)]);
    let journal = &evidence.journals["c"];
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("once")["error_type"], "INTERRUPTED");
    assert_eq!(journal.result("ask")["error_type"], "EXPIRED");
    assert_eq!(journal.result("again")["ok"], true);
    assert_eq!(evidence.runs.len(), 3);
    assert_eq!(evidence.streams[0].1.iter().filter(|frame| frame.name == "snapshot").count(), 2);
}

#[tokio::test]
async fn evidence_with_a_truncated_journal_has_violations() {
    let site = Site::new(ABIDE);
    let tools = ToolServer::start().await;
    let history = History::default();
    let _node = site.start().await;
    let client = site.client.clone().with_history(&history, "test");
    let agent = json!({"model": {"provider": "scripted", "script": [{"text": "Done."}]}});
    client.define("a", &agent).await;
    for turn in 1..=2 {
        client.send_message("c", "a", "go").await;
        client.wait_until_settled("c", turn).await;
    }
    let mut evidence = Evidence::gather(&client, &history, &[&tools]).await;
    evidence.assert_no_violations();
    let journal = evidence.journals.get_mut("c").unwrap();
    let half = journal.0.len() / 2;
    journal.0.truncate(half + 1);
    assert!(!evidence.violations().is_empty());
}
