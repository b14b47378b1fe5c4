//! CopilotKit's own core over a node, and runs of AG-UI with several calls or that are refused.

use abide_tests::client::Client;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::ag_ui_agent::{AgUiAgent, VERSIONS, last_event, last_text, result, run_script};
use crate::agents::{call, calls_once, client, gated_client, http, human, tool};
use crate::ai_sdk::scripted;
use crate::authentication::{by, guarded, key, line};

/// Asserts that a page has run its tools, the gated one after its approval, and has all messages.
async fn assert_page_ran_its_tools(client: &Client, page: &Value) {
    assert_eq!(page["atFirst"], 0, "{page:#}");
    assert_eq!(page["ranBefore"], json!(["locate"]), "what is not approved does not run");
    assert_eq!(page["interrupts"], json!(["pay/1"]));
    assert_eq!(page["ran"], json!(["locate", "pay"]));
    for messages in [&page["messages"], &page["loaded"]] {
        assert_eq!(messages.as_array().unwrap().last().unwrap()["content"], "Done.", "{page:#}");
    }
    let journal = client.wait_until_settled("page", 1).await;
    assert_eq!(journal.result("locate")["result"], json!({"at": "home"}));
    // The echo of the approval is not the result.
    assert_eq!(journal.result("pay")["result"], "paid");
}

#[tokio::test]
async fn a_page_of_copilotkit_runs_its_tools_and_a_gated_one_after_its_approval() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![client("locate"), gated_client("pay")])).await;
    let url = format!("http://{}", site.client.public_address());
    let page = run_script("copilotkit.mjs", &[&url, "page", "node"]).await;
    assert_page_ran_its_tools(&site.client, &page).await;
}

#[tokio::test]
async fn a_page_of_copilotkit_does_the_same_over_its_own_runtime_which_passes_the_credential_on() {
    let anybody = json!({"by": {"services": true, "not": []}});
    let pay = tool("pay", json!({"executor": "client", "approval": anybody}));
    let agents = [("a", calls_once(vec![client("locate"), pay]))];
    let ann = line("ann", &["user", "approver"]);
    let site = guarded(Site::new(ABIDE), &[ann], &agents);
    let _node = site.start().await;
    let url = format!("http://{}", site.client.public_address());
    let page = run_script("copilotkit.mjs", &[&url, "page", "runtime", &key("ann")]).await;
    assert_page_ran_its_tools(&by(&site, "ann"), &page).await;
}

#[tokio::test]
async fn everything_at_once_asks_for_the_clients_calls_first_and_then_for_the_rest() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let gate = json!({"approval": "requires_approval"});
    let all = vec![
        http("look", &tools, "/slow", json!({})),
        http("mail", &tools, "/answer", gate),
        client("locate"),
        human("seat"),
    ];
    site.client.define("a", &calls_once(all)).await;
    for version in VERSIONS {
        let address = site.client.public_address();
        let mut agent = AgUiAgent::open(version, &address, ("a", version), &["locate"], None).await;
        let first = agent.say("m-1", "go").await;
        assert_eq!(last_event(&first)["outcome"]["type"], "success", "{first:#}");
        assert!(result(&first, "look").is_object(), "the server's call is done: {first:#}");
        agent.command("result", json!({"call": "locate", "content": "here"})).await;
        let asked = agent.run(json!({})).await;
        let ids: Vec<&str> = asked["interrupts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["mail/1", "seat/1"], "{asked:#}");
        let resume = json!([
            {"interruptId": "mail/1", "status": "resolved", "payload": {"approved": true}},
            {"interruptId": "seat/1", "status": "resolved", "payload": "aisle"}]);
        let done = agent.run(json!({"resume": resume})).await;
        assert_eq!((last_text(&done), &done["failed"]), ("Done.".into(), &Value::Null), "{done:#}");
        for call in ["look", "mail", "locate", "seat"] {
            assert!(result(&done, call).is_object(), "{call}: {done:#}");
        }
        site.client.wait_until_settled(version, 1).await;
    }
}

#[tokio::test]
async fn a_message_supersedes_an_approval_if_the_client_says_so() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let mail = http("mail", &tools, "/answer", json!({"approval": "requires_approval"}));
    let script = json!([
        {"when": "go", "steps": [{"calls": [call("mail", "mail", json!({}))]}]},
        {"steps": [{"text": "Fine."}]},
    ]);
    site.client.define("a", &scripted(script, vec![mail])).await;
    for version in VERSIONS {
        let address = site.client.public_address();
        let mut agent = AgUiAgent::open(version, &address, ("a", version), &[], None).await;
        agent.say("m-1", "go").await;
        // A client that was loaded anew does not know that the thread waits.
        let mut other = AgUiAgent::open(version, &address, ("a", version), &[], None).await;
        let refused = other.say("m-2", "never mind").await;
        assert_eq!(last_event(&refused)["code"], "interrupts_pending", "{refused:#}");
        let props = json!({"forwardedProps": {"abide": {"if_busy": "interrupt"}}});
        let done = other.run(props).await;
        assert_eq!((last_text(&done), &done["failed"]), ("Fine.".into(), &Value::Null), "{done:#}");
        assert!(result(&done, "mail").is_object(), "what became of the call is told: {done:#}");
        assert!(tools.requests.all().is_empty());
    }
}
