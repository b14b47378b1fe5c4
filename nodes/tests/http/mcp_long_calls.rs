//! Calls of MCP clients whose turns take long, also at a node that leaves.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Api, DEADLINE};
use crate::mcp::{McpClient, text};

/// Defines an agent that answers after this time.
async fn define_slow(api: &Api, delay: &str) {
    let script = json!([{"text": "late", "delay": delay}]);
    let agent = json!({"model": {"provider": "scripted", "script": script}});
    assert_eq!(api.put("/v1/agents/slow", agent).await.status, 201);
}

/// Drains the node for at most this time, once the conversation `c` has an open turn.
async fn drain_in_mid_turn(api: &Api, timeout: Duration) {
    let begun = async {
        while api.get("/v1/conversations/c").await.body["turn"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, begun).await.unwrap();
    api.node.drain(timeout).await;
}

fn call() -> (&'static str, Value) {
    ("slow", json!({"message": "go", "conversation_id": "c"}))
}

#[tokio::test]
async fn a_client_is_told_again_that_a_long_call_goes_on() {
    let api = Api::start().await;
    define_slow(&api, "17s").await;
    let client = McpClient::new(&api);
    let (name, arguments) = call();
    let call = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}});
    // From here on time passes wherever everybody waits.
    tokio::time::pause();
    let deadline = Duration::from_secs(300);
    let mut messages = client.messages_within(deadline, "tools/call", call).await;
    assert_eq!(text(&messages.pop().unwrap()["result"]), "late");
    let progress =
        |it: &Value| (it["params"]["message"].clone(), it["params"]["progress"].as_f64());
    let told: Vec<_> = messages.iter().map(progress).collect();
    let expected = [1.0, 2.0].map(|count| (json!("the turn is open"), Some(count)));
    assert_eq!(told, expected, "at the beginning, and after 15 seconds");
}

#[tokio::test]
async fn a_call_at_a_node_that_leaves_says_that_the_agent_still_works() {
    let api = Api::start().await;
    define_slow(&api, "60s").await;
    let client = McpClient::new(&api);
    let (name, arguments) = call();
    let leaves = drain_in_mid_turn(&api, Duration::from_millis(1));
    let (told, ()) = tokio::join!(client.call(name, arguments), leaves);
    let place = &told["structuredContent"];
    assert_eq!((&place["status"], &told["isError"]), (&json!("running"), &json!(false)));
    let open = api.get("/v1/conversations/c").await.body;
    assert_eq!(open["turn"]["id"], place["turn_id"], "{open:#}");
}

#[tokio::test]
async fn a_call_at_a_node_that_leaves_goes_on_as_a_task_for_a_client_that_has_them() {
    let api = Api::start().await;
    define_slow(&api, "60s").await;
    let client = McpClient { tasks: true, ..McpClient::new(&api) };
    let (name, arguments) = call();
    let leaves = drain_in_mid_turn(&api, Duration::from_millis(1));
    let (told, ()) = tokio::join!(client.call(name, arguments), leaves);
    assert_eq!((&told["resultType"], &told["status"]), (&json!("task"), &json!("working")));
    assert!(told["taskId"].is_string(), "another node is asked for it: {told:#}");
}

#[tokio::test]
async fn a_call_whose_turn_ends_while_its_node_drains_has_its_result() {
    let api = Api::start().await;
    define_slow(&api, "500ms").await;
    let client = McpClient::new(&api);
    let (name, arguments) = call();
    let (told, ()) = tokio::join!(client.call(name, arguments), drain_in_mid_turn(&api, DEADLINE));
    assert_eq!((text(&told), &told["isError"]), ("late", &json!(false)), "{told:#}");
}
