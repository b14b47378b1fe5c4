//! MCP tools: one that asks a person, across the death of its node and of its server; and what their
//! server is kept from.

use std::path::{Path, PathBuf};

use abide_tests::deadline::poll;
use abide_tests::node::Site;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, call, steps};

/// The tests' MCP server, as a child process of the node that uses it.
fn server() -> Value {
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let python = cache.join("abide-tests/mcp-new/bin/python");
    assert!(python.exists(), "{} is missing: run .ci/mcp-servers", python.display());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp/server.py");
    json!({"command": python, "args": [script, "stdio"], "timeout": "60s"})
}

fn with_docs(calls: &[Vec<Value>]) -> Value {
    let mut agent = agent(steps(calls), vec![json!({"mcp": "docs"})]);
    agent["mcp_servers"] = json!({"docs": server()});
    agent
}

#[tokio::test]
async fn a_call_that_waits_for_input_goes_on_on_another_node_after_a_kill() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let asks = call("it", "docs_ask", json!({"to": "ann"}));
    site.client.define("a", &with_docs(&[vec![asks]])).await;
    site.client.send_message("c", "a", "go").await;
    let open = site.client.wait_for_pending("c", "it", "elicitation").await;
    assert_eq!(open["message"], "Send to ann?");
    node.kill().await;

    let site = site.named("another");
    let _node = site.start().await;
    let wrong = json!({"result": {"ok": "perhaps"}});
    site.client.resolve("c", "it", wrong).await.expect_problem(422, "invalid-request");
    site.client.resolve("c", "it", json!({"result": {"ok": true}})).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    let result = journal.of("tool_result").next().unwrap();
    let answer: Value = serde_json::from_str(result["data"]["result"].as_str().unwrap()).unwrap();
    assert_eq!(answer["answer"], json!({"action": "accept", "content": {"ok": true}}));
    // The server's state came from the journal: the server is another process now.
    assert_eq!((&answer["state"]["to"], &answer["other"]), (&json!("ann"), &json!(true)));
}

#[tokio::test]
async fn a_users_own_call_reaches_a_tool_before_any_step_has_listed_it() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &with_docs(&[])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);
    let path = "/v1/conversations/c/dispatch";
    let input = json!({"tool": "docs_echo", "input": {"text": "hi"}});
    let answer = site.client.post(path, &input).await.expect(200);
    assert_eq!(answer["result"], "hi");
    let unknown = json!({"tool": "docs_nothing", "input": {}});
    site.client.post(path, &unknown).await.expect_problem(404, "not-found");
}

#[tokio::test]
async fn a_message_may_not_bring_the_name_of_a_tool_that_no_step_has_listed() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &with_docs(&[])).await;
    let with = |name: &str| {
        let tool = json!({"name": name, "description": "Echoes.", "executor": "client"});
        json!({"agent": "a", "text": "go", "tools": [tool]})
    };
    let path = "/v1/conversations/c/messages";
    let refused = site.client.post(path, &with("docs_echo")).await;
    refused.expect_problem(422, "invalid-request");
    site.client.post(path, &with("docs_other")).await.expect(202);
}

/// The result of a call that a user makes.
async fn dispatch(site: &Site, tool: &str, input: Value) -> String {
    let body = json!({"tool": tool, "input": input});
    let answer = site.client.post("/v1/conversations/c/dispatch", &body).await.expect(200);
    answer["result"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_server_reaches_nothing_of_its_node_and_ends_with_it() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &with_docs(&[])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);
    let address = site.client.public_address();
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let store = site.store().read_dir().unwrap().next().unwrap().unwrap().path();
    for refused in [
        json!({"read": "/proc/PARENT/environ"}),
        json!({"read": format!("/proc/{}/environ", node.id())}),
        json!({"read": store}),
        json!({"write": site.dir().join("outside")}),
        json!({"connect": port}),
    ] {
        assert_eq!(
            dispatch(&site, "docs_reach", refused.clone()).await,
            "PermissionError",
            "{refused}"
        );
    }
    for allowed in [json!({"read": "/etc/passwd"}), json!({"write": "inside"})] {
        assert_eq!(dispatch(&site, "docs_reach", allowed).await, "reached");
    }
    let servers = site.dir().join(".abide/workspaces/.mcp/test");
    let own = servers.read_dir().unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_to_string(own.join("inside")).unwrap(), "reached");

    let server = format!("/proc/{}", dispatch(&site, "docs_pid", json!({})).await);
    node.kill().await;
    poll("the server's end", async || (!Path::new(&server).exists()).then_some(())).await;
}
